//! The credentials of an S3-compatible service.

use std::{path::PathBuf, sync::Arc};

use async_trait::async_trait;
use object_store::{CredentialProvider, aws::AwsCredential};
use secrecy::{ExposeSecret, SecretString};
use tokio::task::spawn_blocking;

use crate::token_setting;

/// The place of the credentials.
#[derive(Debug, Clone)]
pub enum CredentialSource {
    /// A file, which is read for each request: new credentials are valid at once.
    File(PathBuf),
    /// The values of environment variables.
    Variables(AccessKey),
}

/// An access key. Its `Debug` hides the values.
#[derive(Debug, Clone)]
pub struct AccessKey {
    pub id: SecretString,
    pub secret: SecretString,
    /// Accompanies a temporary key.
    pub session_token: Option<SecretString>,
}

impl CredentialSource {
    /// Reads the credentials. Blocks.
    ///
    /// # Errors
    /// Returns a message, without a value, if the file is not private or has no access key.
    pub fn read(&self) -> Result<AccessKey, String> {
        match self {
            CredentialSource::Variables(key) => Ok(key.clone()),
            CredentialSource::File(path) => {
                let found = token_setting::read_secret(Some(path), ("", None))?;
                let (content, origin) = found.unwrap_or_default();
                let key = parse(content.expose_secret());
                key.map_err(|problem| format!("{origin} {problem}"))
            }
        }
    }
}

impl AccessKey {
    /// Returns the key, if all values can be part of a request.
    pub fn new(
        id: String,
        secret: String,
        session_token: Option<String>,
    ) -> Result<AccessKey, &'static str> {
        let is_valid =
            |value: &String| !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_graphic());
        if ![Some(&id), Some(&secret), session_token.as_ref()]
            .into_iter()
            .flatten()
            .all(is_valid)
        {
            return Err("must have values of printable ASCII characters without spaces");
        }
        Ok(AccessKey {
            id: id.into(),
            secret: secret.into(),
            session_token: session_token.map(SecretString::from),
        })
    }
}

/// Parses a file in the format of AWS's clients, with one profile.
fn parse(text: &str) -> Result<AccessKey, &'static str> {
    let (mut id, mut secret, mut session_token, mut profiles) = (None, None, None, 0);
    for line in text.lines().map(str::trim) {
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if line.starts_with('[') {
            profiles += 1;
            continue;
        }
        let (name, value) = line.split_once('=').ok_or("has a line without `=`")?;
        let value = Some(value.trim().to_owned());
        match name.trim() {
            "aws_access_key_id" => id = value,
            "aws_secret_access_key" => secret = value,
            "aws_session_token" => session_token = value,
            _ => {}
        }
    }
    if profiles > 1 {
        return Err("has more than one profile");
    }
    let id = id.ok_or("has no aws_access_key_id")?;
    let secret = secret.ok_or("has no aws_secret_access_key")?;
    AccessKey::new(id, secret, session_token)
}

/// Provides the credentials for each request.
#[derive(Debug)]
pub(super) struct Credentials {
    source: CredentialSource,
}

impl Credentials {
    pub(super) fn new(source: CredentialSource) -> Credentials {
        Credentials { source }
    }
}

#[async_trait]
impl CredentialProvider for Credentials {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        let source = self.source.clone();
        let read = spawn_blocking(move || source.read()).await;
        let read = read.map_err(|error| object_store::Error::JoinError { source: error })?;
        let key = read.map_err(|message| object_store::Error::Generic {
            store: "S3",
            source: format!("cannot read the credentials: {message}").into(),
        })?;
        Ok(Arc::new(AwsCredential {
            key_id: key.id.expose_secret().to_owned(),
            secret_key: key.secret.expose_secret().to_owned(),
            token: key
                .session_token
                .map(|token| token.expose_secret().to_owned()),
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, Permissions},
        os::unix::fs::PermissionsExt,
    };

    use super::*;

    const FILE: &str = "# Created for berth.\n[default]\nregion = eu-west-1\n\
        aws_access_key_id = AKIDEXAMPLE\naws_secret_access_key=canary/of+the=secret\n";

    #[test]
    fn file_of_one_profile_has_the_access_key() {
        let key = parse(FILE).unwrap();
        assert_eq!(key.id.expose_secret(), "AKIDEXAMPLE");
        assert_eq!(key.secret.expose_secret(), "canary/of+the=secret");
        assert!(key.session_token.is_none());
        let key = parse(&format!("{FILE}aws_session_token = canary-token")).unwrap();
        assert_eq!(key.session_token.unwrap().expose_secret(), "canary-token");
    }

    #[test]
    fn invalid_file_is_an_error_without_its_content() {
        for (text, expected) in [
            ("", "has no aws_access_key_id"),
            ("aws_access_key_id=x", "has no aws_secret_access_key"),
            ("canary", "has a line without `=`"),
            (
                &format!("{FILE}[other]\naws_access_key_id=canary"),
                "has more than one profile",
            ),
            (
                "aws_access_key_id=x\naws_secret_access_key=canary canary",
                "must have values of printable ASCII characters without spaces",
            ),
            (
                "aws_access_key_id=\naws_secret_access_key=canary",
                "must have values of printable ASCII characters without spaces",
            ),
        ] {
            assert_eq!(parse(text).unwrap_err(), expected);
        }
    }

    #[tokio::test]
    async fn changed_file_is_read_for_the_next_request() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("credentials");
        let write = |mode, text: &str| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        };
        write(0o600, FILE);
        let provider = Credentials::new(CredentialSource::File(path.clone()));
        let key = provider.get_credential().await.unwrap();
        assert_eq!(key.key_id, "AKIDEXAMPLE");
        write(0o600, &FILE.replace("AKIDEXAMPLE", "AKIDROTATED"));
        let key = provider.get_credential().await.unwrap();
        assert_eq!(key.key_id, "AKIDROTATED");
        write(0o644, FILE);
        let error = provider.get_credential().await.unwrap_err().to_string();
        assert!(error.contains("chmod 600"), "{error}");
        assert!(!error.contains("canary"), "{error}");
        assert!(!format!("{provider:?}{key:?}").contains("canary"));
    }
}

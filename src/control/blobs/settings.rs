//! The settings of the blob store, and their validated form.

use std::{os::unix::ffi::OsStrExt, path::PathBuf};

use object_store::path::Path as Key;
use url::{Host, Url};

use super::s3::{
    S3Config,
    credentials::{AccessKey, CredentialSource},
};
use crate::loopback::is_loopback;

/// The variables of AWS's clients for an access key.
const ACCESS_KEY_ID: &str = "AWS_ACCESS_KEY_ID";
const SECRET_ACCESS_KEY: &str = "AWS_SECRET_ACCESS_KEY";
const SESSION_TOKEN: &str = "AWS_SESSION_TOKEN";
/// The region of a bucket without a setting.
const DEFAULT_REGION: &str = "us-east-1";
/// The longest region.
const MAX_REGION: usize = 64;
/// The longest prefix of keys in bytes. A key has 1024 at most.
const MAX_PREFIX: usize = 512;

/// The options that select the blob store.
#[derive(Debug, Clone, clap::Args)]
pub struct BlobSettings {
    /// S3-compatible bucket for replays, s3://BUCKET/PREFIX; its access key is in the variables
    /// AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY. Or a directory that several control processes
    /// share, file:///DIRECTORY [default: a directory in the state directory]
    #[arg(long, env = "BERTH_BLOB_STORE", value_name = "URL")]
    pub blob_store: Option<String>,

    /// Base URL of the S3-compatible service [default: that of AWS in the region]
    #[arg(long, env = "BERTH_BLOB_ENDPOINT", value_name = "URL")]
    pub blob_endpoint: Option<String>,

    /// Region of the bucket [default: us-east-1]
    #[arg(long, env = "BERTH_BLOB_REGION", value_name = "NAME")]
    pub blob_region: Option<String>,

    /// Part of the URL that names the bucket [default: path with --blob-endpoint, else host]
    #[arg(long, env = "BERTH_BLOB_ADDRESSING", value_name = "STYLE")]
    pub blob_addressing: Option<Addressing>,

    /// File with the access key in the format of AWS's clients, readable by its owner only
    #[arg(long, env = "BERTH_BLOB_CREDENTIALS_FILE", value_name = "FILE")]
    pub blob_credentials_file: Option<PathBuf>,

    /// Permit an http endpoint on another machine, for a network that you trust
    #[arg(long, env = "BERTH_BLOB_ALLOW_HTTP")]
    pub blob_allow_http: bool,
}

/// The part of a request's URL that names the bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Addressing {
    Path,
    Host,
}

/// The place of the blobs.
#[derive(Debug, Clone)]
pub enum BlobConfig {
    /// A directory in the state directory.
    StateDir,
    /// A directory that several processes may share.
    Shared(PathBuf),
    S3(Box<S3Config>),
}

/// Why the settings of the blob store cannot be used. No message contains a part of a URL that
/// could belong to a password.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum BlobSettingsError {
    #[error("--blob-store must be s3://BUCKET, s3://BUCKET/PREFIX or file:///DIRECTORY")]
    Store,
    #[error(
        "--blob-store: the bucket must be 3 to 63 lower-case letters, digits, `.` or `-`, and begin and end with a letter or digit"
    )]
    Bucket,
    #[error(
        "--blob-store: the prefix must be segments of letters, digits, `.`, `_` or `-`, at most {MAX_PREFIX} bytes"
    )]
    Prefix,
    #[error("--blob-endpoint must be an http or https URL without user, path, query and fragment")]
    Endpoint,
    #[error(
        "--blob-endpoint must be https, because {host} is another machine; on a network that you trust, set --blob-allow-http"
    )]
    Http { host: String },
    #[error("--blob-region must be 1 to {MAX_REGION} letters, digits or `-`")]
    Region,
    #[error("--blob-addressing host needs an endpoint with a host name")]
    Addressing,
    #[error("--blob-credentials-file: {0}")]
    File(String),
    #[error("{ACCESS_KEY_ID}, {SECRET_ACCESS_KEY} and {SESSION_TOKEN} {0}")]
    Variables(&'static str),
    #[error(
        "the bucket needs an access key: set {ACCESS_KEY_ID} and {SECRET_ACCESS_KEY}, or --blob-credentials-file"
    )]
    NoAccessKey,
    #[error("--{0} needs a bucket as --blob-store")]
    NoStore(&'static str),
}

impl BlobSettings {
    /// Validates the settings without connecting.
    pub fn check(&self) -> Result<BlobConfig, BlobSettingsError> {
        let directory = match &self.blob_store {
            None => BlobConfig::StateDir,
            Some(store) => match store.strip_prefix("s3://") {
                Some(place) => return self.check_bucket(place),
                None => BlobConfig::Shared(parse_directory(store)?),
            },
        };
        match self.first_of_bucket() {
            Some(option) => Err(BlobSettingsError::NoStore(option)),
            None => Ok(directory),
        }
    }

    fn check_bucket(&self, place: &str) -> Result<BlobConfig, BlobSettingsError> {
        let (bucket, prefix) = parse_bucket(place)?;
        let region = self.blob_region.as_deref().unwrap_or(DEFAULT_REGION);
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        if region.is_empty() || region.len() > MAX_REGION || !region.bytes().all(is_part) {
            return Err(BlobSettingsError::Region);
        }
        let mut endpoint = self.endpoint()?;
        let default = match endpoint {
            // A certificate for all buckets has no name with a further dot.
            None if !bucket.contains('.') => Addressing::Host,
            _ => Addressing::Path,
        };
        let is_virtual_hosted = self.blob_addressing.unwrap_or(default) == Addressing::Host;
        if let (Some(url), true) = (&mut endpoint, is_virtual_hosted) {
            let Some(Host::Domain(host)) = url.host() else {
                return Err(BlobSettingsError::Addressing);
            };
            let host = format!("{bucket}.{host}");
            url.set_host(Some(&host))
                .map_err(|_| BlobSettingsError::Addressing)?;
        }
        Ok(BlobConfig::S3(Box::new(S3Config {
            bucket,
            prefix,
            endpoint,
            region: region.to_owned(),
            is_virtual_hosted,
            credentials: self.credentials()?,
        })))
    }

    /// Returns the first option that only a bucket has.
    fn first_of_bucket(&self) -> Option<&'static str> {
        [
            ("blob-endpoint", self.blob_endpoint.is_some()),
            ("blob-region", self.blob_region.is_some()),
            ("blob-addressing", self.blob_addressing.is_some()),
            (
                "blob-credentials-file",
                self.blob_credentials_file.is_some(),
            ),
            ("blob-allow-http", self.blob_allow_http),
        ]
        .into_iter()
        .find_map(|(option, is_set)| is_set.then_some(option))
    }

    fn endpoint(&self) -> Result<Option<Url>, BlobSettingsError> {
        let Some(text) = &self.blob_endpoint else {
            return Ok(None);
        };
        let url = Url::parse(text).map_err(|_| BlobSettingsError::Endpoint)?;
        let is_bare = url.username().is_empty()
            && url.password().is_none()
            && url.path() == "/"
            && url.query().is_none()
            && url.fragment().is_none();
        if !is_bare || !matches!(url.scheme(), "http" | "https") {
            return Err(BlobSettingsError::Endpoint);
        }
        if url.scheme() == "http" && !self.blob_allow_http && !is_loopback(&url) {
            let host = url.host_str().unwrap_or_default().to_owned();
            return Err(BlobSettingsError::Http { host });
        }
        Ok(Some(url))
    }

    /// Returns where the access key is. The file takes precedence over the variables.
    #[expect(
        clippy::disallowed_methods,
        reason = "an option would show the key in the list of processes"
    )]
    fn credentials(&self) -> Result<CredentialSource, BlobSettingsError> {
        if let Some(path) = &self.blob_credentials_file {
            let path = std::path::absolute(path);
            let path = path.map_err(|error| BlobSettingsError::File(error.to_string()))?;
            let source = CredentialSource::File(path);
            source.read().map_err(BlobSettingsError::File)?;
            return Ok(source);
        }
        let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let key = (variable(ACCESS_KEY_ID), variable(SECRET_ACCESS_KEY));
        let (Some(id), Some(secret)) = key else {
            return Err(BlobSettingsError::NoAccessKey);
        };
        let key = AccessKey::new(id, secret, variable(SESSION_TOKEN));
        key.map(CredentialSource::Variables)
            .map_err(BlobSettingsError::Variables)
    }
}

/// Parses `file:///DIRECTORY`.
fn parse_directory(text: &str) -> Result<PathBuf, BlobSettingsError> {
    // A relative path would be taken for an absolute one.
    if !text.starts_with("file:///") {
        return Err(BlobSettingsError::Store);
    }
    let url = Url::parse(text).map_err(|_| BlobSettingsError::Store)?;
    let path = url.to_file_path().map_err(|()| BlobSettingsError::Store)?;
    let is_bare = url.query().is_none() && url.fragment().is_none();
    let is_usable = path.parent().is_some() && !path.as_os_str().as_bytes().contains(&0);
    match is_bare && is_usable {
        true => Ok(path),
        false => Err(BlobSettingsError::Store),
    }
}

/// Parses `BUCKET/PREFIX`.
fn parse_bucket(place: &str) -> Result<(String, Key), BlobSettingsError> {
    let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
    let is_alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_part = |byte: u8| is_alphanumeric(byte) || matches!(byte, b'.' | b'-');
    let has_valid_ends = [bucket.bytes().next(), bucket.bytes().last()]
        .into_iter()
        .all(|end| end.is_some_and(is_alphanumeric));
    if !(3..=63).contains(&bucket.len()) || !bucket.bytes().all(is_part) || !has_valid_ends {
        return Err(BlobSettingsError::Bucket);
    }
    let prefix = prefix.trim_end_matches('/');
    let is_segment = |segment: &str| {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        !matches!(segment, "" | "." | "..") && segment.bytes().all(is_part)
    };
    if prefix.len() > MAX_PREFIX || !(prefix.is_empty() || prefix.split('/').all(is_segment)) {
        return Err(BlobSettingsError::Prefix);
    }
    Ok((bucket.to_owned(), Key::from(prefix)))
}

#[cfg(test)]
mod tests;

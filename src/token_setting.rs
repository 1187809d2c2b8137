//! Secrets among the settings: read from a file or a variable, and checked. They are never options,
//! which every user of the machine can read.

use std::{fs, io, os::unix::fs::PermissionsExt, path::Path};

use secrecy::{ExposeSecret, SecretString};

/// The least length of a token in bytes. Shorter tokens can be guessed.
const MIN_BYTES: usize = 16;
/// The largest length of a token in bytes.
const MAX_BYTES: usize = 1024;
/// The largest size of a file with a secret in bytes.
const MAX_FILE_BYTES: u64 = 4096;

/// The bits of the mode of a file that others than its owner must not have.
const OTHERS: u32 = 0o077;
/// The same for a credential of systemd, which may let the user of the service read the file by an
/// access control list. `stat` returns the mask of the list as the bits of the group.
const OTHERS_OF_CREDENTIAL: u32 = 0o027;
/// The directory of the credentials of all units.
const CREDENTIALS: &str = "/run/credentials";

/// A secret, and the file or the variable that it comes from.
pub(crate) type Sourced = (SecretString, String);

/// The directory with the credentials of the systemd unit, if it has any, and the name of one.
pub(crate) type UnitCredential<'a> = (Option<&'a Path>, &'a str);

/// Reads the token from its file, or else from the value of a variable. Returns `None` if there is
/// neither.
///
/// # Errors
/// Returns a message if the file is not private, or the token too short, too long or unprintable.
pub(crate) fn read(
    file: Option<&Path>,
    variable: (&str, Option<String>),
) -> Result<Option<SecretString>, String> {
    check_token(read_secret(file, variable)?)
}

/// Reads the token like [`read`]. A credential of systemd takes precedence over the variable.
///
/// # Errors
/// Returns a message as [`read`] does.
pub(crate) fn read_with_credential(
    file: Option<&Path>,
    credential: UnitCredential<'_>,
    variable: (&str, Option<String>),
) -> Result<Option<SecretString>, String> {
    check_token(read_secret_with_credential(file, credential, variable)?)
}

fn check_token(read: Option<Sourced>) -> Result<Option<SecretString>, String> {
    let Some((token, source)) = read else {
        return Ok(None);
    };
    let content = token.expose_secret();
    if !(MIN_BYTES..=MAX_BYTES).contains(&content.len())
        || !content.bytes().all(|byte| byte.is_ascii_graphic())
    {
        return Err(format!(
            "the token in {source} must be {MIN_BYTES} to {MAX_BYTES} printable ASCII characters without spaces"
        ));
    }
    Ok(Some(token))
}

/// Reads a secret from its file, or else from the value of a variable. Returns `None` if there is
/// neither.
///
/// # Errors
/// Returns a message if the file is not private.
pub(crate) fn read_secret(
    file: Option<&Path>,
    (variable, value): (&str, Option<String>),
) -> Result<Option<Sourced>, String> {
    Ok(match file {
        Some(file) => Some((read_file(file, denied(file))?, file.display().to_string())),
        None => value.map(|value| (SecretString::from(value), variable.to_owned())),
    })
}

/// Reads a secret like [`read_secret`]. A credential of systemd takes precedence over the variable.
///
/// # Errors
/// Returns a message if the file is not private, or cannot be read.
pub(crate) fn read_secret_with_credential(
    file: Option<&Path>,
    (directory, name): UnitCredential<'_>,
    variable: (&str, Option<String>),
) -> Result<Option<Sourced>, String> {
    if let (None, Some(directory)) = (file, directory)
        && let Some(credential) = read_credential(directory, name)?
    {
        return Ok(Some(credential));
    }
    read_secret(file, variable)
}

/// Reads a credential of systemd from the directory of the unit's. Returns `None` if it has none of
/// that name.
///
/// # Errors
/// Returns a message if the file is not private, or cannot be read.
fn read_credential(directory: &Path, name: &str) -> Result<Option<Sourced>, String> {
    let file = directory.join(name);
    let path = file.display().to_string();
    match file.try_exists() {
        Ok(true) => Ok(Some((read_file(&file, OTHERS_OF_CREDENTIAL)?, path))),
        Ok(false) => Ok(None),
        Err(error) => Err(format!("{path}: {error}")),
    }
}

/// Returns the bits that the mode of a file must not have.
fn denied(file: &Path) -> u32 {
    match file.starts_with(CREDENTIALS) {
        true => OTHERS_OF_CREDENTIAL,
        false => OTHERS,
    }
}

/// Reads a file whose mode has none of the bits of `denied`.
fn read_file(file: &Path, denied: u32) -> Result<SecretString, String> {
    let path = file.display();
    let describe = |error: io::Error| format!("{path}: {error}");
    let metadata = fs::metadata(file).map_err(describe)?;
    if !metadata.is_file() || metadata.len() > MAX_FILE_BYTES {
        return Err(format!("{path} is not a small file"));
    }
    if metadata.permissions().mode() & denied != 0 {
        return Err(format!("{path} can be read by others: chmod 600 it"));
    }
    let content = SecretString::from(fs::read_to_string(file).map_err(describe)?);
    Ok(SecretString::from(content.expose_secret().trim()))
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;

    use super::*;

    #[test]
    fn token_is_read_from_a_private_file_or_the_variable() {
        const NAME: &str = "TOKEN";
        let read = |file: Option<&Path>, value: Option<&str>| {
            let token = read(file, (NAME, value.map(str::to_owned)))?;
            Ok::<_, String>(token.map(|token| token.expose_secret().to_owned()))
        };
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        fs::write(&file, "a-token-in-a-file\n").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        let variable = Some("a-token-in-a-variable");
        assert_eq!(read(None, None), Ok(None));
        assert_eq!(read(None, variable), Ok(variable.map(str::to_owned)));
        let from_file = Ok(Some("a-token-in-a-file".to_owned()));
        assert_eq!(read(Some(&file), variable), from_file);

        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        assert!(read(Some(&file), None).unwrap_err().contains("chmod 600"));
        for unusable in ["", "fifteen-letters", "sixteen letters!", &"x".repeat(1025)] {
            let error = read(None, Some(unusable)).unwrap_err();
            assert!(error.contains("in TOKEN must be 16 to 1024"), "{error}");
        }
    }

    #[test]
    fn file_precedes_the_credential_and_that_the_variable() {
        let directory = tempfile::tempdir().unwrap();
        let read = |file: Option<&Path>, directory: Option<&Path>| {
            let variable = ("TOKEN", Some("a-token-in-a-variable".to_owned()));
            let read = read_with_credential(file, (directory, "credential"), variable).unwrap();
            read.unwrap().expose_secret().to_owned()
        };
        let file = directory.path().join("file");
        for path in [&file, &directory.path().join("credential")] {
            let name = path.file_name().unwrap().to_str().unwrap();
            fs::write(path, format!("a-token-in-a-{name}\n")).unwrap();
            fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
        }
        let unit = Some(directory.path());
        assert_eq!(read(Some(&file), unit), "a-token-in-a-file");
        assert_eq!(read(None, unit), "a-token-in-a-credential");
        assert_eq!(
            read(None, Some(Path::new("/nonexistent"))),
            "a-token-in-a-variable"
        );
        assert_eq!(read(None, None), "a-token-in-a-variable");
    }

    #[test]
    fn credential_of_systemd_may_have_an_access_control_list() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("key");
        let read = || {
            let read = read_credential(directory.path(), "key")?;
            Ok::<_, String>(read.map(|(key, _)| key.expose_secret().to_owned()))
        };
        assert_eq!(read(), Ok(None));
        fs::write(&file, "the key\n").unwrap();
        for mode in [0o400, 0o440, 0o600] {
            fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
            assert_eq!(read(), Ok(Some("the key".to_owned())), "{mode:o}");
        }
        for mode in [0o444, 0o660, 0o404] {
            fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
            let error = read().unwrap_err();
            assert!(error.contains("can be read by others"), "{mode:o}: {error}");
        }
        // A directory that cannot be searched, as another user's.
        let inner = read_credential(&file, "key").unwrap_err();
        assert!(inner.contains("Not a directory"), "{inner}");
    }
}

//! The bearer token: read from its file or variable, and checked.

use std::{fs, io, os::unix::fs::PermissionsExt, path::Path};

use secrecy::{ExposeSecret, SecretString};

pub(super) const VARIABLE: &str = "BERTH_AGENT_TOKEN";
/// The least length in bytes. Shorter tokens can be guessed.
const MIN_BYTES: usize = 16;
const MAX_BYTES: usize = 1024;

/// Reads the token from its file, or from [`VARIABLE`]. Returns `None` if there is neither.
pub(super) fn read(file: Option<&Path>) -> Result<Option<SecretString>, String> {
    let (token, source) = match file {
        Some(file) => (Some(read_file(file)?), file.display().to_string()),
        None => (read_variable(), VARIABLE.to_owned()),
    };
    let Some(token) = token else { return Ok(None) };
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

#[expect(
    clippy::disallowed_methods,
    reason = "an option would show the token in the list of processes"
)]
fn read_variable() -> Option<SecretString> {
    std::env::var(VARIABLE).ok().map(SecretString::from)
}

fn read_file(file: &Path) -> Result<SecretString, String> {
    let path = file.display();
    let describe = |error: io::Error| format!("{path}: {error}");
    let metadata = fs::metadata(file).map_err(describe)?;
    if !metadata.is_file() || metadata.len() > 2 * MAX_BYTES as u64 {
        return Err(format!("{path} is not a small file"));
    }
    if metadata.permissions().mode() & 0o077 != 0 {
        return Err(format!("{path} can be read by others: chmod 600 it"));
    }
    let content = SecretString::from(fs::read_to_string(file).map_err(describe)?);
    Ok(SecretString::from(content.expose_secret().trim()))
}

//! The id of the machine, which programs read.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    path::Path,
};

const MACHINE_ID: &str = "/etc/machine-id";

/// Gives the machine a new id. Programs that run already may have the earlier one.
///
/// # Errors
/// Fails if the file cannot be written.
pub fn renew() -> io::Result<()> {
    write(
        Path::new(MACHINE_ID),
        &uuid::Uuid::new_v4().simple().to_string(),
    )
}

/// Writes the id in place: the file may be a mount.
fn write(path: &Path, id: &str) -> io::Result<()> {
    let mut file: File = OpenOptions::new().write(true).truncate(true).open(path)?;
    writeln!(file, "{id}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_replaces_the_earlier_one() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for id in ["a longer id", "an id"] {
            write(file.path(), id).unwrap();
            let text = std::fs::read_to_string(file.path()).unwrap();
            assert_eq!(text, format!("{id}\n"));
        }
        assert!(write(Path::new("/nowhere/id"), "an id").is_err());
    }
}

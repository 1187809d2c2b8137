//! The report of an import.

use std::{
    fmt::{self, Display, Formatter},
    path::PathBuf,
};

use super::NotImported;
use crate::control::profiles::inspection::Inspection;

/// The place of the archive.
#[derive(Debug)]
pub(super) enum Stored {
    File(PathBuf),
    Profile { name: String, version: Option<u64> },
}

/// A profile that was imported.
#[derive(Debug)]
pub struct Imported {
    pub(super) stored: Stored,
    pub(super) bytes: u64,
    pub(super) inspection: Inspection,
    pub(super) not_imported: NotImported,
}

impl Display for Imported {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let bytes = self.bytes;
        match &self.stored {
            Stored::File(path) => writeln!(out, "wrote {} ({bytes} bytes)", path.display())?,
            Stored::Profile { name, version } => {
                write!(out, "imported profile {name}")?;
                if let Some(version) = version {
                    write!(out, ", version {version}")?;
                }
                writeln!(out, " ({bytes} bytes)")?;
            }
        }
        let Inspection {
            cookies,
            origins,
            skipped,
            ..
        } = &self.inspection;
        let total: u64 = cookies.values().sum();
        writeln!(out, "cookies: {total}")?;
        for (domain, count) in cookies {
            writeln!(out, "  {}: {count}", domain.escape_debug())?;
        }
        writeln!(out, "origins with stored data: {}", origins.len())?;
        for origin in origins {
            writeln!(out, "  {}", origin.escape_debug())?;
        }
        write!(out, "not imported:")?;
        for line in self.not_imported.lines().iter().chain(skipped) {
            write!(out, "\n  {line}")?;
        }
        Ok(())
    }
}

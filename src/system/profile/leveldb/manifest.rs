//! Manifests: which files a database consists of.

use std::collections::BTreeSet;

use super::{Damage, Slice, log::read_records};

const COMPARATOR: &[u8] = b"leveldb.BytewiseComparator";
/// The limit on files of a database.
const MAX_FILES: usize = 100_000;

/// The fields of an edit.
const COMPARATOR_NAME: u64 = 1;
const LOG_NUMBER: u64 = 2;
const NEXT_FILE_NUMBER: u64 = 3;
const LAST_SEQUENCE: u64 = 4;
const COMPACT_POINTER: u64 = 5;
const DELETED_FILE: u64 = 6;
const NEW_FILE: u64 = 7;
const PREVIOUS_LOG_NUMBER: u64 = 9;

#[derive(Debug, Default)]
pub(super) struct Manifest {
    /// Whether keys are in the order of their bytes.
    pub(super) is_bytewise: bool,
    pub(super) tables: BTreeSet<u64>,
    log_number: u64,
    previous_log_number: u64,
}

impl Manifest {
    /// Returns whether the database still uses a log. The others are copied to tables, and may not
    /// have been deleted yet.
    pub(super) fn uses_log(&self, number: u64) -> bool {
        number >= self.log_number || number == self.previous_log_number
    }

    fn apply(&mut self, edit: &[u8]) -> Result<(), Damage> {
        let mut rest = Slice(edit);
        // A file that moves to another level is deleted and added in one edit.
        let (mut added, mut deleted) = (Vec::new(), Vec::new());
        while !rest.is_empty() {
            match rest.varint()? {
                COMPARATOR_NAME => self.is_bytewise = rest.string()? == COMPARATOR,
                LOG_NUMBER => self.log_number = rest.varint()?,
                PREVIOUS_LOG_NUMBER => self.previous_log_number = rest.varint()?,
                NEXT_FILE_NUMBER | LAST_SEQUENCE => drop(rest.varint()?),
                COMPACT_POINTER => {
                    rest.varint()?;
                    rest.string()?;
                }
                DELETED_FILE => {
                    rest.varint()?;
                    deleted.push(rest.varint()?);
                }
                NEW_FILE => {
                    rest.varint()?;
                    added.push(rest.varint()?);
                    rest.varint()?;
                    rest.string()?;
                    rest.string()?;
                }
                _ => return Err("has an unknown field"),
            }
        }
        for number in deleted {
            self.tables.remove(&number);
        }
        self.tables.extend(added);
        match self.tables.len() > MAX_FILES {
            true => Err("names too many files"),
            false => Ok(()),
        }
    }
}

pub(super) fn read(content: &[u8]) -> Result<Manifest, Damage> {
    let mut manifest = Manifest::default();
    read_records(content, |edit| manifest.apply(edit))?;
    Ok(manifest)
}

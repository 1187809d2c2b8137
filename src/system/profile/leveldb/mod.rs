//! Reading the keys of a LevelDB database from copies of its files.
//!
//! The files are untrusted: each is checked and read on its own, within bounds, and nothing is
//! written. A database is the tables and logs that its manifest names:
//!
//! ```text
//! CURRENT ─► MANIFEST-000001 ─┬─► 000005.ldb   sorted keys, in compressed blocks
//!                             └─► 000007.log   the latest changes
//! ```

use std::collections::{BTreeMap, BTreeSet, HashMap};

#[cfg(test)]
mod fuzz;
mod log;
mod manifest;
mod table;
#[cfg(test)]
pub(crate) mod writer;

use super::coding::{Damage, Slice};
use manifest::Manifest;

/// The limit on the keys that are held for one database, in bytes.
const MAX_KEY_BYTES: usize = 4 << 20;
/// The limit on the keys that are looked up in one file, in bytes. The form of a table allows many
/// long keys in few bytes.
const MAX_ADDED_BYTES: usize = 256 << 20;
/// The limit on the manifests that are held for one database, in bytes.
const MAX_MANIFEST_BYTES: usize = 4 << 20;
/// The memory that is counted for a key besides its bytes.
const KEY_OVERHEAD: usize = 48;

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum LevelDbError {
    #[error("{0} is damaged: {1}")]
    Damaged(String, &'static str),
    #[error("{0} is missing")]
    Missing(String),
    #[error("has an unknown order of keys")]
    UnknownOrder,
    #[error("has more than {MAX_KEY_BYTES} bytes of keys")]
    TooManyKeys,
    #[error("has manifests of more than {MAX_MANIFEST_BYTES} bytes")]
    LargeManifest,
}

/// The latest change of a key in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Change {
    sequence: u64,
    is_deletion: bool,
}

/// The keys of a file with the searched prefixes.
#[derive(Debug, Default)]
struct Changes {
    keys: HashMap<Vec<u8>, Change>,
    bytes: usize,
    /// The length of all keys that were added, including known ones.
    added_bytes: usize,
}

impl Changes {
    fn add(&mut self, key: &[u8], change: Change) -> Result<(), Damage> {
        self.added_bytes += key.len();
        if self.added_bytes > MAX_ADDED_BYTES {
            return Err("has too many keys");
        }
        if let Some(known) = self.keys.get_mut(key) {
            if known.sequence <= change.sequence {
                *known = change;
            }
            return Ok(());
        }
        self.bytes += key.len() + KEY_OVERHEAD;
        if self.bytes > MAX_KEY_BYTES {
            return Err("has too many keys");
        }
        self.keys.insert(key.to_vec(), change);
        Ok(())
    }
}

/// A collector of the files of one database, which are added in any order. It keeps only keys with
/// one of the prefixes, and no values.
#[derive(Debug)]
pub struct LevelDbKeys {
    prefixes: &'static [&'static [u8]],
    tables: BTreeMap<u64, Result<Changes, LevelDbError>>,
    logs: BTreeMap<u64, Result<Changes, LevelDbError>>,
    key_bytes: usize,
    current: Option<Vec<u8>>,
    manifests: BTreeMap<String, Vec<u8>>,
    manifest_bytes: usize,
}

impl LevelDbKeys {
    #[must_use]
    pub fn new(prefixes: &'static [&'static [u8]]) -> Self {
        LevelDbKeys {
            prefixes,
            tables: BTreeMap::new(),
            logs: BTreeMap::new(),
            key_bytes: 0,
            current: None,
            manifests: BTreeMap::new(),
            manifest_bytes: 0,
        }
    }

    /// Returns whether a file of this name belongs to a database.
    #[must_use]
    pub fn is_part(name: &str) -> bool {
        name == "CURRENT" || name.starts_with("MANIFEST-") || file_number(name).is_some()
    }

    /// Returns the memory that the keys and manifests take, in bytes.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.key_bytes + self.manifest_bytes
    }

    /// Adds a file of the database. Damage to a file matters only if the database still uses it.
    ///
    /// # Errors
    /// If the database exceeds a bound.
    pub fn add_file(&mut self, name: &str, content: &[u8]) -> Result<(), LevelDbError> {
        if name == "CURRENT" {
            self.current = Some(content.iter().take(256).copied().collect());
        } else if name.starts_with("MANIFEST-") {
            self.manifest_bytes += content.len();
            if self.manifest_bytes > MAX_MANIFEST_BYTES {
                return Err(LevelDbError::LargeManifest);
            }
            self.manifests.insert(name.to_owned(), content.to_vec());
        } else if let Some((number, kind)) = file_number(name) {
            let read = match kind {
                FileKind::Table => table::read(content, self.prefixes),
                FileKind::Log => log::read_changes(content, self.prefixes),
            };
            let read = read.map_err(|damage| LevelDbError::Damaged(name.to_owned(), damage));
            self.key_bytes += read.as_ref().map_or(0, |changes| changes.bytes);
            if self.key_bytes > MAX_KEY_BYTES {
                return Err(LevelDbError::TooManyKeys);
            }
            let files = match kind {
                FileKind::Table => &mut self.tables,
                FileKind::Log => &mut self.logs,
            };
            files.insert(number, read);
        }
        Ok(())
    }

    /// Returns the keys that the database has.
    ///
    /// # Errors
    /// If a file of the database is missing or damaged.
    pub fn finish(mut self) -> Result<BTreeSet<Vec<u8>>, LevelDbError> {
        let manifest = self.read_manifest()?;
        let mut latest = Changes::default();
        for number in &manifest.tables {
            let missing = || LevelDbError::Missing(format!("{number:06}.ldb"));
            merge(
                &mut latest,
                self.tables.remove(number).ok_or_else(missing)??,
            )?;
        }
        let used = self
            .logs
            .into_iter()
            .filter(|(number, _)| manifest.uses_log(*number));
        for (_, changes) in used {
            merge(&mut latest, changes?)?;
        }
        let present = latest
            .keys
            .into_iter()
            .filter(|(_, change)| !change.is_deletion);
        Ok(present.map(|(key, _)| key).collect())
    }

    fn read_manifest(&self) -> Result<Manifest, LevelDbError> {
        let missing = |name: &str| LevelDbError::Missing(name.to_owned());
        let current = self.current.as_ref().ok_or_else(|| missing("CURRENT"))?;
        let damaged = |damage| LevelDbError::Damaged("CURRENT".to_owned(), damage);
        let name = std::str::from_utf8(current)
            .map_err(|_| damaged("names no manifest"))?
            .trim_end_matches('\n');
        if !name.starts_with("MANIFEST-") {
            return Err(damaged("names no manifest"));
        }
        let content = self.manifests.get(name).ok_or_else(|| missing(name))?;
        let manifest = manifest::read(content)
            .map_err(|damage| LevelDbError::Damaged(name.to_owned(), damage))?;
        match manifest.is_bytewise {
            true => Ok(manifest),
            false => Err(LevelDbError::UnknownOrder),
        }
    }
}

fn merge(into: &mut Changes, changes: Changes) -> Result<(), LevelDbError> {
    for (key, change) in changes.keys {
        into.add(&key, change)
            .map_err(|_| LevelDbError::TooManyKeys)?;
    }
    Ok(())
}

#[derive(Debug, Clone, Copy)]
enum FileKind {
    Table,
    Log,
}

/// Returns the number in the name of a table or log.
fn file_number(name: &str) -> Option<(u64, FileKind)> {
    let (number, extension) = name.split_once('.')?;
    let kind = match extension {
        "ldb" | "sst" => FileKind::Table,
        "log" => FileKind::Log,
        _ => return None,
    };
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    is_number
        .then(|| number.parse().ok())?
        .map(|number| (number, kind))
}

/// Splits the key of a table or log entry into the user's key and the change.
fn parse_internal_key(key: &[u8]) -> Result<(&[u8], Change), Damage> {
    let (key, tag) = key
        .split_last_chunk::<8>()
        .ok_or("has a key that is too short")?;
    let tag = u64::from_le_bytes(*tag);
    let change = Change {
        sequence: tag >> 8,
        is_deletion: match tag & 0xff {
            0 => true,
            1 => false,
            _ => return Err("has a key of an unknown type"),
        },
    };
    Ok((key, change))
}

fn has_prefix(key: &[u8], prefixes: &[&[u8]]) -> bool {
    prefixes.iter().any(|prefix| key.starts_with(prefix))
}

/// Returns the masked CRC-32C that LevelDB stores.
fn masked_checksum(parts: &[&[u8]]) -> u32 {
    static CRC_32C: crc::Crc<u32, crc::Table<16>> =
        crc::Crc::<u32, crc::Table<16>>::new(&crc::CRC_32_ISCSI);
    let mut digest = CRC_32C.digest();
    for part in parts {
        digest.update(part);
    }
    digest.finalize().rotate_right(15).wrapping_add(0xa282_ead8)
}

//! The content of an archive, collected while it is read.

use std::{
    collections::BTreeSet,
    io::{self, Read},
    path::Path,
};

use serde::Deserialize;

use super::{
    Inspection, Skipped,
    databases::Databases,
    place::{self, Place},
    storages::Storages,
};
use crate::system::{
    files::archive::unpack::EntryVisitor,
    profile::{cache_index, leveldb::LevelDbKeys},
};

/// The limit on a file of a LevelDB database in bytes. Chromium's are of a few MiB.
const MAX_LEVELDB_FILE_BYTES: u64 = 64 << 20;
/// The limit on the index of a cache storage, and on the list of skipped entries, in bytes.
const MAX_INDEX_BYTES: u64 = 16 << 20;
/// The limit on the file with the version in bytes.
const MAX_VERSION_BYTES: u64 = 64;
/// The limit on the profiles in an archive that are read. Each has memory and files of its own.
const MAX_PROFILES: usize = 32;

/// A collector of the content.
pub(super) struct Contents {
    pub(super) is_user_data: bool,
    pub(super) last_version: Option<String>,
    databases: Databases,
    storages: Storages,
    profiles: BTreeSet<String>,
    /// The list of skipped entries, if the last entry is one.
    skipped_list: Option<Vec<u8>>,
    skipped: Skipped,
    /// The kinds of storage that are not read.
    unread: BTreeSet<String>,
}

/// The list that the archive's writer adds.
#[derive(Deserialize)]
struct SkippedList {
    skipped: Vec<SkippedEntry>,
    #[serde(default)]
    more: u64,
}

#[derive(Deserialize)]
struct SkippedEntry {
    path: String,
    reason: String,
}

impl Contents {
    pub(super) fn new(work: &Path) -> io::Result<Self> {
        Ok(Contents {
            is_user_data: false,
            last_version: None,
            databases: Databases::new(work)?,
            storages: Storages::default(),
            profiles: BTreeSet::new(),
            skipped_list: None,
            skipped: Skipped::default(),
            unread: BTreeSet::new(),
        })
    }
}

impl Contents {
    /// Completes the inspection with what was found.
    pub(super) fn finish(mut self, inspection: &mut Inspection) {
        self.add_skipped_list();
        inspection.cookies = self.databases.count_cookies(&mut self.skipped);
        let buckets = self.databases.bucket_storage_keys(&mut self.skipped);
        inspection.origins = self.storages.finish(&buckets, &mut self.skipped);
        for kind in &self.unread {
            self.skipped.add(kind, "is not read");
        }
        inspection.skipped = self.skipped.into_list();
    }

    fn add_skipped_list(&mut self) {
        let Some(list) = self.skipped_list.take() else {
            return;
        };
        match serde_json::from_slice::<SkippedList>(&list) {
            Ok(list) => {
                for entry in &list.skipped {
                    self.skipped.add(&entry.path, entry.reason.escape_debug());
                }
                self.skipped.add_unlisted(list.more);
            }
            Err(_) => self
                .skipped
                .add("the list of skipped entries", "is malformed"),
        }
    }

    /// Returns whether a profile is one of those that are read.
    fn has_profile(&mut self, profile: &str) -> bool {
        if self.profiles.contains(profile) {
            return true;
        }
        if self.profiles.len() == MAX_PROFILES {
            let kind = format!("profiles after the first {MAX_PROFILES}");
            self.unread.insert(kind);
            return false;
        }
        self.profiles.insert(profile.to_owned());
        true
    }

    fn visit(&mut self, place: Place<'_>, name: &str, content: &mut dyn Read) -> io::Result<()> {
        match place {
            Place::LastVersion => {
                let version = read_up_to(MAX_VERSION_BYTES, content)?.unwrap_or_default();
                let version = String::from_utf8_lossy(&version);
                self.last_version = Some(version.trim_end().to_owned());
            }
            Place::Marker => self.is_user_data = true,
            Place::SkippedList => self.skipped_list = read_up_to(MAX_INDEX_BYTES, content)?,
            Place::Database {
                profile,
                kind,
                suffix,
            } => {
                if self.has_profile(profile) {
                    self.databases.copy(profile, kind, suffix, content)?;
                }
            }
            Place::LevelDb {
                profile,
                kind,
                file,
            } => {
                if !LevelDbKeys::is_part(file) || !self.has_profile(profile) {
                    return Ok(());
                }
                match read_up_to(MAX_LEVELDB_FILE_BYTES, content)? {
                    Some(content) => self.storages.add_file(profile, kind, file, &content),
                    None => {
                        let reason =
                            format!("{file} is larger than {MAX_LEVELDB_FILE_BYTES} bytes");
                        self.storages.mark_unreadable(profile, kind, reason);
                    }
                }
            }
            Place::OriginDirectory { identifier } => self.storages.add_identifier(identifier, name),
            Place::CacheIndex => {
                let index = read_up_to(MAX_INDEX_BYTES, content)?.unwrap_or_default();
                let key = cache_index::storage_key(&index).unwrap_or_default();
                self.storages.add_storage_key(&key, name);
            }
            Place::Bucket { profile, id } => self.storages.add_bucket(profile, id),
            Place::Unread(kind) => drop(self.unread.insert(kind.to_owned())),
            Place::Other => {}
        }
        Ok(())
    }
}

impl EntryVisitor for Contents {
    fn visit_file(&mut self, path: &Path, content: &mut dyn Read) -> io::Result<()> {
        self.skipped_list = None;
        self.visit(place::of(path), &path.to_string_lossy(), content)
    }

    fn visit_link(&mut self, path: &Path) {
        self.skipped_list = None;
        let reason = "is a link, which is not followed";
        match place::of(path) {
            Place::Database { profile, kind, .. } => {
                self.databases
                    .mark_unusable(profile, kind, reason.to_owned());
            }
            Place::LevelDb { profile, kind, .. } => {
                let reason = reason.to_owned();
                self.storages.mark_unreadable(profile, kind, reason);
            }
            Place::Other | Place::Marker => {}
            _ => self.skipped.add(&path.to_string_lossy(), reason),
        }
    }
}

/// Returns the content, or `None` if it is longer.
fn read_up_to(limit: u64, content: &mut dyn Read) -> io::Result<Option<Vec<u8>>> {
    let mut read = Vec::new();
    content.take(limit + 1).read_to_end(&mut read)?;
    Ok((read.len() as u64 <= limit).then_some(read))
}

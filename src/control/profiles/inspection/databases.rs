//! The SQLite databases of an archive, which are copied to temporary files and queried.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use tempfile::TempDir;

use super::{Skipped, place::DatabaseKind};
use crate::system::profile::database::{self, DatabaseError};

/// The limit on a database, and on each of the files that complete it, in bytes.
const MAX_FILE_BYTES: u64 = 256 << 20;
/// The limit on all of them in bytes.
const MAX_TOTAL_BYTES: u64 = 1 << 30;

/// A database: its profile and kind.
type Key = (String, DatabaseKind);

/// The databases that were copied.
pub(super) struct Databases {
    directory: TempDir,
    /// The number of the copy of each database.
    copies: BTreeMap<Key, usize>,
    /// The databases that cannot be queried, with the reason.
    unusable: BTreeMap<Key, String>,
    bytes: u64,
}

impl Databases {
    pub(super) fn new(work: &Path) -> io::Result<Self> {
        Ok(Databases {
            directory: TempDir::with_prefix_in("inspection-", work)?,
            copies: BTreeMap::new(),
            unusable: BTreeMap::new(),
            bytes: 0,
        })
    }

    /// Copies a database, or a file that completes it.
    pub(super) fn copy(
        &mut self,
        profile: &str,
        kind: DatabaseKind,
        suffix: &str,
        content: &mut dyn Read,
    ) -> io::Result<()> {
        let key = (profile.to_owned(), kind);
        let number = self.copies.len();
        let number = *self.copies.entry(key.clone()).or_insert(number);
        let limit = MAX_FILE_BYTES.min(MAX_TOTAL_BYTES - self.bytes);
        let path = self.path(number, suffix);
        let copied = io::copy(&mut content.take(limit + 1), &mut File::create_new(path)?)?;
        self.bytes += copied.min(limit);
        if copied > limit {
            self.mark_unusable(profile, kind, format!("is larger than {limit} bytes"));
        }
        Ok(())
    }

    pub(super) fn mark_unusable(&mut self, profile: &str, kind: DatabaseKind, reason: String) {
        self.unusable.insert((profile.to_owned(), kind), reason);
    }

    fn path(&self, number: usize, suffix: &str) -> PathBuf {
        self.directory.path().join(format!("{number}{suffix}"))
    }

    /// Returns the number of cookies of each domain in all profiles.
    pub(super) fn count_cookies(&self, skipped: &mut Skipped) -> BTreeMap<String, u64> {
        let mut total = BTreeMap::new();
        let mut session = 0;
        let is_cookies = |kind| kind != DatabaseKind::Buckets;
        for (_, counts) in self.query(is_cookies, database::count_cookies, skipped) {
            session += counts.session;
            for (domain, count) in counts.by_domain {
                *total.entry(domain).or_insert(0) += count;
            }
        }
        if session > 0 {
            let reason = format!("{session} are stored, which Chromium deletes when it starts");
            skipped.add("session cookies", reason);
        }
        total
    }

    /// Returns the storage key of each storage bucket by profile and number.
    pub(super) fn bucket_storage_keys(
        &self,
        skipped: &mut Skipped,
    ) -> BTreeMap<String, BTreeMap<i64, String>> {
        let is_buckets = |kind| kind == DatabaseKind::Buckets;
        let found = self.query(is_buckets, database::bucket_storage_keys, skipped);
        found
            .into_iter()
            .map(|(profile, keys)| (profile.to_owned(), keys))
            .collect()
    }

    fn query<T>(
        &self,
        is_queried: impl Fn(DatabaseKind) -> bool,
        query: impl Fn(&Path) -> Result<T, DatabaseError>,
        skipped: &mut Skipped,
    ) -> Vec<(&str, T)> {
        let keys: BTreeSet<&Key> = self.copies.keys().chain(self.unusable.keys()).collect();
        let mut results = Vec::new();
        for key in keys.into_iter().filter(|(_, kind)| is_queried(*kind)) {
            let (profile, kind) = key;
            let name = format!("{profile}/{}", kind.path());
            if let Some(reason) = self.unusable.get(key) {
                skipped.add(&name, reason);
                continue;
            }
            let number = self.copies.get(key).copied().unwrap_or_default();
            match query(&self.path(number, "")) {
                Ok(result) => results.push((profile.as_str(), result)),
                Err(error) => skipped.add(&name, error),
            }
        }
        results
    }
}

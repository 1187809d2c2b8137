//! The SQLite databases of an archive, which are copied to temporary files and queried.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use tempfile::TempDir;

use super::{ListBudget, Skipped, place::DatabaseKind};
use crate::system::profile::database::{self, DatabaseError};

/// The limit on a database, and on each of the files that complete it, in bytes.
const MAX_FILE_BYTES: u64 = 256 << 20;
/// The limit on all of them in bytes.
const MAX_TOTAL_BYTES: u64 = 1 << 30;
/// The limit on a domain in bytes: that of a host name, and a dot before it.
const MAX_DOMAIN_BYTES: usize = 254;

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
        let mut total: BTreeMap<String, u64> = BTreeMap::new();
        let (mut budget, mut unlisted) = (ListBudget::default(), 0_u64);
        let is_cookies = |kind| kind != DatabaseKind::Buckets;
        self.query(is_cookies, database::count_cookies, skipped, |_, counts| {
            for (domain, count) in counts {
                if let Some(known) = total.get_mut(&domain) {
                    *known += count;
                } else if domain.len() <= MAX_DOMAIN_BYTES && budget.take(&domain) {
                    total.insert(domain, count);
                } else {
                    unlisted += 1;
                }
            }
        });
        if unlisted > 0 {
            let reason = format!("{unlisted} are too many or too long to be listed");
            skipped.add("domains with cookies", reason);
        }
        total
    }

    /// Returns the storage key of each storage bucket by profile and number.
    pub(super) fn bucket_storage_keys(
        &self,
        skipped: &mut Skipped,
    ) -> BTreeMap<String, BTreeMap<i64, String>> {
        let is_buckets = |kind| kind == DatabaseKind::Buckets;
        let mut found = BTreeMap::new();
        let query = database::bucket_storage_keys;
        self.query(is_buckets, query, skipped, |profile, keys| {
            found.insert(profile.to_owned(), keys);
        });
        found
    }

    /// Passes the result of each database to `use_result`, so that only one is held.
    fn query<T>(
        &self,
        is_queried: impl Fn(DatabaseKind) -> bool,
        query: impl Fn(&Path) -> Result<T, DatabaseError>,
        skipped: &mut Skipped,
        mut use_result: impl FnMut(&str, T),
    ) {
        let keys: BTreeSet<&Key> = self.copies.keys().chain(self.unusable.keys()).collect();
        for key in keys.into_iter().filter(|(_, kind)| is_queried(*kind)) {
            let (profile, kind) = key;
            let name = format!("{profile}/{}", kind.path());
            if let Some(reason) = self.unusable.get(key) {
                skipped.add(&name, reason);
                continue;
            }
            let number = self.copies.get(key).copied().unwrap_or_default();
            match query(&self.path(number, "")) {
                Ok(result) => use_result(profile, result),
                Err(error) => skipped.add(&name, error),
            }
        }
    }
}

//! The origins with stored data.

use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};

use super::{ListBudget, Skipped, place::LevelDbKind};
use crate::system::profile::{
    leveldb::{LevelDbError, LevelDbKeys},
    origin,
};

/// The limit on what is held of all LevelDB databases, in bytes.
const MAX_HELD_BYTES: usize = 64 << 20;
/// The limit on storage buckets.
const MAX_BUCKETS: usize = 10_000;

/// The origins found so far, and what is needed to find the others.
#[derive(Debug, Default)]
pub(super) struct Storages {
    origins: BTreeSet<String>,
    budget: ListBudget,
    unlisted_origins: u64,
    level_dbs: BTreeMap<(String, LevelDbKind), Result<LevelDbKeys, String>>,
    buckets: BTreeSet<(String, i64)>,
    more_buckets: bool,
    /// The kinds of storage with an origin of an unknown form.
    unknown: BTreeSet<String>,
}

impl Storages {
    /// Adds a file of a LevelDB database.
    pub(super) fn add_file(
        &mut self,
        profile: &str,
        kind: LevelDbKind,
        name: &str,
        content: &[u8],
    ) {
        let held: usize = self
            .level_dbs
            .values()
            .flatten()
            .map(LevelDbKeys::held_bytes)
            .sum();
        let database = match self.level_dbs.entry((profile.to_owned(), kind)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(Ok(LevelDbKeys::new(kind.prefixes()))),
        };
        let Ok(keys) = database else {
            return;
        };
        if held > MAX_HELD_BYTES {
            *database = Err("is too large".to_owned());
        } else if let Err(error) = keys.add_file(name, content) {
            *database = Err(error.to_string());
        }
    }

    /// Marks a database as unreadable, whatever is added to it.
    pub(super) fn mark_unreadable(&mut self, profile: &str, kind: LevelDbKind, reason: String) {
        self.level_dbs
            .insert((profile.to_owned(), kind), Err(reason));
    }

    pub(super) fn add_identifier(&mut self, identifier: &str, storage: &str) {
        self.add_origin(origin::from_identifier(identifier), storage);
    }

    pub(super) fn add_storage_key(&mut self, key: &str, storage: &str) {
        self.add_origin(origin::from_storage_key(key), storage);
    }

    pub(super) fn add_bucket(&mut self, profile: &str, id: i64) {
        if self.buckets.len() == MAX_BUCKETS {
            self.more_buckets = true;
            return;
        }
        self.buckets.insert((profile.to_owned(), id));
    }

    fn add_origin(&mut self, origin: Option<String>, storage: &str) {
        match origin {
            Some(origin) if self.origins.contains(&origin) => {}
            Some(origin) if self.budget.take(&origin) => drop(self.origins.insert(origin)),
            Some(_) => self.unlisted_origins += 1,
            None if self.unknown.len() < super::MAX_SKIPPED => {
                self.unknown.insert(storage.to_owned());
            }
            None => {}
        }
    }

    /// Returns all origins in order. `bucket_keys` are the storage keys of the buckets of each
    /// profile.
    pub(super) fn finish(
        mut self,
        bucket_keys: &BTreeMap<String, BTreeMap<i64, String>>,
        skipped: &mut Skipped,
    ) -> Vec<String> {
        for ((profile, kind), keys) in std::mem::take(&mut self.level_dbs) {
            let name = format!("{profile}/{}", kind.path());
            let keys = keys.and_then(|keys| {
                keys.finish()
                    .map_err(|error: LevelDbError| error.to_string())
            });
            match keys {
                Ok(keys) => self.add_keys(keys, kind, &name),
                Err(reason) => skipped.add(&name, reason),
            }
        }
        for (profile, id) in std::mem::take(&mut self.buckets) {
            let name = format!("{profile}/WebStorage/{id}");
            match bucket_keys.get(&profile).and_then(|keys| keys.get(&id)) {
                Some(key) => self.add_storage_key(key, &name),
                None => skipped.add(&name, "has no origin in the list of storage buckets"),
            }
        }
        for storage in &self.unknown {
            skipped.add(storage, "has an origin of an unknown form or length");
        }
        if self.unlisted_origins > 0 {
            let reason = format!(
                "{} entries are too many to be listed",
                self.unlisted_origins
            );
            skipped.add("origins", reason);
        }
        if self.more_buckets {
            skipped.add("storage buckets", format!("only {MAX_BUCKETS} are read"));
        }
        self.origins.into_iter().collect()
    }

    fn add_keys(&mut self, keys: BTreeSet<Vec<u8>>, kind: LevelDbKind, name: &str) {
        let prefix = kind.prefixes().first().map_or(0, |prefix| prefix.len());
        for key in keys {
            let origin = std::str::from_utf8(&key[prefix..]).unwrap_or_default();
            match kind {
                LevelDbKind::Files => self.add_identifier(origin, name),
                LevelDbKind::LocalStorage | LevelDbKind::ServiceWorkers => {
                    self.add_storage_key(origin, name);
                }
            }
        }
    }
}

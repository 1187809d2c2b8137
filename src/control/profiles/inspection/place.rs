//! Which entries of a user-data directory are read.

use std::path::Path;

use crate::system::profile::database::COMPANION_SUFFIXES;

/// An entry that is read, or whose name is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place<'a> {
    /// The version of the Chromium that used the profile last.
    LastVersion,
    /// A file that every user-data directory has.
    Marker,
    /// A list of the entries that could not be archived.
    SkippedList,
    /// A part of a SQLite database.
    Database {
        profile: &'a str,
        kind: DatabaseKind,
        suffix: &'a str,
    },
    /// A file of a LevelDB database.
    LevelDb {
        profile: &'a str,
        kind: LevelDbKind,
        file: &'a str,
    },
    /// A file in a directory that is named after an origin.
    OriginDirectory {
        identifier: &'a str,
    },
    /// The index of a cache storage.
    CacheIndex,
    /// A file of a storage bucket.
    Bucket {
        profile: &'a str,
        id: i64,
    },
    /// A file of storage that is not read, and what it belongs to.
    Unread(&'a str),
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum DatabaseKind {
    Cookies,
    /// The cookies of newer profiles on some systems.
    NetworkCookies,
    Buckets,
}

impl DatabaseKind {
    /// Returns the path below the profile.
    pub(super) fn path(self) -> &'static str {
        match self {
            DatabaseKind::Cookies => "Cookies",
            DatabaseKind::NetworkCookies => "Network/Cookies",
            DatabaseKind::Buckets => "WebStorage/QuotaManager",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LevelDbKind {
    LocalStorage,
    ServiceWorkers,
    Files,
}

impl LevelDbKind {
    /// Returns the path below the profile.
    pub(super) fn path(self) -> &'static str {
        match self {
            LevelDbKind::LocalStorage => "Local Storage/leveldb",
            LevelDbKind::ServiceWorkers => "Service Worker/Database",
            LevelDbKind::Files => "File System/Origins",
        }
    }

    /// Returns the prefix of the keys that end with an origin.
    pub(super) fn prefixes(self) -> &'static [&'static [u8]] {
        match self {
            LevelDbKind::LocalStorage => &[b"META:"],
            LevelDbKind::ServiceWorkers => &[b"INITDATA_UNIQUE_ORIGIN:"],
            LevelDbKind::Files => &[b"ORIGIN:"],
        }
    }
}

/// Returns the place of an entry.
pub(super) fn of(path: &Path) -> Place<'_> {
    let Some(path) = path.to_str() else {
        return Place::Other;
    };
    let names: Vec<&str> = path.split('/').collect();
    match names[..] {
        ["Last Version"] => Place::LastVersion,
        ["Local State"] | [_, "Preferences"] => Place::Marker,
        [name] if name.starts_with(".berth-skipped") && name.ends_with(".json") => {
            Place::SkippedList
        }
        [profile, "Network", name] => database(profile, DatabaseKind::NetworkCookies, name),
        [profile, "WebStorage", name] => database(profile, DatabaseKind::Buckets, name),
        [profile, "Local Storage", "leveldb", file] => {
            level_db(profile, LevelDbKind::LocalStorage, file)
        }
        [profile, "Service Worker", "Database", file] => {
            level_db(profile, LevelDbKind::ServiceWorkers, file)
        }
        [profile, "File System", "Origins", file] => level_db(profile, LevelDbKind::Files, file),
        [_, "IndexedDB", directory, _, ..] => match directory.split_once(".indexeddb.") {
            Some((identifier, _)) => Place::OriginDirectory { identifier },
            None => Place::Unread("IndexedDB of an unknown form"),
        },
        [_, "Service Worker", "CacheStorage", _, "index.txt"] => Place::CacheIndex,
        [profile, "WebStorage", id, _, ..] => match id.parse() {
            Ok(id) => Place::Bucket { profile, id },
            Err(_) => Place::Other,
        },
        [_, "Local Storage", ..] => Place::Unread("local storage of an unknown form"),
        [_, "Storage", "ext", ..] => Place::Unread("storage of apps"),
        [profile, name] => database(profile, DatabaseKind::Cookies, name),
        _ => Place::Other,
    }
}

fn database<'a>(profile: &'a str, kind: DatabaseKind, name: &'a str) -> Place<'a> {
    let file = kind.path().rsplit('/').next().unwrap_or_default();
    match name.strip_prefix(file) {
        Some(suffix) if suffix.is_empty() || COMPANION_SUFFIXES.contains(&suffix) => {
            Place::Database {
                profile,
                kind,
                suffix,
            }
        }
        _ => Place::Other,
    }
}

fn level_db<'a>(profile: &'a str, kind: LevelDbKind, file: &'a str) -> Place<'a> {
    Place::LevelDb {
        profile,
        kind,
        file,
    }
}

//! Profiles with random files at the places that are read.

use std::fs;

use proptest::{prelude::*, sample::Index};
use tempfile::TempDir;

use super::{
    InspectLimits, inspect,
    tests::{cookies, full_profile},
};
use crate::system::files::archive::unpack::{fuzz::damage, raw_tar::TarEntry, raw_tar::compressed};

const LIMITS: InspectLimits = InspectLimits {
    unpacked_bytes: 4 << 20,
    ratio: 200,
    newest_chromium: Some(156),
};

#[derive(Debug, Clone)]
enum Change {
    Content(Index, Vec<u8>),
    Flip(Index, Index, u8),
    Name(Index, String),
    Removal(Index),
}

fn change() -> impl Strategy<Value = Change> {
    let name = prop::sample::select(vec![
        "Last Version",
        ".berth-skipped.json",
        "Default/Cookies-wal",
        "Default/Cookies-journal",
        "Default/WebStorage/QuotaManager-journal",
        "Default/WebStorage/99/CacheStorage/index.txt",
        "Default/Local Storage/leveldb/000009.ldb",
        "Default/Local Storage/leveldb/MANIFEST-000001",
        "Default/IndexedDB/_.indexeddb.leveldb/CURRENT",
        "../out",
    ]);
    prop_oneof![
        1 => (any::<Index>(), prop::collection::vec(any::<u8>(), 0..600))
            .prop_map(|(entry, content)| Change::Content(entry, content)),
        4 => any::<(Index, Index, u8)>()
            .prop_map(|(entry, byte, bits)| Change::Flip(entry, byte, bits)),
        1 => (any::<Index>(), name).prop_map(|(entry, name)| Change::Name(entry, name.to_owned())),
        1 => any::<Index>().prop_map(Change::Removal),
    ]
}

fn apply(change: &Change, entries: &mut Vec<TarEntry>) {
    match change {
        Change::Content(entry, content) => {
            let entry = entry.index(entries.len());
            entries[entry].content.clone_from(content);
        }
        Change::Flip(entry, byte, bits) => {
            let entry = entry.index(entries.len());
            let content = &mut entries[entry].content;
            if !content.is_empty() {
                let byte = byte.index(content.len());
                content[byte] ^= bits;
            }
        }
        Change::Name(entry, name) => {
            let entry = entry.index(entries.len());
            entries[entry].name = name.clone().into_bytes();
        }
        Change::Removal(entry) => {
            if entries.len() > 1 {
                entries.remove(entry.index(entries.len()));
            }
        }
    }
}

proptest! {
    #[test]
    fn inspection_of_any_archive_ends_within_its_bounds(
        changes in prop::collection::vec(change(), 0..8),
        tar_damage in damage(),
        zstd_damage in damage(),
    ) {
        let mut entries = full_profile();
        for change in &changes {
            apply(change, &mut entries);
        }
        let mut bytes = TarEntry::archive(&entries);
        tar_damage.apply(&mut bytes);
        let mut bytes = compressed(&bytes);
        zstd_damage.apply(&mut bytes);
        let around = TempDir::new().unwrap();
        let work = around.path().join("work");
        fs::create_dir(&work).unwrap();
        let inspected = inspect(&bytes[..], &work, LIMITS);
        prop_assert_eq!(fs::read_dir(&work).unwrap().count(), 0);
        prop_assert_eq!(fs::read_dir(around.path()).unwrap().count(), 1);
        if let Ok(found) = inspected {
            prop_assert!(found.unpacked_bytes <= LIMITS.unpacked_bytes);
            prop_assert!(found.origins.is_sorted());
            for text in found.origins.iter().chain(found.cookies.keys()) {
                prop_assert!(text.len() <= 10_000, "{text}");
            }
        }
    }

    #[test]
    fn cookie_database_with_any_changes_is_counted_or_listed(
        flips in prop::collection::vec(any::<(Index, u8)>(), 0..20),
        journal in prop::collection::vec(any::<u8>(), 0..600),
    ) {
        let mut database = cookies(&["a.example", "b.example"]);
        for (index, bits) in flips {
            let index = index.index(database.len());
            database[index] ^= bits;
        }
        let entries = [
            TarEntry::file("Local State", "{}"),
            TarEntry::file("Default/Cookies", database),
            TarEntry::file("Default/Cookies-journal", journal),
        ];
        let work = TempDir::new().unwrap();
        let found = inspect(&TarEntry::packed(&entries)[..], work.path(), LIMITS).unwrap();
        prop_assert!(found.skipped.len() <= 1, "{:?}", found.skipped);
        prop_assert_eq!(fs::read_dir(work.path()).unwrap().count(), 0);
    }
}

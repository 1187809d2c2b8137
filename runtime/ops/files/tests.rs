//! The quota: only bytes that are stored or removed count.

use std::fs;

use proptest::{collection::vec, prelude::*, sample::select};
use tempfile::TempDir;

use super::*;

const QUOTA_MB: u32 = 1;
const QUOTA: usize = 1 << 20;

/// The files of a script in a directory with one delivered download.
fn files() -> (TempDir, Files) {
    let scratch = tempfile::tempdir().unwrap();
    fs::create_dir(scratch.path().join(DOWNLOADS)).unwrap();
    fs::write(scratch.path().join(DOWNLOADS).join("a1"), [0; 100]).unwrap();
    let files = Files::open(scratch.path(), QUOTA_MB).unwrap();
    (scratch, files)
}

/// Returns what the directory contains without its downloads.
fn stored(files: &Files) -> Usage {
    let all = Usage::beneath(&files.directory, Path::new(".")).unwrap();
    let downloads = Usage::of(&files.directory, Path::new(DOWNLOADS)).unwrap_or_default();
    Usage {
        bytes: all.bytes - downloads.bytes,
        entries: all.entries - downloads.entries,
    }
}

#[test]
fn failed_writes_do_not_change_the_quota() {
    let (scratch, mut files) = files();
    files.make_directory("directory").unwrap();
    let size = scratch.path().join("directory").metadata().unwrap().len();
    assert!(size > 0, "a write would replace a directory of 0 bytes");
    for _ in 0..1000 {
        let error = files.write("directory", b"x", false).unwrap_err();
        assert!(error.to_string().starts_with("EISDIR"), "{error}");
        files.write("directory", b"x", true).unwrap_err();
        files.write("missing/file", b"x", false).unwrap_err();
    }
    let error = files.write("big", &vec![0; QUOTA], false).unwrap_err();
    let message = "EDQUOT: disk quota exceeded, write 'big': 1048476 bytes are available";
    assert_eq!(error.to_string(), message);
    assert_eq!(files.used, stored(&files));
}

#[test]
fn failed_directories_do_not_use_up_the_quota() {
    let (_scratch, mut files) = files();
    files.write("file", b"x", false).unwrap();
    for _ in 0..2 * MAX_ENTRIES {
        files.make_directory("file/a/b").unwrap_err();
    }
    let too_deep = "x/".repeat(MAX_ENTRIES);
    files.make_directory(&too_deep).unwrap_err();
    files.make_directory("directory").unwrap();
    assert_eq!(files.used, stored(&files));
}

#[test]
fn replaced_directory_of_downloads_counts() {
    let (_scratch, mut files) = files();
    files.remove(DOWNLOADS, true).unwrap();
    files.write(DOWNLOADS, &vec![0; QUOTA], false).unwrap();
    let error = files.write("more", b"x", false).unwrap_err();
    assert!(error.to_string().contains(": 0 bytes"), "{error}");
}

#[test]
fn directory_itself_cannot_be_removed() {
    let (_scratch, mut files) = files();
    files.write("file", b"x", false).unwrap();
    for path in [".", "a/.."] {
        let error = files.remove(path, true).unwrap_err();
        assert!(error.to_string().starts_with("EBUSY"), "{error}");
    }
    assert_eq!(files.read("file").unwrap(), b"x");
}

#[derive(Clone, Debug)]
enum Change {
    Write(&'static str, usize, bool),
    Copy(&'static str, &'static str),
    Rename(&'static str, &'static str),
    Remove(&'static str, bool),
    MakeDirectory(&'static str),
}

fn change() -> impl Strategy<Value = Change> {
    let path = || {
        select(vec![
            "a",
            "b",
            "d",
            "d/a",
            "d/e",
            "d/e/f",
            ".downloads",
            ".downloads/a1",
            ".downloads/b2",
        ])
    };
    let size = select(vec![0, 1, 1000, QUOTA / 2, QUOTA]);
    prop_oneof![
        3 => (path(), size, any::<bool>()).prop_map(|(path, size, append)| Change::Write(path, size, append)),
        1 => (path(), path()).prop_map(|(from, to)| Change::Copy(from, to)),
        2 => (path(), path()).prop_map(|(from, to)| Change::Rename(from, to)),
        1 => (path(), any::<bool>()).prop_map(|(path, recursive)| Change::Remove(path, recursive)),
        2 => path().prop_map(Change::MakeDirectory),
    ]
}

proptest! {
    #[test]
    fn account_equals_the_stored_files(changes in vec(change(), 1..30)) {
        let (_scratch, mut files) = files();
        for change in changes {
            // Many of them fail.
            let _ = match &change {
                Change::Write(path, size, append) => files.write(path, &vec![0; *size], *append),
                Change::Copy(from, to) => files.copy(from, to),
                Change::Rename(from, to) => files.rename(from, to),
                Change::Remove(path, recursive) => files.remove(path, *recursive),
                Change::MakeDirectory(path) => files.make_directory(path),
            };
            prop_assert_eq!(files.used, stored(&files), "after {:?}", change);
            let all = files.used.bytes + files.downloads().bytes;
            prop_assert!(all <= QUOTA as u64, "{} bytes after {:?}", all, change);
        }
    }
}

//! Hostile archives over existing entries: a rejected archive changes nothing at all.

use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    os::unix::fs::{MetadataExt, symlink},
    path::{Path, PathBuf},
};

use proptest::prelude::*;
use tokio_util::sync::CancellationToken;

use super::unzip;
use crate::{
    agent::fs::{access::FileAccess, temp_files::TempFileJournal},
    system::files::archive::unpack::fuzz::{LIMITS, damage, hostile_archive},
};

/// The mode of an entry, and its content or target.
type Entry = (u32, Vec<u8>);

fn entries(root: &Path) -> BTreeMap<PathBuf, Entry> {
    let mut found = BTreeMap::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            let content = match () {
                () if metadata.is_dir() => {
                    directories.push(path.clone());
                    Vec::new()
                }
                () if metadata.is_symlink() => {
                    let target = fs::read_link(&path).unwrap();
                    target.into_os_string().into_encoded_bytes()
                }
                () => fs::read(&path).unwrap(),
            };
            found.insert(path, (metadata.mode(), content));
        }
    }
    found
}

/// Creates the destination `x/y/into` with entries that those of the archive meet.
fn fill(root: &Path) {
    let path = |name: &str| root.join(name);
    for directory in ["x/y/into/a/b", "outside/a", "journal"] {
        fs::create_dir_all(path(directory)).unwrap();
    }
    for file in ["x/y/into/a/c", "x/y/into/b", "outside/b", "x/a", "x/y/b"] {
        fs::write(path(file), file).unwrap();
    }
    symlink(path("outside"), path("x/y/into/c")).unwrap();
    symlink("../../../outside", path("x/y/into/a/link")).unwrap();
}

proptest! {
    #[test]
    fn rejected_archive_changes_nothing_and_accepted_one_only_its_destination(
        archive in hostile_archive(),
        damage in damage(),
        is_new in any::<bool>(),
    ) {
        let root = tempfile::tempdir().unwrap();
        fill(root.path());
        let before = entries(root.path());
        let destination = root.path().join(if is_new { "x/y/new/inner" } else { "x/y/into" });
        let mut bytes = archive.zip(root.path());
        damage.apply(&mut bytes);
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        let journal = TempFileJournal::new(&root.path().join("journal"), FileAccess::default()).unwrap();
        let result = unzip(file, &destination, &journal, LIMITS, &CancellationToken::new());
        let (mut after, mut expected) = (entries(root.path()), before);
        if result.is_ok() {
            let top = root.path().join(if is_new { "x/y/new" } else { "x/y/into" });
            let is_outside = |path: &PathBuf, _: &mut Entry| !path.starts_with(&top);
            after.retain(is_outside);
            expected.retain(is_outside);
        }
        prop_assert_eq!(after, expected);
    }
}

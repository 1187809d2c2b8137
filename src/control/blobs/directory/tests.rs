//! Tests of a blob store in a directory.

use std::{collections::HashSet, thread};

use tokio::{task::yield_now, time::timeout};

use super::*;
use crate::control::blobs::{BlobStore, PutLimits};

const KEYS: BlobKeys = BlobKeys {
    prefix: "a",
    includes: |key| key != "a/other",
};

#[test]
fn open_removes_incomplete_files() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path().join("blobs");
    Directory::open(&directory, &[KEYS]).unwrap();
    for name in ["a", "other"] {
        fs::create_dir(directory.join(name)).unwrap();
    }
    // A blob, and files of another program.
    let others = ["a/one", "other/two#1", "a/other#1", "a/two#x"].map(|name| directory.join(name));
    for path in &others {
        fs::write(path, "").unwrap();
    }
    fs::write(directory.join("a/two#1"), "half").unwrap();
    let link = directory.join("a/link#1");
    std::os::unix::fs::symlink(&others[0], &link).unwrap();
    Directory::open(&directory, &[KEYS]).unwrap();
    assert!(!directory.join("a/two#1").exists());
    for path in others.iter().chain([&link]) {
        assert!(path.exists(), "{}", path.display());
    }
}

fn private() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    set_mode(directory.path(), 0o700);
    directory
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[tokio::test]
async fn shared_directory_keeps_files_that_another_process_may_be_writing() {
    let directory = private();
    Directory::open_shared(directory.path(), &[KEYS]).unwrap();
    let path = |name: &str| directory.path().join(name);
    for (name, minutes) in [("a/new#1", 0), ("a/day#1", 23 * 60), ("a/old#1", 25 * 60)] {
        let file = fs::File::create(path(name)).unwrap();
        let changed = SystemTime::now() - Duration::from_secs(minutes * 60);
        file.set_modified(changed).unwrap();
    }
    let shared = Directory::open_shared(directory.path(), &[KEYS]).unwrap();
    let left = ["a/new#1", "a/day#1", "a/old#1"].map(|name| path(name).exists());
    assert_eq!(left, [true, true, false]);
    let file = fs::File::options().write(true).open(path("a/new#1"));
    let changed = SystemTime::now() - INTERRUPTED_AFTER;
    file.unwrap().set_modified(changed).unwrap();
    shared.remove_interrupted().await;
    let left = ["a/new#1", "a/day#1"].map(|name| path(name).exists());
    assert_eq!(left, [false, true]);
}

#[test]
fn shared_directory_must_exist_and_be_private() {
    let directory = private();
    let open = |path: &Path| {
        let error = Directory::open_shared(path, &[KEYS]).err().unwrap();
        error.to_string()
    };
    let missing = open(&directory.path().join("missing"));
    assert!(missing.contains("No such file"), "{missing}");
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(open(&file).ends_with("not a directory"));
    set_mode(directory.path(), 0o750);
    assert!(open(directory.path()).ends_with("change its mode to 700"));
    // Of root.
    if !nix::unistd::geteuid().is_root() {
        assert!(open(Path::new("/usr")).ends_with("belongs to another user"));
    }
}

#[test]
fn shared_directory_has_one_id() {
    let directories = [private(), private()];
    let [first, second] = directories.each_ref().map(tempfile::TempDir::path);
    let ids: HashSet<String> = thread::scope(|scope| {
        let starts = [first; 8].map(|path| scope.spawn(move || shared_id(path).unwrap()));
        starts.map(|start| start.join().unwrap()).into()
    });
    assert_eq!(ids.len(), 1, "{ids:?}");
    assert!(!ids.contains(&shared_id(second).unwrap()));
    let names = fs::read_dir(first).unwrap();
    let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, [ID_FILE]);
    fs::write(first.join(ID_FILE), "two words\n").unwrap();
    let refused = shared_id(first).unwrap_err().to_string();
    assert!(refused.contains("not an id"), "{refused}");
}

#[tokio::test]
async fn blob_is_visible_when_it_is_complete_and_private() {
    let directory = private();
    let shared = Directory::open_shared(directory.path(), &[KEYS]).unwrap();
    let names = || {
        let entries = fs::read_dir(directory.path().join("a")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.collect::<Vec<_>>()
    };
    let mut blob = shared.create("a/blob").await.unwrap();
    blob.write(&Bytes::from_static(b"content")).await.unwrap();
    let [incomplete] = names().try_into().unwrap();
    assert_eq!(key_of_incomplete(&incomplete), Some("blob"));
    let dropped = shared.create("a/blob").await.unwrap();
    assert_eq!(names().len(), 2);
    dropped.remove().await;
    assert_eq!(names(), [incomplete]);
    drop(shared.create("a/blob").await.unwrap());
    timeout(Duration::from_secs(60), async {
        while names().len() > 1 {
            yield_now().await;
        }
    })
    .await
    .unwrap();
    blob.complete().await.unwrap();
    assert_eq!(names(), ["blob"]);
    let file = directory.path().join("a/blob");
    assert_eq!(fs::read(&file).unwrap(), b"content");
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
    let inner = fs::metadata(directory.path().join("a")).unwrap();
    assert_eq!(inner.mode() & 0o777, 0o700);
}

#[tokio::test]
async fn failed_blob_leaves_nothing() {
    let directory = private();
    let shared = Directory::open_shared(directory.path(), &[KEYS]).unwrap();
    // A file cannot replace a directory.
    fs::create_dir_all(directory.path().join("a/blob")).unwrap();
    let blob = shared.create("a/blob").await.unwrap();
    let error = blob.complete().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::IsADirectory, "{error}");
    let entries = fs::read_dir(directory.path().join("a")).unwrap();
    assert_eq!(entries.count(), 1);
}

const LIMITS: PutLimits = PutLimits {
    bytes: 1 << 20,
    time: Duration::from_secs(60),
};

/// Returns a file without a name in a directory.
fn unnamed(directory: &Path, content: &str) -> Arc<File> {
    let mut file = tempfile::tempfile_in(directory).unwrap();
    file.write_all(content.as_bytes()).unwrap();
    Arc::new(file)
}

#[tokio::test]
async fn file_of_the_same_file_system_is_linked_and_otherwise_copied() {
    let directory = private();
    let store = BlobStore::open_directory(directory.path(), &[KEYS]).unwrap();
    let path = |key: &str| directory.path().join(key);
    let file = unnamed(directory.path(), "content");
    store.put_file("a/one", file.clone(), LIMITS).await.unwrap();
    let linked = fs::metadata(path("a/one")).unwrap();
    assert_eq!(linked.ino(), file.metadata().unwrap().ino());
    assert_eq!(linked.mode() & 0o777, PRIVATE_FILE);

    // Once its only name is removed, it cannot get another one.
    fs::remove_file(path("a/one")).unwrap();
    store.put_file("a/two", file.clone(), LIMITS).await.unwrap();
    assert_ne!(fs::metadata(path("a/two")).unwrap().ino(), linked.ino());
    let elsewhere = unnamed(Path::new("/dev/shm"), "content");
    store.put_file("a/three", elsewhere, LIMITS).await.unwrap();
    for key in ["a/two", "a/three"] {
        assert_eq!(fs::read_to_string(path(key)).unwrap(), "content");
        assert_eq!(
            fs::metadata(path(key)).unwrap().mode() & 0o777,
            PRIVATE_FILE
        );
    }
}

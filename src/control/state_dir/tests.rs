use super::*;

fn state_dir() -> (tempfile::TempDir, StateDir) {
    let directory = tempfile::tempdir().unwrap();
    let dir = StateDir::open(&directory.path().join("a/b")).unwrap();
    (directory, dir)
}

#[test]
fn new_directory_is_private() {
    let (_directory, dir) = state_dir();
    assert_eq!(mode(dir.path()), mode_around_chromium());
    assert_eq!(mode(dir.path()) & 0o066, 0);
    for inner in [dir.blobs(), dir.orphaned_recordings()] {
        assert_eq!(mode(&inner), 0o700, "{}", inner.display());
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn make_accessible(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn accessible_directory_is_made_private_if_it_has_no_other_files() {
    let directory = tempfile::tempdir().unwrap();
    make_accessible(directory.path());
    StateDir::open(directory.path()).unwrap();
    assert_eq!(mode(directory.path()), mode_around_chromium());
    for inner in ["blobs", "left-replays"] {
        fs::remove_dir(directory.path().join(inner)).unwrap();
    }

    fs::write(directory.path().join("other"), "").unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o700)).unwrap();
    make_private(directory.path()).unwrap();
    assert_eq!(mode(directory.path()), 0o700);
    make_accessible(directory.path());
    assert!(matches!(
        StateDir::open(directory.path()),
        Err(StateDirError::Shared { .. })
    ));
    assert_eq!(mode(directory.path()), 0o755);

    // The state directory of an earlier run.
    fs::write(directory.path().join("lock"), "").unwrap();
    StateDir::open(directory.path()).unwrap();
    assert_eq!(mode(directory.path()), mode_around_chromium());
}

#[test]
fn directory_of_another_user_is_rejected() {
    let directory = tempfile::tempdir().unwrap();
    let foreign = if nix::unistd::geteuid().is_root() {
        let other_user = nix::unistd::Uid::from_raw(65_534);
        nix::unistd::chown(directory.path(), Some(other_user), None).unwrap();
        directory.path()
    } else {
        Path::new("/")
    };
    let rejected = StateDir::open(foreign).unwrap_err();
    assert!(matches!(rejected, StateDirError::Foreign { .. }));
}

#[test]
fn target_of_a_link_is_used_only_if_it_is_private_and_never_changed() {
    let (directory, dir) = state_dir();
    let target = directory.path().join("disk");
    fs::create_dir(&target).unwrap();
    make_accessible(&target);
    fs::remove_dir(dir.blobs()).unwrap();
    std::os::unix::fs::symlink(&target, dir.blobs()).unwrap();
    let rejected = StateDir::open(dir.path()).unwrap_err();
    assert!(matches!(rejected, StateDirError::SharedTarget { .. }));
    let expected = format!("chmod 700 {}", target.display());
    assert!(rejected.to_string().ends_with(&expected), "{rejected}");
    assert_eq!(mode(&target), 0o755);

    fs::set_permissions(&target, fs::Permissions::from_mode(0o700)).unwrap();
    StateDir::open(dir.path()).unwrap();
    if nix::unistd::geteuid().is_root() {
        let other_user = nix::unistd::Uid::from_raw(65_534);
        nix::unistd::chown(&target, Some(other_user), None).unwrap();
        let rejected = StateDir::open(dir.path()).unwrap_err();
        assert!(matches!(rejected, StateDirError::ForeignPart { .. }));
    }

    fs::remove_dir(&target).unwrap();
    let dangling = StateDir::open(dir.path()).unwrap_err();
    assert!(matches!(dangling, StateDirError::Io { .. }));
    fs::write(&target, "").unwrap();
    let file = StateDir::open(dir.path()).unwrap_err();
    assert!(matches!(file, StateDirError::NotADirectory { .. }));
}

#[test]
fn lock_is_acquired_although_the_process_id_cannot_be_written() {
    let (_directory, dir) = state_dir();
    std::os::unix::fs::symlink("/dev/full", dir.path().join(LOCK)).unwrap();
    dir.lock().unwrap();
}

#[test]
fn hex_secret_of_another_length_or_alphabet_is_rejected() {
    let (_directory, dir) = state_dir();
    let read = || dir.read_hex_secret("s", 4);
    assert!(read().unwrap().is_none());
    for (text, is_valid) in [
        ("0123abCD", true),
        ("0", false),
        ("0123456", false),
        ("012345678", false),
        ("0123456g", false),
    ] {
        dir.write_secret("s", text).unwrap();
        match read() {
            Ok(secret) => {
                assert!(is_valid, "{text}");
                assert_eq!(secret.unwrap().expose_secret(), text);
            }
            Err(error) => {
                assert!(!is_valid, "{text}");
                assert!(matches!(error, StateDirError::InvalidSecret { .. }));
                assert!(!error.to_string().contains(&format!(" {text} ")));
            }
        }
    }
}

#[tokio::test]
async fn prepared_database_is_private() {
    let (_directory, dir) = state_dir();
    let database = dir.database();
    fs::write(&database, "").unwrap();
    make_accessible(&database);
    let prepared = dir.prepare_database().unwrap();
    let opened = crate::control::store::Store::open_sqlite(&prepared).await;
    let _open = opened.unwrap();
    for file in ["berth.db", "berth.db-wal", "berth.db-shm"] {
        assert_eq!(mode(&dir.path().join(file)), 0o600, "{file}");
    }
}

#[test]
fn lock_error_names_the_process_that_holds_it() {
    let (_directory, dir) = state_dir();
    let lock = dir.lock().unwrap();
    let message = dir.lock().unwrap_err().to_string();
    let pid = std::process::id();
    assert!(
        message.contains(&format!("in use by process {pid}")),
        "{message}"
    );
    drop(lock);
    dir.lock().unwrap();
}

#[test]
fn secret_is_stored_privately_and_read_again() {
    let (_directory, dir) = state_dir();
    assert!(dir.read_secret("s").unwrap().is_none());
    dir.write_secret("s", "one").unwrap();
    dir.write_secret("s", "two").unwrap();
    let found = dir.read_secret("s").unwrap().unwrap();
    assert_eq!(found.expose_secret(), "two");

    let path = dir.path().join("s");
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(matches!(
        dir.read_secret("s"),
        Err(StateDirError::Exposed { .. })
    ));
}

#[test]
fn id_stays_and_is_different_for_each_directory() {
    let (_directory, dir) = state_dir();
    let id = dir.id().unwrap();
    assert_eq!(StateDir::open(dir.path()).unwrap().id().unwrap(), id);
    let (_other_directory, other) = state_dir();
    assert_ne!(other.id().unwrap(), id);
}

#[test]
fn default_path_follows_the_xdg_specification() {
    let path = |xdg: Option<&str>, home: Option<&str>| {
        StateDir::default_path(xdg.map(Path::new), home.map(Path::new)).ok()
    };
    assert_eq!(path(Some("/x"), Some("/h")), Some("/x/berth".into()));
    assert_eq!(path(None, Some("/h")), Some("/h/.local/state/berth".into()));
    assert_eq!(
        path(Some("x"), Some("/h")),
        Some("/h/.local/state/berth".into())
    );
    assert_eq!(path(None, None), None);
}

//! Operations as root while another user exchanges a directory and a symbolic link.

use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    os::{
        fd::AsRawFd,
        unix::fs::{MetadataExt, PermissionsExt, lchown, symlink},
    },
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
};

use nix::{
    fcntl::{AT_FDCWD, RenameFlags, renameat2},
    unistd::Uid,
};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::{
    access::FileAccess,
    atomic_file::AtomicFile,
    files::{self, FileError},
    moves::{MoveError, Moves},
    temp_files::TempFileJournal,
    unzip::unzip,
    upload::Uploads,
};
use crate::{
    api::fs::Mode,
    shutdown::Shutdown,
    system::files::{
        archive::unpack::{UnpackLimits, raw_zip::ZipEntry},
        remove::remove_all,
    },
};

const OTHER_USER: u32 = 65_534;
/// The repetitions of each operation. Far fewer find a race.
const ROUNDS: usize = 300;
/// The most rounds until an operation succeeds once: a busy machine can leave the exchanged paths
/// the wrong way round for most of them.
const MAX_ROUNDS: usize = 100 * ROUNDS;
const SECRET: &str = "content of another directory";
const LIMITS: UnpackLimits = UnpackLimits {
    bytes: 1 << 20,
    ratio: 200,
};

/// Entries by path: mode, owner and content.
type Snapshot = BTreeMap<PathBuf, (u32, u32, Vec<u8>)>;

fn snapshot(root: &Path) -> Snapshot {
    let mut entries = BTreeMap::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            let mut content = Vec::new();
            if metadata.is_dir() {
                directories.push(path.clone());
            } else if metadata.is_file() {
                content = fs::read(&path).unwrap();
            }
            entries.insert(path, (metadata.mode(), metadata.uid(), content));
        }
    }
    entries
}

/// A directory of another user, `sticky/user`, in a directory like `/tmp`, and that user's link
/// `sticky/link` to the directory `outside`.
struct Fixture {
    directory: TempDir,
    journal: TempFileJournal,
    moves: Moves,
    outside: Snapshot,
}

/// Creates a temporary directory that is not on the file system of `path`.
pub(super) fn directory_on_another_file_system(path: &Path) -> TempDir {
    let device = |path: &Path| fs::metadata(path).unwrap().dev();
    let mut others = ["/dev/shm", "/var/tmp"].map(Path::new).into_iter();
    let other = others.find(|other| device(other) != device(path));
    TempDir::new_in(other.expect("a second file system")).unwrap()
}

impl Fixture {
    fn new() -> Self {
        assert!(Uid::effective().is_root(), "only root can act for others");
        let directory = tempfile::tempdir().unwrap();
        let journal =
            TempFileJournal::new(&directory.path().join("journal"), FileAccess::default()).unwrap();
        let path = |name: &str| directory.path().join(name);
        for name in ["outside/sub", "sticky/user/sub", "own"] {
            fs::create_dir_all(path(name)).unwrap();
        }
        fs::write(path("outside/file"), SECRET).unwrap();
        fs::write(path("outside/sub/file"), SECRET).unwrap();
        fs::set_permissions(path("sticky"), fs::Permissions::from_mode(0o1777)).unwrap();
        symlink(path("outside"), path("sticky/link")).unwrap();
        for name in ["sticky/user", "sticky/user/sub", "sticky/link"] {
            lchown(path(name), Some(OTHER_USER), Some(OTHER_USER)).unwrap();
        }
        let outside = snapshot(&path("outside"));
        Fixture {
            directory,
            moves: Moves::new(journal.clone(), &Shutdown::new()),
            journal,
            outside,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn move_path(&self, from: &Path, to: &Path) -> Result<(), MoveError> {
        self.moves.move_path(from, to, &CancellationToken::new())
    }

    fn assert_outside_unchanged(&self, operation: &str) {
        let outside = snapshot(&self.path("outside"));
        assert_eq!(outside, self.outside, "{operation}");
    }

    /// Runs an operation often, on paths below `sticky/user`, while that is exchanged with the
    /// link. `prepare` puts back what the operation consumes.
    fn race<T>(
        &self,
        operation: &str,
        prepare: impl Fn(&Path),
        run: impl Fn() -> Result<T, FileError>,
    ) {
        let mut done = 0;
        let (user, link) = (self.path("sticky/user"), self.path("sticky/link"));
        // A path that leads to the directory whatever its name is.
        let handle = fs::File::open(&user).unwrap();
        let directory = format!("/proc/self/fd/{}", handle.as_raw_fd());
        let exchange = Exchange::start(user.clone(), link);
        for round in 0..MAX_ROUNDS {
            if round >= ROUNDS && done > 0 {
                break;
            }
            prepare(Path::new(&directory));
            done += usize::from(run().is_ok());
        }
        exchange.stop();
        self.assert_outside_unchanged(operation);
        assert!(done > 0, "{operation} never succeeded");
    }
}

/// A thread that exchanges two paths until it is stopped.
struct Exchange {
    is_stopped: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Exchange {
    fn start(first: PathBuf, second: PathBuf) -> Self {
        let is_stopped = Arc::new(AtomicBool::new(false));
        let thread = thread::spawn({
            let is_stopped = is_stopped.clone();
            move || {
                let flags = RenameFlags::RENAME_EXCHANGE;
                // Fails if the operation removed an entry.
                let exchange = || renameat2(AT_FDCWD, &first, AT_FDCWD, &second, flags).is_ok();
                while !is_stopped.load(Relaxed) {
                    exchange();
                }
                if first.is_symlink() && second.is_dir() {
                    exchange();
                }
            }
        });
        Exchange { is_stopped, thread }
    }

    fn stop(self) {
        self.is_stopped.store(true, Relaxed);
        self.thread.join().unwrap();
    }
}

fn write(path: &Path, journal: &TempFileJournal) -> Result<(), FileError> {
    let mut file = AtomicFile::new(path, None, journal)?;
    file.file()?.write_all(b"new")?;
    file.publish()
}

fn archive(names: &[&str]) -> fs::File {
    let entries: Vec<ZipEntry> = names
        .iter()
        .map(|name| ZipEntry::file(name, b"new"))
        .collect();
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&ZipEntry::archive(&entries)).unwrap();
    file
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of operations")]
fn exchanged_directory_in_sticky_directory_leads_nowhere_else() {
    let fixture = Fixture::new();
    let journal = &fixture.journal;
    let (user, own) = (fixture.path("sticky/user"), fixture.path("own"));
    let access = FileAccess::default();
    let below = |name: &str| user.join(name);
    let mode = Mode::parse("777").unwrap();
    let owner = None;
    fixture.race("write", |_| {}, || write(&below("file"), journal));
    fixture.race("write new", |_| {}, || write(&below("sub/new"), journal));
    fixture.race(
        "upload",
        |_| {},
        || {
            let mut upload = Uploads::new(journal.clone(), &own, usize::MAX).start();
            upload.create_content(0).unwrap().write_all(b"new")?;
            let set = upload.set_destination(0, &below("new/file"));
            set.and_then(|()| upload.publish().map_err(|(_, error)| error))
                .map_err(|error| FileError::Other(std::io::Error::other(error.to_string())))
        },
    );
    fixture.race(
        "create directory",
        |user| {
            let _ = fs::remove_dir_all(user.join("made"));
        },
        || files::create_directory(&access, &below("made/inner"), Some(mode)),
    );
    fixture.race(
        "set permissions",
        |_| {},
        || files::set_permissions(&access, &below("file"), mode, owner, owner),
    );
    fixture.race(
        "delete file",
        |user| fs::write(user.join("file"), "").unwrap(),
        || files::delete_file(&access, &below("file")),
    );
    fixture.race(
        "delete directory",
        |user| fs::create_dir_all(user.join("sub/deep")).unwrap(),
        || files::delete_directory(&access, &below("sub")),
    );
    fixture.race(
        "move away",
        |user| fs::write(user.join("file"), "own").unwrap(),
        || {
            fixture
                .move_path(&below("file"), &own.join("moved"))
                .map_err(move_error)
        },
    );
    assert_eq!(fs::read_to_string(own.join("moved")).unwrap(), "own");
    fixture.race(
        "move there",
        |_| fs::write(own.join("moved"), "own").unwrap(),
        || {
            fixture
                .move_path(&own.join("moved"), &below("file"))
                .map_err(move_error)
        },
    );
    let stop = CancellationToken::new();
    fixture.race(
        "unzip",
        |_| {},
        || {
            let unzipped = unzip(
                archive(&["file", "sub/file"]),
                &user,
                journal,
                LIMITS,
                &stop,
            );
            unzipped.map_err(|error| FileError::Other(std::io::Error::other(error.to_string())))
        },
    );
    fixture.race(
        "read",
        |user| fs::write(user.join("file"), "own").unwrap(),
        || {
            let opened = files::open_regular(access.root(), &below("file"))?;
            assert_eq!(std::io::read_to_string(opened.file)?, "own");
            Ok(())
        },
    );
    assert_eq!(fs::read_dir(fixture.path("journal")).unwrap().count(), 0);
}

fn move_error(error: MoveError) -> FileError {
    match error {
        MoveError::Source(error) | MoveError::Destination(error) => error,
        error => panic!("{error:?}"),
    }
}

#[test]
fn unzip_does_not_follow_link_exchanged_with_directory_of_destination() {
    let fixture = Fixture::new();
    let destination = fixture.path("own");
    fs::create_dir(destination.join("sub")).unwrap();
    symlink(fixture.path("outside"), destination.join("link")).unwrap();
    let exchange = Exchange::start(destination.join("sub"), destination.join("link"));
    let stop = CancellationToken::new();
    let mut done = 0;
    for round in 0..MAX_ROUNDS {
        if round >= 3 * ROUNDS && done > 0 {
            break;
        }
        let archive = archive(&["sub/file", "sub/new", "sub/sub/file"]);
        let unzipped = unzip(archive, &destination, &fixture.journal, LIMITS, &stop);
        done += usize::from(unzipped.is_ok());
    }
    exchange.stop();
    fixture.assert_outside_unchanged("unzip");
    assert!(done > 0);
}

#[test]
fn unzip_does_not_follow_link_exchanged_with_its_temporary_directory() {
    let fixture = Fixture::new();
    let destination = fixture.path("own");
    let is_stopped = Arc::new(AtomicBool::new(false));
    let replacing = thread::spawn({
        let (is_stopped, destination) = (is_stopped.clone(), destination.clone());
        let (outside, aside) = (fixture.path("outside"), fixture.path("sticky/user"));
        move || {
            let mut replaced: usize = 0;
            while !is_stopped.load(Relaxed) {
                for entry in fs::read_dir(&destination).unwrap() {
                    let path = entry.unwrap().path();
                    let is_temporary = path.to_string_lossy().contains("/.berth-");
                    let moved = aside.join(replaced.to_string());
                    if is_temporary && !path.is_symlink() && fs::rename(&path, moved).is_ok() {
                        symlink(&outside, &path).unwrap();
                        replaced += 1;
                    }
                }
            }
            replaced
        }
    });
    let stop = CancellationToken::new();
    let names: Vec<String> = (0..30).map(|number| format!("sub/{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for _ in 0..ROUNDS {
        // Fails if its directory was replaced early.
        let _ = unzip(
            archive(&names),
            &destination,
            &fixture.journal,
            LIMITS,
            &stop,
        );
    }
    is_stopped.store(true, Relaxed);
    let replaced = replacing.join().unwrap();
    fixture.assert_outside_unchanged("unzip");
    assert!(replaced > 0);
}

#[test]
fn move_across_file_systems_copies_no_exchanged_link() {
    let fixture = Fixture::new();
    let other = directory_on_another_file_system(fixture.directory.path());
    let (tree, link) = (fixture.path("own/tree"), fixture.path("own/link"));
    let mut done = 0;
    for round in 0..MAX_ROUNDS {
        if round >= ROUNDS && done > 0 {
            break;
        }
        for path in [&tree, &link] {
            remove_all(path).unwrap();
        }
        fs::create_dir_all(tree.join("sub")).unwrap();
        fs::write(tree.join("sub/file"), "own").unwrap();
        symlink(fixture.path("outside"), &link).unwrap();
        let exchange = Exchange::start(tree.join("sub"), link.clone());
        let moved = other.path().join(round.to_string());
        done += usize::from(fixture.move_path(&tree, &moved).is_ok());
        exchange.stop();
        let mut copied = snapshot(other.path()).into_values();
        assert!(copied.all(|(_, _, content)| content != SECRET.as_bytes()));
    }
    fixture.assert_outside_unchanged("move");
    assert!(done > 0);
}

#[test]
fn directory_exchanged_with_a_new_one_keeps_its_mode() {
    const ROUNDS: usize = 5_000;
    let fixture = Fixture::new();
    let (new, private) = (
        fixture.path("sticky/user/new"),
        fixture.path("sticky/user/private"),
    );
    fs::create_dir(&private).unwrap();
    fs::set_permissions(&private, fs::Permissions::from_mode(0o700)).unwrap();
    // Keeps it from being removed in place of the new one.
    fs::write(private.join("secret"), SECRET).unwrap();
    let handle = fs::File::open(&private).unwrap();
    let mode = || handle.metadata().unwrap().mode() & 0o7777;
    let exchange = Exchange::start(new.clone(), private.clone());
    let mut created: usize = 0;
    for _ in 0..ROUNDS {
        created += usize::from(files::create_directory(&FileAccess::default(), &new, None).is_ok());
        if mode() != 0o700 {
            break;
        }
        while new.exists() && private.exists() {
            let _ = fs::remove_dir(&new);
            let _ = fs::remove_dir(&private);
        }
        // Without a second directory there is no exchange.
        let _ = fs::rename(&new, &private);
    }
    exchange.stop();
    assert_eq!(mode(), 0o700);
    assert!(created > 0);
}

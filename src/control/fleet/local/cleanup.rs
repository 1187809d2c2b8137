//! Cleans up after agents that did not exit in order: kills the processes that still use a host's
//! directory, saves its recordings and removes it.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::{self, Read},
    os::unix::{
        ffi::OsStrExt,
        fs::{DirBuilderExt, MetadataExt},
    },
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::{Pid, geteuid, getpid},
};
use tokio::task::spawn_blocking;

use crate::system::{
    files::remove::remove_all,
    media::recorder,
    process::{MAX_PROGRAM_STRINGS, agent_run, stat::ProcStat},
};

/// The longest wait for killed processes to disappear.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);
const KILL_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The file names of Chromium's programs and the X server, wherever they are installed.
const BROWSER_PROGRAM_NAMES: [&str; 6] = [
    "chrome",
    "chrome_crashpad_handler",
    "chromium",
    "chromium-browser",
    "headless_shell",
    "Xvfb",
];
/// The suffix that the kernel adds to the path of a program whose file has been replaced since it
/// was started.
const REPLACED_SUFFIX: &[u8] = b" (deleted)";

/// The programs that agents start, and which may be killed. A command line alone is no evidence:
/// that of an editor or a log viewer contains the path of the directory, too.
#[derive(Debug, Clone)]
pub(super) struct KnownPrograms {
    paths: Arc<[PathBuf]>,
}

impl KnownPrograms {
    /// Returns the programs at `paths` and every browser and X server.
    pub(super) fn new<'a>(paths: impl IntoIterator<Item = &'a Path>) -> KnownPrograms {
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        KnownPrograms {
            paths: paths.into_iter().map(real).collect(),
        }
    }

    fn contains(&self, program: &Path) -> bool {
        let name = program.file_name().and_then(OsStr::to_str);
        name.is_some_and(|name| BROWSER_PROGRAM_NAMES.contains(&name))
            || self.paths.iter().any(|path| path == program)
    }
}

/// The directory of sessions within the state directory of an agent.
const SESSIONS: &str = "sessions";
/// The agent's state directory within the directory of its host.
pub(super) const AGENT_STATE_DIRECTORY: &str = "state";

/// Kills the processes that clients started through the agent of the host in `directory`. The agent
/// must have exited.
pub(super) async fn kill_client_processes(directory: &Path) {
    let sessions = directory.join(AGENT_STATE_DIRECTORY).join(SESSIONS);
    for session in fs::read_dir(sessions).into_iter().flatten().flatten() {
        agent_run::kill_recorded(&session.path()).await;
    }
}

/// Kills every process that runs one of `programs` and has `directory` or a path below it as an
/// argument, as all processes of a browser that store data have.
///
/// The agents that use the directory must have exited.
pub(super) async fn kill_processes_using(
    directory: &Path,
    programs: &KnownPrograms,
) -> io::Result<()> {
    let started = Instant::now();
    let mut is_logged = false;
    loop {
        let (path, known) = (directory.to_owned(), programs.clone());
        let found = spawn_blocking(move || find_users(&path, &known)).await;
        let found = found.map_err(io::Error::other)??;
        if found.is_empty() {
            return Ok(());
        }
        if !std::mem::replace(&mut is_logged, true) {
            let directory = directory.display();
            tracing::debug!(%directory, count = found.len(), "killing orphaned processes");
        }
        for pid in &found {
            // Fails if the process has exited, which is just as good.
            let _ = kill(*pid, Signal::SIGKILL);
        }
        if started.elapsed() > KILL_TIMEOUT {
            return Err(io::Error::other(format!(
                "{} processes survived SIGKILL for {KILL_TIMEOUT:?}",
                found.len()
            )));
        }
        tokio::time::sleep(KILL_POLL_INTERVAL).await;
    }
}

/// Moves the recordings that the agent of the host in `directory` left behind to `destination`,
/// which is created if there are any. The agent must have exited.
pub(super) async fn move_recordings(directory: &Path, destination: &Path) -> io::Result<()> {
    let state = directory.join(AGENT_STATE_DIRECTORY);
    let destination = destination.to_owned();
    let moved = spawn_blocking(move || move_files(&state, &destination)).await;
    moved.map_err(io::Error::other)?
}

/// Moves each file by a rename, so that an interrupted move continues with the next call.
///
/// Symbolic links are not followed: clients may have replaced a directory by a link to that of
/// another browser.
fn move_files(state: &Path, destination: &Path) -> io::Result<()> {
    let source = state.join(recorder::files::DIRECTORY);
    if !(is_directory(state)? && is_directory(&source)?) {
        return Ok(());
    }
    // An earlier version has written them here.
    move_files_of_session(&source, destination)?;
    for session in fs::read_dir(&source)? {
        let session = session?;
        if session.file_type()?.is_dir() {
            move_files_of_session(&session.path(), destination)?;
        }
    }
    Ok(())
}

fn move_files_of_session(source: &Path, destination: &Path) -> io::Result<()> {
    for entry in fs::read_dir(source)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            let mut private = fs::DirBuilder::new();
            private.mode(0o700).recursive(true).create(destination)?;
            fs::rename(entry.path(), destination.join(entry.file_name()))?;
        }
    }
    Ok(())
}

/// Returns whether `path` is a directory and not a link to one.
fn is_directory(path: &Path) -> io::Result<bool> {
    use io::ErrorKind::{NotADirectory, NotFound};
    match fs::symlink_metadata(path) {
        Err(error) if matches!(error.kind(), NotFound | NotADirectory) => Ok(false),
        found => Ok(found?.is_dir()),
    }
}

/// Removes a directory with its content. Succeeds if it does not exist.
pub(super) async fn remove_directory(directory: &Path) -> io::Result<()> {
    let directory = directory.to_owned();
    let removed = spawn_blocking(move || remove_all(&directory)).await;
    removed.map_err(io::Error::other)?
}

/// Removes the content of the host's `directory` but the agent's recordings. Continues after a
/// failure, and returns the first one.
pub(super) async fn remove_all_but_recordings(directory: &Path) -> io::Result<()> {
    let directory = directory.to_owned();
    let removed = spawn_blocking(move || {
        let state = directory.join(AGENT_STATE_DIRECTORY);
        let outside = remove_siblings_of(&state);
        let inside = match is_directory(&state)? {
            true => remove_siblings_of(&state.join(recorder::files::DIRECTORY)),
            false => Ok(()),
        };
        outside.and(inside)
    });
    removed.await.map_err(io::Error::other)?
}

/// Removes the other entries of the directory of `kept`.
fn remove_siblings_of(kept: &Path) -> io::Result<()> {
    let mut first_error = None;
    for entry in fs::read_dir(kept.parent().unwrap_or(kept))? {
        let path = entry?.path();
        if path != kept
            && let Err(error) = remove_all(&path)
        {
            first_error.get_or_insert(error);
        }
    }
    first_error.map_or(Ok(()), Err)
}

/// Finds the processes that [`kill_processes_using`] kills. Never returns this process or one of
/// its ancestors.
fn find_users(directory: &Path, programs: &KnownPrograms) -> io::Result<Vec<Pid>> {
    let excluded = own_ancestry();
    let mut users = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Ok(entry) = entry else { continue };
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.parse().ok());
        let Some(pid) = pid.map(Pid::from_raw) else {
            continue;
        };
        if !excluded.contains(&pid) && is_orphan(&entry.path(), directory, programs) {
            users.push(pid);
        }
    }
    Ok(users)
}

/// Returns whether a process belongs to this user, runs a known program and uses the directory.
///
/// False for a process that has exited meanwhile, and for a zombie, which has no program.
fn is_orphan(process: &Path, directory: &Path, programs: &KnownPrograms) -> bool {
    let user = geteuid();
    let is_own =
        fs::metadata(process).is_ok_and(|found| user.is_root() || found.uid() == user.as_raw());
    let is_known = fs::read_link(process.join("exe")).is_ok_and(|path| {
        let path = path.as_os_str().as_bytes();
        let path = path.strip_suffix(REPLACED_SUFFIX).unwrap_or(path);
        programs.contains(Path::new(OsStr::from_bytes(path)))
    });
    is_own
        && is_known
        && File::open(process.join("cmdline"))
            .and_then(read_command_line)
            .is_ok_and(|line| has_argument(&line, directory))
}

/// Reads a command line. Fails if it is longer than any program can be started with.
fn read_command_line(file: impl Read) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    let read = file.take(MAX_PROGRAM_STRINGS + 1).read_to_end(&mut line)?;
    match read as u64 > MAX_PROGRAM_STRINGS {
        true => Err(io::ErrorKind::FileTooLarge.into()),
        false => Ok(line),
    }
}

/// Returns whether an argument is `directory` or a path below it, or an option with such a value.
fn has_argument(command_line: &[u8], directory: &Path) -> bool {
    let line = command_line.strip_suffix(b"\0").unwrap_or(command_line);
    // Chromium's helpers overwrite their arguments with one text separated by spaces.
    let separator = if line.contains(&0) { 0 } else { b' ' };
    // The first argument is the name of the program.
    line.split(|byte| *byte == separator)
        .skip(1)
        .any(|argument| {
            let value = match argument.iter().position(|byte| *byte == b'=') {
                Some(at) if argument.starts_with(b"-") => &argument[at + 1..],
                _ => argument,
            };
            Path::new(OsStr::from_bytes(value)).starts_with(directory)
        })
}

/// Returns this process and its ancestors.
fn own_ancestry() -> Vec<Pid> {
    let mut ancestry = vec![getpid()];
    while let Some(parent) = ancestry.last().and_then(|pid| parent_of(*pid))
        && parent.as_raw() > 0
    {
        ancestry.push(parent);
    }
    ancestry
}

fn parent_of(pid: Pid) -> Option<Pid> {
    ProcStat::of(pid.as_raw()).map(|stat| Pid::from_raw(stat.parent))
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// Starts a copy of `tail`, which waits for a file to appear until it is killed.
    fn spawn_tail(program: &Path, arguments: &[&str], file: &Path) -> Child {
        Command::new(program)
            .args(["--follow=name", "--retry", "--quiet"])
            .args(arguments)
            .arg(file)
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }

    #[tokio::test]
    #[expect(clippy::disallowed_methods, reason = "the processes were killed")]
    async fn only_known_programs_that_use_the_directory_are_killed() {
        let directory = tempfile::tempdir().unwrap();
        let known = directory.path().join("program");
        fs::copy("/usr/bin/tail", &known).unwrap();
        let file = |name: &str| directory.path().join(name);
        let browser = file("brw_a");
        let orphans = [
            spawn_tail(&known, &[], &browser),
            spawn_tail(&known, &[], &file("brw_a/x")),
        ];
        let untouched = [
            // A program that agents do not start.
            spawn_tail(Path::new("/usr/bin/tail"), &[], &file("brw_a/log")),
            Command::new("/bin/bash")
                .args(["-c", "read line; : \"$0\""])
                .arg(file("brw_a/token"))
                .stdin(Stdio::piped())
                .spawn()
                .unwrap(),
            // A known program that uses the directory of another browser.
            spawn_tail(&known, &[], &file("brw_ab")),
        ];
        let programs = KnownPrograms::new([known.as_path()]);
        kill_processes_using(&browser, &programs).await.unwrap();
        for mut orphan in orphans {
            assert!(!orphan.wait().unwrap().success());
        }
        for mut process in untouched {
            assert!(process.try_wait().unwrap().is_none());
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    #[test]
    fn argument_matches_only_as_a_path_below_the_directory() {
        let matches = |line: &[u8]| has_argument(line, Path::new("/s/brw_a"));
        for line in [
            b"agent\0--state-dir\0/s/brw_a/state\0".as_slice(),
            b"chrome\0--user-data-dir=/s/brw_a/state/profile\0",
            b"chrome --type=utility --user-data-dir=/s/brw_a --lang=de",
            b"worker\0/s/brw_a\0",
        ] {
            assert!(matches(line), "{}", String::from_utf8_lossy(line));
        }
        for line in [
            b"".as_slice(),
            b"/s/brw_a\0",
            b"chrome\0--user-data-dir=/s/brw_ab\0",
            b"chrome\0https://example.com/?file=/s/brw_a\0",
            b"chrome\0about /s/brw_a\0",
            b"chrome\0--x=/other/s/brw_a\0",
        ] {
            assert!(!matches(line), "{}", String::from_utf8_lossy(line));
        }
    }

    #[test]
    fn endless_command_line_is_rejected() {
        let rejected = read_command_line(io::repeat(b'x')).unwrap_err();
        assert_eq!(rejected.kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(read_command_line(b"a\0b\0".as_slice()).unwrap(), b"a\0b\0");
    }

    #[test]
    fn own_ancestry_starts_with_this_process_and_its_parent() {
        let ancestry = own_ancestry();
        let parent = Pid::from_raw(std::os::unix::process::parent_id().cast_signed());
        assert_eq!(ancestry[..2], [getpid(), parent]);
    }

    #[tokio::test]
    async fn only_regular_files_of_a_real_directory_are_moved() {
        let directory = tempfile::tempdir().unwrap();
        let browser = directory.path().join("brw_a");
        let to = directory.path().join("left");
        move_recordings(&browser, &to).await.unwrap();
        assert!(!to.exists());

        let replays = browser.join("state/replays/1");
        fs::create_dir_all(replays.join("directory")).unwrap();
        move_recordings(&browser, &to).await.unwrap();
        assert!(!to.exists());

        for round in ["one", "two"] {
            fs::write(replays.join(round), round).unwrap();
            std::os::unix::fs::symlink("/etc/passwd", replays.join(format!("{round}-link")))
                .unwrap();
            move_recordings(&browser, &to).await.unwrap();
        }
        let mut saved: Vec<_> = fs::read_dir(&to)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        saved.sort_unstable();
        assert_eq!(saved, ["one", "two"]);

        for replaced in [replays, browser.join("state/replays")] {
            fs::remove_dir_all(&replaced).unwrap();
            std::os::unix::fs::symlink("/etc", &replaced).unwrap();
            move_recordings(&browser, &to).await.unwrap();
            assert_eq!(fs::read_dir(&to).unwrap().count(), 2);
        }
    }

    #[tokio::test]
    async fn link_to_the_directory_of_another_browser_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let (browser, other) = (
            directory.path().join("brw_a"),
            directory.path().join("brw_b"),
        );
        let recording = other.join("state/replays/1/one");
        fs::create_dir_all(recording.parent().unwrap()).unwrap();
        fs::write(&recording, "being recorded").unwrap();
        fs::create_dir(&browser).unwrap();
        std::os::unix::fs::symlink(other.join("state"), browser.join("state")).unwrap();
        let to = directory.path().join("left");
        move_recordings(&browser, &to).await.unwrap();
        assert!(!to.exists());
        assert_eq!(fs::read_to_string(recording).unwrap(), "being recorded");
    }

    #[tokio::test]
    async fn removing_a_missing_directory_succeeds() {
        let directory = tempfile::tempdir().unwrap();
        remove_directory(&directory.path().join("none"))
            .await
            .unwrap();
    }

    #[tokio::test]
    async fn everything_but_recordings_is_removed_and_links_are_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let (browser, other) = (
            directory.path().join("brw_a"),
            directory.path().join("brw_b"),
        );
        for file in ["state/replays/1/one", "state/user-data/file", "token"] {
            for browser in [&browser, &other] {
                let file = browser.join(file);
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(file, "").unwrap();
            }
        }
        remove_all_but_recordings(&browser).await.unwrap();
        assert!(browser.join("state/replays/1/one").exists());
        assert!(!browser.join("state/user-data").exists() && !browser.join("token").exists());

        fs::remove_dir_all(browser.join("state")).unwrap();
        std::os::unix::fs::symlink(other.join("state"), browser.join("state")).unwrap();
        remove_all_but_recordings(&browser).await.unwrap();
        assert!(other.join("state/user-data/file").exists());
    }
}

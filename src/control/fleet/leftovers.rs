//! What a browser that did not end in order has left: processes that still use its folder, and the folder.

use std::{
    ffi::OsStr,
    fs, io,
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

use crate::system::{media::recorder, process::agent_run, process::stat::ProcStat};

/// How long killed processes are waited for; the kernel ends them as soon as it gets to it.
const MAX_WAIT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(10);

/// Programs of Chromium and the X server go by these names wherever they are installed.
const BROWSER_PROGRAMS: [&str; 6] = [
    "chrome",
    "chrome_crashpad_handler",
    "chromium",
    "chromium-browser",
    "headless_shell",
    "Xvfb",
];
/// What the kernel adds to the path of a program whose file has been replaced since it was started.
const REPLACED: &[u8] = b" (deleted)";

/// The programs that may be ours to end. A command line alone is no evidence: whoever looks at a browser's folder names it too.
#[derive(Debug, Clone)]
pub struct Programs {
    paths: Arc<[PathBuf]>,
}

impl Programs {
    /// Those at `paths`, and every browser and X server.
    pub fn new<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Programs {
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        Programs {
            paths: paths.into_iter().map(real).collect(),
        }
    }

    fn include(&self, program: &Path) -> bool {
        let name = program.file_name().and_then(OsStr::to_str);
        name.is_some_and(|name| BROWSER_PROGRAMS.contains(&name))
            || self.paths.iter().any(|path| path == program)
    }
}

/// Where the agent's own folder is in a browser's.
pub const AGENT_FOLDER: &str = "state";

/// Kills what clients have started through the agent of the browser in `folder`. Only to be called when that agent runs no more.
pub async fn end_what_clients_started(folder: &Path) {
    agent_run::kill_recorded(&folder.join(AGENT_FOLDER)).await;
}

/// Kills every process that runs one of `programs` and was given `folder` or something in it, as all of a browser's processes are that
/// keep data. Only to be called on a folder that no running program of ours uses.
pub async fn end_processes(folder: &Path, programs: &Programs) -> io::Result<()> {
    let started = Instant::now();
    let mut told = false;
    loop {
        let (looked_at, wanted) = (folder.to_owned(), programs.clone());
        let found = spawn_blocking(move || users_of(&looked_at, &wanted)).await;
        let found = found.map_err(io::Error::other)??;
        if found.is_empty() {
            return Ok(());
        }
        if !std::mem::replace(&mut told, true) {
            tracing::debug!(folder = %folder.display(), count = found.len(), "killing what still uses it");
        }
        for pid in &found {
            // Gone already is as good.
            let _ = kill(*pid, Signal::SIGKILL);
        }
        if started.elapsed() > MAX_WAIT {
            return Err(io::Error::other(format!(
                "{} processes do not die",
                found.len()
            )));
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Puts the recordings of the browser in `folder` into a folder of its name within `to`, whatever of them its agent has left. Only to be
/// called when that agent runs no more.
pub async fn save_replays(folder: &Path, to: &Path) -> io::Result<()> {
    let state = folder.join(AGENT_FOLDER);
    let Some(name) = folder.file_name() else {
        return Ok(());
    };
    let to = to.join(name);
    let moved = spawn_blocking(move || move_files(&state, &to)).await;
    moved.map_err(io::Error::other)?
}

/// Each by a rename, so that one which is broken off is gone on with the next time. Clients may have put links where the folders were, to
/// another browser's.
fn move_files(state: &Path, to: &Path) -> io::Result<()> {
    let from = state.join(recorder::files::DIRECTORY);
    if !(is_folder(state)? && is_folder(&from)?) {
        return Ok(());
    }
    let mut made = false;
    for entry in fs::read_dir(&from)? {
        let entry = entry?;
        if !entry.file_type()?.is_file() {
            continue;
        }
        if !std::mem::replace(&mut made, true) {
            let mut private = fs::DirBuilder::new();
            private.mode(0o700).recursive(true).create(to)?;
        }
        fs::rename(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}

/// Whether it is one itself, and no link to one.
fn is_folder(path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        found => Ok(found?.is_dir()),
    }
}

/// Removes a folder with everything in it; one that is not there is no error.
pub async fn remove_folder(folder: &Path) -> io::Result<()> {
    match tokio::fs::remove_dir_all(folder).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn users_of(folder: &Path, programs: &Programs) -> io::Result<Vec<Pid>> {
    let spared = own_line();
    let mut users = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Ok(entry) = entry else { continue };
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.parse().ok());
        let Some(pid) = pid.map(Pid::from_raw) else {
            continue;
        };
        if !spared.contains(&pid) && is_ours(&entry.path(), folder, programs) {
            users.push(pid);
        }
    }
    Ok(users)
}

/// A process that ends meanwhile is none of ours any more, and nor is a zombie, which has no program and an empty command line.
fn is_ours(process: &Path, folder: &Path, programs: &Programs) -> bool {
    let own = geteuid();
    let owned =
        fs::metadata(process).is_ok_and(|found| own.is_root() || found.uid() == own.as_raw());
    let program = fs::read_link(process.join("exe")).is_ok_and(|path| {
        let path = path.as_os_str().as_bytes();
        let path = path.strip_suffix(REPLACED).unwrap_or(path);
        programs.include(Path::new(OsStr::from_bytes(path)))
    });
    owned && program && fs::read(process.join("cmdline")).is_ok_and(|line| was_given(&line, folder))
}

/// Whether an argument is `folder` or a path in it, or an option with such a value.
fn was_given(command_line: &[u8], folder: &Path) -> bool {
    let line = command_line.strip_suffix(b"\0").unwrap_or(command_line);
    // Chromium's helpers write theirs over as one text.
    let separator = if line.contains(&0) { 0 } else { b' ' };
    // The first is the program's own name.
    line.split(|byte| *byte == separator)
        .skip(1)
        .any(|argument| {
            let value = match argument.iter().position(|byte| *byte == b'=') {
                Some(at) if argument.starts_with(b"-") => &argument[at + 1..],
                _ => argument,
            };
            Path::new(OsStr::from_bytes(value)).starts_with(folder)
        })
}

/// This process and those it descends from.
fn own_line() -> Vec<Pid> {
    let mut line = vec![getpid()];
    while let Some(parent) = line.last().and_then(|pid| parent_of(*pid))
        && parent.as_raw() > 0
    {
        line.push(parent);
    }
    line
}

fn parent_of(pid: Pid) -> Option<Pid> {
    ProcStat::of(pid.as_raw()).map(|stat| Pid::from_raw(stat.parent))
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// `tail` waits for a file to appear until it is killed.
    fn waiting(program: &Path, arguments: &[&str], file: &Path) -> Child {
        Command::new(program)
            .args(["--follow=name", "--retry", "--quiet"])
            .args(arguments)
            .arg(file)
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }

    #[tokio::test]
    async fn our_programs_that_use_the_folder_are_killed_and_nobody_else() {
        let folder = tempfile::tempdir().unwrap();
        let ours = folder.path().join("program");
        fs::copy("/usr/bin/tail", &ours).unwrap();
        let file = |name: &str| folder.path().join(name);
        let browser = file("brw_a");
        let leftovers = [
            waiting(&ours, &[], &browser),
            waiting(&ours, &[], &file("brw_a/x")),
        ];
        let untouched = [
            // Whoever looks on, with a program that is not ours.
            waiting(Path::new("/usr/bin/tail"), &[], &file("brw_a/log")),
            Command::new("/bin/bash")
                .args(["-c", "read line; : \"$0\""])
                .arg(file("brw_a/token"))
                .stdin(Stdio::piped())
                .spawn()
                .unwrap(),
            // Ours, for another browser.
            waiting(&ours, &[], &file("brw_ab")),
        ];
        let programs = Programs::new([ours.as_path()]);
        end_processes(&browser, &programs).await.unwrap();
        for mut leftover in leftovers {
            assert!(!leftover.wait().unwrap().success());
        }
        for mut process in untouched {
            assert!(process.try_wait().unwrap().is_none());
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    #[test]
    fn an_argument_counts_where_it_is_a_path_and_no_mere_text() {
        let given = |line: &[u8]| was_given(line, Path::new("/s/brw_a"));
        for line in [
            b"agent\0--state-dir\0/s/brw_a/state\0".as_slice(),
            b"chrome\0--user-data-dir=/s/brw_a/state/profile\0",
            b"chrome --type=utility --user-data-dir=/s/brw_a --lang=de",
            b"worker\0/s/brw_a\0",
        ] {
            assert!(given(line), "{}", String::from_utf8_lossy(line));
        }
        for line in [
            b"".as_slice(),
            b"/s/brw_a\0",
            b"chrome\0--user-data-dir=/s/brw_ab\0",
            b"chrome\0https://example.com/?file=/s/brw_a\0",
            b"chrome\0about /s/brw_a\0",
            b"chrome\0--x=/other/s/brw_a\0",
        ] {
            assert!(!given(line), "{}", String::from_utf8_lossy(line));
        }
    }

    #[test]
    fn those_it_descends_from_are_spared() {
        let line = own_line();
        let parent = Pid::from_raw(std::os::unix::process::parent_id().cast_signed());
        assert_eq!(line[..2], [getpid(), parent]);
    }

    #[tokio::test]
    async fn recordings_are_saved_and_what_stands_there_by_their_name_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let browser = folder.path().join("brw_a");
        let to = folder.path().join("left");
        save_replays(&browser, &to).await.unwrap();
        assert!(!to.exists());

        let replays = browser.join("state/replays");
        fs::create_dir_all(replays.join("folder")).unwrap();
        save_replays(&browser, &to).await.unwrap();
        assert!(!to.exists());

        for round in ["one", "two"] {
            fs::write(replays.join(round), round).unwrap();
            std::os::unix::fs::symlink("/etc/passwd", replays.join(format!("{round}-link")))
                .unwrap();
            save_replays(&browser, &to).await.unwrap();
        }
        let mut saved: Vec<_> = fs::read_dir(to.join("brw_a"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        saved.sort_unstable();
        assert_eq!(saved, ["one", "two"]);

        fs::remove_dir_all(&replays).unwrap();
        std::os::unix::fs::symlink("/etc", &replays).unwrap();
        save_replays(&browser, &to).await.unwrap();
        assert_eq!(fs::read_dir(to.join("brw_a")).unwrap().count(), 2);
    }

    #[tokio::test]
    async fn a_link_to_another_browsers_folder_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (ours, other) = (folder.path().join("brw_a"), folder.path().join("brw_b"));
        let theirs = other.join("state/replays/one");
        fs::create_dir_all(theirs.parent().unwrap()).unwrap();
        fs::write(&theirs, "being recorded").unwrap();
        fs::create_dir(&ours).unwrap();
        std::os::unix::fs::symlink(other.join("state"), ours.join("state")).unwrap();
        let to = folder.path().join("left");
        save_replays(&ours, &to).await.unwrap();
        assert!(!to.exists());
        assert_eq!(fs::read_to_string(theirs).unwrap(), "being recorded");
    }

    #[tokio::test]
    async fn a_folder_that_is_not_there_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        remove_folder(&folder.path().join("none")).await.unwrap();
    }
}

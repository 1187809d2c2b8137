//! Chromium's temporary files, which are removed with their Chromium: those of `TMPDIR`, its crash
//! dumps, and copies of the cookies for the display and the sound server.

use std::{
    ffi::{OsStr, OsString},
    fs::{DirBuilder, File},
    io::{self, Read},
    mem::ManuallyDrop,
    os::{fd::AsRawFd, unix::fs::DirBuilderExt},
    path::{Path, PathBuf},
};

use tokio::process::Command;

use crate::system::{
    files::{directory::DirectoryHandle, remove::remove_all},
    process::child,
};

/// The suffix that Chromium appends for the socket that finds a running instance.
const SOCKET_SUFFIX: &str = "/org.chromium.Chromium.XXXXXX/SingletonSocket";
/// The longest path of a Unix socket. Chromium does not start if it exceeds this.
const MAX_SOCKET_PATH: usize = 107;
/// Starts the program in its arguments with a short name of the directory that is open as the
/// descriptor in the first argument. Only the process itself, whose id `exec` keeps, and others of
/// its user can use this name.
const SHORT_NAME_SCRIPT: &str = "export TMPDIR=/proc/$$/fd/$0; exec \"$@\"";
const SHELL: &str = "/bin/sh";
/// The most bytes of a cookie. PulseAudio's has 256.
const MAX_COOKIE: u64 = 1024;

/// A directory that is emptied at the start, also of the leftovers of a killed agent, and removed
/// on drop.
#[derive(Debug)]
pub(super) struct TemporaryDir {
    path: PathBuf,
}

impl TemporaryDir {
    pub(super) fn create(path: PathBuf) -> io::Result<Self> {
        remove_all(&path)?;
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(TemporaryDir { path })
    }

    /// Returns the directory of a Chromium that runs.
    pub(super) fn adopt(path: PathBuf) -> Self {
        TemporaryDir { path }
    }

    /// Leaves the directory to the next program of the agent.
    pub(super) fn keep(self) {
        let _ = ManuallyDrop::new(self);
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the command that runs `program` with this directory as its `TMPDIR`, under a name
    /// that is short enough for Chromium's socket.
    pub(super) fn command(&self, program: &Path) -> io::Result<Command> {
        if self.path.as_os_str().len() + SOCKET_SUFFIX.len() <= MAX_SOCKET_PATH {
            let mut command = Command::new(program);
            command.env("TMPDIR", &self.path);
            return Ok(command);
        }
        let directory = DirectoryHandle::open_path(&self.path)?.open_readable()?;
        let mut command = Command::new(SHELL);
        let descriptor = directory.as_raw_fd().to_string();
        command
            .args(["-c", SHORT_NAME_SCRIPT, &descriptor])
            .arg(program);
        child::inherit(&mut command, directory);
        Ok(command)
    }

    /// Copies a cookie to the file `name` and returns its path.
    pub(super) fn copy_cookie(&self, cookie: &Path, name: &str) -> io::Result<OsString> {
        let mut content = Vec::new();
        File::open(cookie)?
            .take(MAX_COOKIE)
            .read_to_end(&mut content)?;
        // Clients can replace the directory by a link.
        let directory = DirectoryHandle::open_path(&self.path)?;
        let mut copy = directory.create_file(OsStr::new(name))?;
        io::Write::write_all(&mut copy, &content)?;
        Ok(self.path.join(name).into())
    }
}

impl Drop for TemporaryDir {
    fn drop(&mut self) {
        if let Err(error) = remove_all(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove temporary files");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[tokio::test]
    async fn name_of_a_directory_at_any_depth_leaves_room_for_the_socket() {
        let folder = tempfile::tempdir().unwrap();
        for depth in [0, 40, 200] {
            let path = folder.path().join("x".repeat(depth)).join("tmp");
            fs::create_dir_all(path.join("left by another")).unwrap();
            let temporary = TemporaryDir::create(path.clone()).unwrap();
            assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
            let script = "mkdir \"$TMPDIR/made\" && printf %s \"$TMPDIR\"";
            let mut command = temporary.command(Path::new("/bin/sh")).unwrap();
            let output = command.args(["-c", script]).output().await.unwrap();
            let name = String::from_utf8(output.stdout).unwrap();
            assert!(output.status.success() && !name.is_empty(), "{name}");
            assert!(
                name.len() + SOCKET_SUFFIX.len() <= MAX_SOCKET_PATH,
                "{name}"
            );
            assert!(path.join("made").is_dir());
            drop(temporary);
            assert!(!path.exists());
        }
    }

    #[test]
    fn copied_cookie_is_private_and_bounded() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let cookie = folder.path().join("cookie");
        fs::write(&cookie, [7; 5000]).unwrap();
        let temporary = TemporaryDir::create(folder.path().join("tmp")).unwrap();
        let copy = PathBuf::from(temporary.copy_cookie(&cookie, "copy").unwrap());
        let found = fs::metadata(&copy).unwrap();
        assert_eq!(
            (found.len(), found.permissions().mode() & 0o777),
            (MAX_COOKIE, 0o600)
        );
    }
}

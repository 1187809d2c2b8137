//! The directory of one host, and its removal once the host's agent has exited.

use std::{io, path::PathBuf, time::Duration};

use tokio_util::sync::CancellationToken;

use super::{
    cleanup::{self, KnownPrograms},
    session_record::SessionRecord,
};
use crate::{backoff::Backoff, shutdown::Shutdown};

/// The first and the longest delay before a failed removal is repeated.
const RETRY_DELAY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));

/// The directory of one host, and how to remove it.
#[derive(Clone)]
pub(super) struct HostDirectory {
    pub(super) path: PathBuf,
    pub(super) session: SessionRecord,
    pub(super) orphaned_recordings: PathBuf,
    pub(super) programs: KnownPrograms,
    pub(super) shutdown: Shutdown,
}

impl HostDirectory {
    /// Kills the processes that use the directory, saves the recordings in it and removes it.
    /// Cancels `removed` when nothing is left.
    ///
    /// Returns after the first attempt. If that fails, further ones follow in the background until
    /// one succeeds or the server shuts down; then the next start tries again.
    pub(super) async fn remove(self, removed: CancellationToken) {
        let outcome = self.try_remove().await;
        self.finish_or_retry(outcome, removed);
    }

    /// Removes like [`Self::remove`], without killing processes first.
    pub(super) async fn remove_unused(self, removed: CancellationToken) {
        let outcome = self.clear().await;
        self.finish_or_retry(outcome, removed);
    }

    fn finish_or_retry(self, outcome: io::Result<()>, removed: CancellationToken) {
        match outcome {
            Ok(()) => removed.cancel(),
            Err(error) => {
                let directory = self.path.display();
                tracing::error!(%directory, %error, "cannot remove the directory of a host; retrying");
                self.shutdown.clone().spawn(self.retry(removed));
            }
        }
    }

    async fn retry(self, removed: CancellationToken) {
        let mut delays = Backoff::new(RETRY_DELAY.0, RETRY_DELAY.1);
        let directory = self.path.display();
        while self.shutdown.sleep(delays.next_delay()).await {
            match self.try_remove().await {
                Ok(()) => {
                    tracing::info!(%directory, "directory of a host removed");
                    return removed.cancel();
                }
                Err(error) => {
                    tracing::warn!(%directory, %error, "cannot remove the directory of a host");
                }
            }
        }
    }

    async fn try_remove(&self) -> io::Result<()> {
        cleanup::kill_client_processes(&self.path).await;
        cleanup::kill_processes_using(&self.path, &self.programs).await?;
        self.clear().await
    }

    /// Saves the recordings and removes everything.
    async fn clear(&self) -> io::Result<()> {
        let Some(session) = self.session.get() else {
            // Nothing has been recorded before the first session.
            return cleanup::remove_directory(&self.path).await;
        };
        let destination = self.orphaned_recordings.join(session.as_str());
        let save = || cleanup::move_recordings(&self.path, &destination);
        if save().await.is_err() {
            // On a full disk there is no room for their new directory, until the rest is removed.
            cleanup::remove_all_but_recordings(&self.path).await?;
            save().await?;
        }
        cleanup::remove_directory(&self.path).await
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, Permissions},
        os::unix::fs::{PermissionsExt, chown},
    };

    use nix::unistd::{Gid, Uid, geteuid, setfsgid, setfsuid};

    use super::*;

    /// The name of a directory of an earlier version.
    const BROWSER: &str = "brw_01kgc3v7e8r9t0w1x2y3z4a5b6";

    fn host(directory: &tempfile::TempDir) -> HostDirectory {
        let path = directory.path().join(BROWSER);
        fs::create_dir_all(path.join("state/replays")).unwrap();
        fs::create_dir_all(path.join("state/user-data")).unwrap();
        fs::write(path.join("token"), "").unwrap();
        fs::write(path.join("state/user-data/file"), "").unwrap();
        fs::write(path.join("state/replays/one"), "").unwrap();
        HostDirectory {
            session: SessionRecord::read(&path),
            path,
            orphaned_recordings: directory.path().join("orphaned"),
            programs: KnownPrograms::new([]),
            shutdown: Shutdown::new(),
        }
    }

    #[tokio::test]
    async fn failed_removal_keeps_only_recordings_and_is_repeated_until_it_succeeds() {
        let directory = tempfile::tempdir().unwrap();
        let host = host(&directory);
        let (path, orphaned) = (host.path.clone(), host.orphaned_recordings.clone());
        // A file in place of the directory for recordings.
        fs::write(&orphaned, "").unwrap();
        let removed = CancellationToken::new();
        host.remove(removed.clone()).await;
        assert!(!removed.is_cancelled());
        assert!(path.join("state/replays/one").exists());
        assert!(!path.join("token").exists() && !path.join("state/user-data").exists());

        fs::remove_file(&orphaned).unwrap();
        removed.cancelled().await;
        assert!(!path.exists());
        assert!(orphaned.join(BROWSER).join("one").exists());
    }

    #[test]
    fn read_only_directories_of_a_profile_are_removed() {
        const UNPRIVILEGED: u32 = 65_534;
        let directory = tempfile::tempdir().unwrap();
        let host = host(&directory);
        let path = host.path.clone();
        let profile = path.join("state/user-data");
        for path in [
            directory.path(),
            &path,
            &path.join("state"),
            &path.join("state/replays"),
            &profile,
        ] {
            if geteuid().is_root() {
                chown(path, Some(UNPRIVILEGED), Some(UNPRIVILEGED)).unwrap();
            }
        }
        fs::set_permissions(&profile, Permissions::from_mode(0o500)).unwrap();
        // Permissions do not apply to root, so the threads use another user for file access.
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().on_thread_start(|| {
            setfsgid(Gid::from_raw(UNPRIVILEGED));
            setfsuid(Uid::from_raw(UNPRIVILEGED));
        });
        let removed = CancellationToken::new();
        let removing = host.remove(removed.clone());
        runtime.build().unwrap().block_on(removing);
        assert!(removed.is_cancelled() && !path.exists());
    }

    #[tokio::test]
    async fn shutdown_ends_the_attempts() {
        let directory = tempfile::tempdir().unwrap();
        let host = host(&directory);
        fs::write(&host.orphaned_recordings, "").unwrap();
        let (shutdown, removed) = (host.shutdown.clone(), CancellationToken::new());
        host.remove(removed.clone()).await;
        shutdown.request();
        assert!(shutdown.drain(Duration::from_secs(60)).await);
        assert!(!removed.is_cancelled());
    }
}

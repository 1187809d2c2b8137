//! Downloads of the browser while scripts run.
//!
//! Chromium has one download directory; each script that sees a download gets the file in its own
//! scratch directory. If each script set its own directory, the last one would win, and the
//! end of any one would reset it for all.
//!
//! ```text
//! relay --DownloadStarted----> Downloads::reference   (the file is kept while a DownloadRef lives)
//! relay --DownloadCompleted--> ScriptDownloads::deliver: downloads/GUID --link--> scratch/GUID
//! last DownloadRef dropped --> setting task: cancels the download and removes the file
//! ```
//!
//! The setting task owns the CDP connection that holds Chromium's download setting.

mod delivery;

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};

pub(super) use self::delivery::ScriptDownloads;
use super::relay::DownloadSettings;
use crate::{
    agent::chromium::Devtools,
    shutdown::Shutdown,
    system::{
        cdp::{
            connection::{Cdp, CdpError},
            multiplexer::Multiplexer,
        },
        files::remove::remove_file_if_exists,
    },
};

/// The timeout of each DevTools call that downloads need.
const CDP_CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// The downloads of one Chromium.
#[derive(Debug)]
pub(super) struct Downloads {
    directory: PathBuf,
    settings: watch::Receiver<Option<DownloadSettings>>,
    /// The number of calls that use a download, by guid.
    reference_counts: Mutex<HashMap<String, usize>>,
    pending_work: Arc<Mutex<PendingWork>>,
    /// Wakes the setting task.
    wake: mpsc::Sender<()>,
}

/// The work of the setting task.
#[derive(Debug, Default)]
struct PendingWork {
    /// Whether to renew the setting, which a client of the browser may have changed.
    renew_setting: bool,
    /// The downloads that no call uses any more.
    discard: Vec<String>,
}

/// A reference of one call to a download. Dropping the last one removes the file.
#[derive(Debug)]
pub(super) struct DownloadRef {
    guid: String,
    downloads: Arc<Downloads>,
}

impl Downloads {
    /// Makes this Chromium save its downloads in `directory` while the returned value lives.
    pub(super) fn start(devtools: &Devtools, directory: &Path, shutdown: &Shutdown) -> Arc<Self> {
        let (wake, wakeups) = mpsc::channel(1);
        let (settings_sender, settings) = watch::channel(None);
        let pending_work = Arc::default();
        let task = SettingTask {
            multiplexer: devtools.multiplexer.clone(),
            directory: directory.to_owned(),
            pending_work: Arc::clone(&pending_work),
        };
        shutdown.spawn(task.run(settings_sender, wakeups));
        Arc::new(Downloads {
            directory: directory.to_owned(),
            settings,
            reference_counts: Mutex::default(),
            pending_work,
            wake,
        })
    }

    /// Waits until Chromium has its setting, and returns it for a worker's relay.
    pub(super) async fn settings(&self) -> DownloadSettings {
        let mut settings = self.settings.clone();
        match settings.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(settings)) => settings.clone(),
            _ => DownloadSettings::in_directory(&self.directory),
        }
    }

    /// Makes the setting task set Chromium's download directory again.
    pub(super) fn renew_setting(&self) {
        self.pending_work.lock().renew_setting = true;
        self.wake();
    }

    fn wake(&self) {
        // If the channel is full, the task is going to wake anyway.
        let _ = self.wake.try_send(());
    }

    /// Keeps the download until the returned reference is dropped.
    pub(super) fn reference(self: &Arc<Self>, guid: &str) -> DownloadRef {
        *self
            .reference_counts
            .lock()
            .entry(guid.to_owned())
            .or_default() += 1;
        DownloadRef {
            guid: guid.to_owned(),
            downloads: self.clone(),
        }
    }

    fn release(&self, guid: &str) {
        let mut counts = self.reference_counts.lock();
        if let Some(count) = counts.get_mut(guid) {
            *count -= 1;
            if *count == 0 {
                counts.remove(guid);
                self.pending_work.lock().discard.push(guid.to_owned());
                self.wake();
            }
        }
    }
}

impl Drop for DownloadRef {
    fn drop(&mut self) {
        self.downloads.release(&self.guid);
    }
}

/// The task that sets Chromium's download directory and keeps the connection open: Chromium resets
/// the setting when the connection closes.
struct SettingTask {
    multiplexer: Multiplexer,
    directory: PathBuf,
    pending_work: Arc<Mutex<PendingWork>>,
}

impl SettingTask {
    async fn run(
        self,
        settings_sender: watch::Sender<Option<DownloadSettings>>,
        mut wakeups: mpsc::Receiver<()>,
    ) {
        let mut settings = DownloadSettings::in_directory(&self.directory);
        let cdp = match self.connect().await {
            Ok((cdp, context)) => {
                settings.events_context = Some(context);
                Some(cdp)
            }
            Err(error) => {
                tracing::warn!(%error, "cannot set Chromium's download directory");
                None
            }
        };
        settings_sender.send_replace(Some(settings));
        while wakeups.recv().await.is_some() {
            let work = std::mem::take(&mut *self.pending_work.lock());
            if let Some(cdp) = &cdp {
                self.update_chromium(cdp, &work).await;
            }
            for guid in work.discard {
                remove(&self.directory.join(format!("{guid}.crdownload")));
                remove(&self.directory.join(guid));
            }
        }
    }

    async fn connect(&self) -> Result<(Cdp, String), CdpError> {
        let cdp = Cdp::connect(&self.multiplexer, CDP_CALL_TIMEOUT).await?;
        cdp.save_downloads_in(&self.directory).await?;
        let context = cdp.create_context().await?;
        Ok((cdp, context))
    }

    async fn update_chromium(&self, cdp: &Cdp, work: &PendingWork) {
        if work.renew_setting
            && let Err(error) = cdp.save_downloads_in(&self.directory).await
        {
            tracing::debug!(%error, "cannot renew Chromium's download directory");
        }
        for guid in &work.discard {
            // This fails for a complete download.
            let _ = cdp.cancel_download(guid).await;
        }
    }
}

fn remove(path: &Path) {
    if let Err(error) = remove_file_if_exists(path) {
        tracing::warn!(path = %path.display(), %error, "cannot remove a download");
    }
}

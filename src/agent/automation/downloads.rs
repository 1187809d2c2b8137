//! What Chromium downloads while scripts run.
//!
//! Chromium has one folder for all downloads; each script that sees one gets it in its own directory. Were each script to name a
//! folder of its own, the last one would win, and each one's end would undo it for all.

use std::{
    collections::HashMap,
    fs::{self, File, OpenOptions},
    io::{self, Read},
    os::{
        fd::AsFd,
        unix::fs::{OpenOptionsExt, PermissionsExt},
    },
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use nix::{
    fcntl::{AtFlags, OFlag, openat},
    sys::stat::Mode,
    unistd::linkat,
};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{mpsc, watch};

use super::relay::DownloadsPlace;
use crate::{
    agent::chromium::Devtools,
    shutdown::Shutdown,
    system::{
        cdp::connection::{Cdp, CdpError},
        script::worker::{DOWNLOADS, MAX_ENTRIES},
    },
};

/// For each of the calls to DevTools that downloads need.
const CALL_DEADLINE: Duration = Duration::from_secs(5);
/// What scripts get: to be read by whoever they run as, and changed by nobody, since several may share it.
const READ_ONLY: u32 = 0o444;

/// The downloads of one Chromium.
#[derive(Debug)]
pub struct Downloads {
    folder: PathBuf,
    place: watch::Receiver<Option<DownloadsPlace>>,
    /// By guid: how many calls want it.
    wanted: Mutex<HashMap<String, usize>>,
    todo: Arc<Mutex<Todo>>,
    /// Says that there is something to do.
    wake: mpsc::Sender<()>,
}

/// For the task that keeps Chromium's setting.
#[derive(Debug, Default)]
struct Todo {
    /// Make the setting again: a client of the browser may have changed it.
    set: bool,
    /// What nobody wants any more.
    discard: Vec<String>,
}

/// One call's hold on a download. The file goes when the last is dropped.
#[derive(Debug)]
pub struct Wanted {
    guid: String,
    downloads: Arc<Downloads>,
}

impl Downloads {
    /// Has this Chromium save its downloads in `folder`, for as long as the value lives.
    pub fn of(devtools: &Devtools, folder: &Path, shutdown: &Shutdown) -> Arc<Self> {
        let (wake, woken) = mpsc::channel(1);
        let (tell, place) = watch::channel(None);
        let todo = Arc::default();
        let keeper = Keeper {
            browser_url: devtools.browser_url(),
            folder: folder.to_owned(),
            todo: Arc::clone(&todo),
        };
        shutdown.spawn(keeper.keep(tell, woken));
        Arc::new(Downloads {
            folder: folder.to_owned(),
            place,
            wanted: Mutex::default(),
            todo,
            wake,
        })
    }

    /// What a worker's relay needs to know, once Chromium has its setting.
    pub async fn place(&self) -> DownloadsPlace {
        let mut place = self.place.clone();
        match place.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(place)) => place.clone(),
            _ => DownloadsPlace::in_folder(&self.folder),
        }
    }

    /// Makes Chromium's setting again.
    pub fn set(&self) {
        locked(&self.todo).set = true;
        self.wake();
    }

    fn wake(&self) {
        // One that waits already says as much.
        let _ = self.wake.try_send(());
    }

    pub fn want(self: &Arc<Self>, guid: &str) -> Wanted {
        *locked(&self.wanted).entry(guid.to_owned()).or_default() += 1;
        Wanted {
            guid: guid.to_owned(),
            downloads: self.clone(),
        }
    }

    fn release(&self, guid: &str) {
        let mut wanted = locked(&self.wanted);
        if let Some(count) = wanted.get_mut(guid) {
            *count -= 1;
            if *count == 0 {
                wanted.remove(guid);
                locked(&self.todo).discard.push(guid.to_owned());
                self.wake();
            }
        }
    }
}

impl Drop for Wanted {
    fn drop(&mut self) {
        self.downloads.release(&self.guid);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

/// Makes the setting and keeps its connection open: Chromium forgets it with the connection.
struct Keeper {
    browser_url: String,
    folder: PathBuf,
    todo: Arc<Mutex<Todo>>,
}

impl Keeper {
    async fn keep(
        self,
        tell: watch::Sender<Option<DownloadsPlace>>,
        mut woken: mpsc::Receiver<()>,
    ) {
        let mut place = DownloadsPlace::in_folder(&self.folder);
        let cdp = match self.set_up().await {
            Ok((cdp, context)) => {
                place.events_context = Some(context);
                Some(cdp)
            }
            Err(error) => {
                tracing::warn!(%error, "Chromium was not told where to save downloads");
                None
            }
        };
        tell.send_replace(Some(place));
        while woken.recv().await.is_some() {
            let todo = std::mem::take(&mut *locked(&self.todo));
            if let Some(cdp) = &cdp {
                self.tell_chromium(cdp, &todo).await;
            }
            for guid in todo.discard {
                remove(&self.folder.join(format!("{guid}.crdownload")));
                remove(&self.folder.join(guid));
            }
        }
    }

    async fn set_up(&self) -> Result<(Cdp, String), CdpError> {
        let cdp = Cdp::connect(&self.browser_url, CALL_DEADLINE).await?;
        cdp.save_downloads_in(&self.folder).await?;
        let context = cdp.make_context().await?;
        Ok((cdp, context))
    }

    async fn tell_chromium(&self, cdp: &Cdp, todo: &Todo) {
        if todo.set
            && let Err(error) = cdp.save_downloads_in(&self.folder).await
        {
            tracing::debug!(%error, "telling Chromium where to save downloads");
        }
        for guid in &todo.discard {
            // One that is complete is refused.
            let _ = cdp.cancel_download(guid).await;
        }
    }
}

fn remove(path: &Path) {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(path = %path.display(), %error, "a download stays behind");
        }
        _ => {}
    }
}

/// Where one script finds its downloads, and how much its files may take.
#[derive(Debug)]
pub struct Shelf {
    scratch: PathBuf,
    bytes: u64,
    /// One download after the other, so that each sees what the one before has taken.
    turn: Mutex<()>,
}

#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    #[error(
        "EDQUOT: disk quota exceeded: the download has {size} bytes, and the script's files may take {left} bytes more (--script-files-mb)"
    )]
    TooLarge { size: u64, left: u64 },
    #[error("EDQUOT: disk quota exceeded: a script may have {MAX_ENTRIES} files")]
    TooMany,
    #[error("the download could not be given to the script: {0}")]
    Io(#[from] io::Error),
}

impl From<nix::Error> for PlaceError {
    fn from(error: nix::Error) -> Self {
        PlaceError::Io(error.into())
    }
}

impl Shelf {
    pub fn new(scratch: &Path, scratch_mb: u32) -> Self {
        Shelf {
            scratch: scratch.to_owned(),
            bytes: u64::from(scratch_mb) << 20,
            turn: Mutex::default(),
        }
    }

    /// Gives the script a complete download. Blocks.
    pub fn place(
        &self,
        downloads: &Downloads,
        guid: &str,
        saved_as: Option<&Path>,
    ) -> Result<(), PlaceError> {
        let _turn = locked(&self.turn);
        let ours = downloads.folder.join(guid);
        // A client of the browser may have had it saved elsewhere.
        let source = saved_as.unwrap_or(&ours);
        let file = OpenOptions::new()
            .read(true)
            .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits())
            .open(source)?;
        let found = file.metadata()?;
        if !found.is_file() {
            return Err(io::Error::from(io::ErrorKind::InvalidInput).into());
        }
        self.check(found.len())?;
        let shelf = self.open()?;
        if source == ours {
            file.set_permissions(fs::Permissions::from_mode(READ_ONLY))?;
            let folder = File::open(&downloads.folder)?;
            let linked = linkat(folder.as_fd(), guid, shelf.as_fd(), guid, AtFlags::empty());
            if linked.is_ok() {
                return Ok(());
            }
        }
        // It lies on another disk, or is somebody else's.
        copy(file, found.len(), &shelf, guid)
    }

    fn check(&self, size: u64) -> Result<(), PlaceError> {
        let (mut taken, mut entries) = (0, 0);
        add_up(&self.scratch, &mut taken, &mut entries)?;
        let left = self.bytes.saturating_sub(taken);
        if size > left {
            return Err(PlaceError::TooLarge { size, left });
        }
        // The directory of downloads is nobody's entry.
        if entries > MAX_ENTRIES {
            return Err(PlaceError::TooMany);
        }
        Ok(())
    }

    /// The script's user owns what is in the directory: nothing there may lead elsewhere.
    fn open(&self) -> Result<File, PlaceError> {
        let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let scratch = File::open(&self.scratch)?;
        Ok(openat(&scratch, DOWNLOADS, flags, Mode::empty())?.into())
    }
}

fn copy(file: File, length: u64, shelf: &File, guid: &str) -> Result<(), PlaceError> {
    let flags =
        OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let mut made = File::from(openat(shelf, guid, flags, Mode::from_bits_truncate(0o600))?);
    io::copy(&mut file.take(length), &mut made)?;
    made.set_permissions(fs::Permissions::from_mode(READ_ONLY))?;
    Ok(())
}

/// Bytes and entries beneath a directory; stops looking once there are too many.
fn add_up(directory: &Path, bytes: &mut u64, entries: &mut usize) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        *entries += 1;
        if *entries > MAX_ENTRIES {
            return Ok(());
        }
        // Not of what a link leads to. A file that has just gone takes nothing.
        let Ok(found) = entry.metadata() else {
            continue;
        };
        if found.is_dir() {
            add_up(&entry.path(), bytes, entries)?;
        } else {
            *bytes += found.len();
        }
    }
    Ok(())
}

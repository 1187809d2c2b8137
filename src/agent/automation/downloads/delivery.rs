//! Delivering complete downloads into a script's scratch directory, within its quota.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read},
    os::{
        fd::AsFd,
        unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt},
    },
    path::{Path, PathBuf},
};

use nix::{
    fcntl::{AtFlags, OFlag, openat},
    sys::stat::Mode,
    unistd::linkat,
};
use parking_lot::Mutex;

use super::Downloads;
use crate::system::script::worker::{DOWNLOADS, MAX_ENTRIES};

/// The mode of delivered files: readable by any user that a script runs as, and writable by none,
/// because several scripts may share a file.
const READ_ONLY: u32 = 0o444;

/// The downloads of one script: where it finds them, and how much space its files may take.
#[derive(Debug)]
pub(crate) struct ScriptDownloads {
    scratch: PathBuf,
    quota_bytes: u64,
    /// Serializes deliveries, so that each one counts the files of those before it.
    delivery_lock: Mutex<()>,
}

/// Why a download was not delivered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DeliveryError {
    #[error(
        "EDQUOT: disk quota exceeded: the download has {size} bytes, and the script's files may take {remaining} bytes more (--script-files-mb)"
    )]
    TooLarge { size: u64, remaining: u64 },
    #[error("EDQUOT: disk quota exceeded: file limit of the script reached ({MAX_ENTRIES})")]
    TooMany,
    #[error("cannot deliver the download to the script: {0}")]
    Io(#[from] io::Error),
}

impl From<nix::Error> for DeliveryError {
    fn from(error: nix::Error) -> Self {
        DeliveryError::Io(error.into())
    }
}

impl ScriptDownloads {
    pub(crate) fn new(scratch: &Path, quota_mb: u32) -> Self {
        Self {
            scratch: scratch.to_owned(),
            quota_bytes: u64::from(quota_mb) << 20,
            delivery_lock: Mutex::default(),
        }
    }

    /// Links or copies a complete download into the script's directory. Blocks.
    pub(crate) fn deliver(
        &self,
        downloads: &Downloads,
        guid: &str,
        saved_as: Option<&Path>,
    ) -> Result<(), DeliveryError> {
        let _guard = self.delivery_lock.lock();
        let default_path = downloads.directory.join(guid);
        // A client of the browser may have made Chromium save it elsewhere.
        let source = saved_as.unwrap_or(&default_path);
        let file = OpenOptions::new()
            .read(true)
            .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits())
            .open(source)?;
        let metadata = file.metadata()?;
        // The browser names the path, and the agent may read more than the browser.
        let owner = fs::metadata(&downloads.directory)?.uid();
        if !metadata.is_file() || metadata.uid() != owner {
            return Err(io::Error::from(io::ErrorKind::InvalidInput).into());
        }
        self.check_quota(metadata.len())?;
        let target = self.open_target()?;
        if source == default_path {
            file.set_permissions(fs::Permissions::from_mode(READ_ONLY))?;
            let directory = File::open(&downloads.directory)?;
            let flags = AtFlags::empty();
            if linkat(directory.as_fd(), guid, target.as_fd(), guid, flags).is_ok() {
                return Ok(());
            }
        }
        // The file is on another file system, or belongs to another user.
        copy(file, metadata.len(), &target, guid)
    }

    fn check_quota(&self, size: u64) -> Result<(), DeliveryError> {
        let (mut used_bytes, mut entries) = (0, 0);
        add_up(&self.scratch, &mut used_bytes, &mut entries)?;
        let remaining = self.quota_bytes.saturating_sub(used_bytes);
        if size > remaining {
            return Err(DeliveryError::TooLarge { size, remaining });
        }
        // `entries` includes the directory of downloads, which does not count.
        if entries > MAX_ENTRIES {
            return Err(DeliveryError::TooMany);
        }
        Ok(())
    }

    /// Opens the script's directory of downloads. The script's user can replace it, so symbolic
    /// links are not followed.
    fn open_target(&self) -> Result<File, DeliveryError> {
        let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let scratch = File::open(&self.scratch)?;
        Ok(openat(&scratch, DOWNLOADS, flags, Mode::empty())?.into())
    }
}

fn copy(source: File, length: u64, directory: &File, name: &str) -> Result<(), DeliveryError> {
    let flags =
        OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let mode = Mode::from_bits_truncate(0o600);
    let mut copied = File::from(openat(directory, name, flags, mode)?);
    io::copy(&mut source.take(length), &mut copied)?;
    copied.set_permissions(fs::Permissions::from_mode(READ_ONLY))?;
    Ok(())
}

/// Adds up the bytes and entries below a directory. Stops above [`MAX_ENTRIES`].
fn add_up(directory: &Path, bytes: &mut u64, entries: &mut usize) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        *entries += 1;
        if *entries > MAX_ENTRIES {
            return Ok(());
        }
        // This does not follow links. A file removed meanwhile takes no space.
        let Ok(metadata) = entry.metadata() else {
            continue;
        };
        if metadata.is_dir() {
            add_up(&entry.path(), bytes, entries)?;
        } else {
            *bytes += metadata.len();
        }
    }
    Ok(())
}

//! A disk that is found by the label of its file system, such as one with settings.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    mount::{MntFlags, MsFlags, mount, umount2},
};

/// The directory with a link for each label, which udev keeps.
const BY_LABEL: &str = "/dev/disk/by-label";
/// The file systems that it can have.
const FILE_SYSTEMS: [&str; 3] = ["iso9660", "vfat", "ext4"];

/// A file of a disk.
pub struct DiskFile {
    /// The label and the name, for messages.
    pub path: String,
    pub text: String,
}

/// A disk that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    #[error("cannot mount the disk {0}: {1}")]
    NotMounted(String, io::Error),
    #[error("cannot read {0}: {1}")]
    Unreadable(String, io::Error),
    #[error("{0} is larger than {1} bytes")]
    TooLarge(String, u64),
}

/// Reads the first of the files that the first disk with one of the labels has. Returns `None`
/// without such a disk or file.
///
/// # Errors
/// Fails if the disk cannot be mounted, or the file is too large or not a text.
pub fn read_file(
    labels: &[&str],
    names: &[&str],
    limit: u64,
) -> Result<Option<DiskFile>, DiskError> {
    let mut with_label = labels
        .iter()
        .map(|label| (*label, Path::new(BY_LABEL).join(label)));
    let Some((label, device)) = with_label.find(|(_, device)| device.exists()) else {
        return Ok(None);
    };
    let not_mounted = |error| DiskError::NotMounted(label.to_owned(), error);
    let mounted = Mounted::new(&device).map_err(not_mounted)?;
    for name in names {
        let file = mounted.directory.path().join(name);
        if let Some(text) = read_text(&file, &format!("{label}/{name}"), limit)? {
            let path = format!("{name} on the disk {label}");
            return Ok(Some(DiskFile { path, text }));
        }
    }
    Ok(None)
}

fn read_text(file: &Path, name: &str, limit: u64) -> Result<Option<String>, DiskError> {
    let unreadable = |error| DiskError::Unreadable(name.to_owned(), error);
    let opened = match File::open(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(unreadable)?,
    };
    let mut text = String::new();
    let read = opened.take(limit + 1).read_to_string(&mut text);
    match read.map_err(unreadable)? as u64 > limit {
        true => Err(DiskError::TooLarge(name.to_owned(), limit)),
        false => Ok(Some(text)),
    }
}

/// A disk that is mounted read-only, until it is dropped.
struct Mounted {
    directory: tempfile::TempDir,
}

impl Mounted {
    fn new(device: &Path) -> io::Result<Self> {
        let device: PathBuf = fs::canonicalize(device)?;
        let directory = tempfile::tempdir()?;
        let flags =
            MsFlags::MS_RDONLY | MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        let mut last = Errno::ENODEV;
        for kind in FILE_SYSTEMS {
            match mount(
                Some(&device),
                directory.path(),
                Some(kind),
                flags,
                None::<&str>,
            ) {
                Ok(()) => return Ok(Self { directory }),
                Err(error) => last = error,
            }
        }
        Err(last.into())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(error) = umount2(self.directory.path(), MntFlags::MNT_DETACH) {
            tracing::warn!(%error, "cannot unmount a disk");
        }
    }
}

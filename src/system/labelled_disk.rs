//! A disk that is found by the label of its file system, such as one with settings.

use std::{fs, io, path::Path};

use nix::{
    errno::Errno,
    mount::{MntFlags, MsFlags, mount, umount2},
};
use tempfile::TempDir;

/// The directory with a link for each label, which udev keeps.
const BY_LABEL: &str = "/dev/disk/by-label";
/// The file systems that it can have.
const FILE_SYSTEMS: [&str; 3] = ["iso9660", "vfat", "ext4"];

/// A disk that cannot be mounted.
#[derive(Debug, thiserror::Error)]
#[error("cannot mount the disk {label}: {source}")]
pub struct DiskError {
    label: String,
    source: io::Error,
}

/// A disk that is mounted read-only, until it is dropped.
pub struct LabelledDisk {
    pub label: String,
    mount_point: TempDir,
}

impl LabelledDisk {
    /// Mounts the first disk that has one of the labels. Returns `None` without such a disk.
    ///
    /// # Errors
    /// Fails if the disk cannot be mounted.
    pub fn mount(labels: &[&str]) -> Result<Option<Self>, DiskError> {
        let with_device = |label: &&str| (label.to_string(), Path::new(BY_LABEL).join(label));
        let mut disks = labels.iter().map(with_device);
        let Some((label, device)) = disks.find(|(_, device)| device.exists()) else {
            return Ok(None);
        };
        match mount_read_only(&device) {
            Ok(mount_point) => Ok(Some(Self { label, mount_point })),
            Err(source) => Err(DiskError { label, source }),
        }
    }

    /// Returns the directory that it is mounted on.
    #[must_use]
    pub fn root(&self) -> &Path {
        self.mount_point.path()
    }
}

impl Drop for LabelledDisk {
    fn drop(&mut self) {
        if let Err(error) = umount2(self.root(), MntFlags::MNT_DETACH) {
            tracing::warn!(%error, "cannot unmount a disk");
        }
    }
}

fn mount_read_only(device: &Path) -> io::Result<TempDir> {
    let device = fs::canonicalize(device)?;
    let directory = tempfile::tempdir()?;
    let flags = MsFlags::MS_RDONLY | MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    let mut last = Errno::ENODEV;
    for kind in FILE_SYSTEMS {
        let target = directory.path();
        match mount(Some(&device), target, Some(kind), flags, None::<&str>) {
            Ok(()) => return Ok(directory),
            Err(error) => last = error,
        }
    }
    Err(last.into())
}

//! Recognises file systems whose files the kernel generates, such as `/proc`.

use std::{io, os::fd::AsFd};

use nix::sys::statfs::{self, FsType, fstatfs};

/// The virtual file systems. Some of their files are endless, some block their reader forever, and
/// reading some has side effects.
const VIRTUAL: [FsType; 15] = [
    statfs::PROC_SUPER_MAGIC,
    statfs::SYSFS_MAGIC,
    statfs::DEBUGFS_MAGIC,
    statfs::TRACEFS_MAGIC,
    statfs::SECURITYFS_MAGIC,
    statfs::CGROUP_SUPER_MAGIC,
    statfs::CGROUP2_SUPER_MAGIC,
    statfs::BPF_FS_MAGIC,
    statfs::DEVPTS_SUPER_MAGIC,
    statfs::SELINUX_MAGIC,
    // pstore, efivarfs, configfs, fusectl and binfmt_misc, which `nix` has no constants for.
    FsType(0x6165_676c),
    FsType(0xde5e_81e4),
    FsType(0x6265_6570),
    FsType(0x6573_5543),
    FsType(0x4249_4e4d),
];

/// Returns whether an open file or directory is on a virtual file system.
///
/// # Errors
/// If the type of its file system cannot be read.
pub fn is_virtual(file: impl AsFd) -> io::Result<bool> {
    let kind = fstatfs(file)?.filesystem_type();
    Ok(VIRTUAL.contains(&kind))
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn virtual_file_systems_are_recognised() {
        for path in ["/proc", "/proc/self/status", "/sys"] {
            assert!(is_virtual(File::open(path).unwrap()).unwrap());
        }
        let directory = tempfile::tempdir().unwrap();
        assert!(!is_virtual(File::open(directory.path()).unwrap()).unwrap());
    }
}

//! File systems that hold no files but answers of the kernel.

use std::{io, os::fd::AsFd};

use nix::sys::statfs::{self, FsType, fstatfs};

/// Some of what is in these is endless, some makes its reader wait for ever, and to read some does something.
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
    // pstore, efivarfs, configfs, fusectl and binfmt_misc, which have no name there.
    FsType(0x6165_676c),
    FsType(0xde5e_81e4),
    FsType(0x6265_6570),
    FsType(0x6573_5543),
    FsType(0x4249_4e4d),
];

/// Whether the open file or directory is of such a file system.
///
/// # Errors
/// Where its file system does not say what it is.
pub fn is_virtual(file: impl AsFd) -> io::Result<bool> {
    let kind = fstatfs(file)?.filesystem_type();
    Ok(VIRTUAL.contains(&kind))
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn what_the_kernel_makes_up_is_told_from_what_is_stored() {
        for made_up in ["/proc", "/proc/self/status", "/sys"] {
            assert!(is_virtual(File::open(made_up).unwrap()).unwrap());
        }
        let folder = tempfile::tempdir().unwrap();
        assert!(!is_virtual(File::open(folder.path()).unwrap()).unwrap());
    }
}

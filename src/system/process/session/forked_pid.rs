//! The pid of the newest process of the fork server, in memory that the server shares with the
//! agent. The kernel writes it before the process runs, so it is known even if the server has ended
//! without a reply.

use std::{
    fs::File,
    io,
    num::NonZero,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::FileExt,
    },
};

use nix::{
    libc::{c_void, pid_t},
    sys::{
        memfd::{MFdFlags, memfd_create},
        mman::{MapFlags, ProtFlags, mmap},
    },
    unistd::Pid,
};

/// The size of the memory in bytes: one page.
const SIZE: NonZero<usize> = NonZero::new(4096).unwrap();

/// The agent's access to the memory.
#[derive(Debug)]
pub(super) struct ForkedPid(File);

impl ForkedPid {
    pub(super) fn new() -> io::Result<Self> {
        let memory = File::from(memfd_create("forked-pid", MFdFlags::MFD_CLOEXEC)?);
        memory.set_len(SIZE.get() as u64)?;
        Ok(ForkedPid(memory))
    }

    /// Returns the descriptor for [`map`].
    pub(super) fn descriptor(&self) -> io::Result<OwnedFd> {
        self.0.as_fd().try_clone_to_owned()
    }

    /// Forgets the pid of the process before.
    pub(super) fn clear(&self) -> io::Result<()> {
        self.0.write_all_at(&pid_t::to_ne_bytes(0), 0)
    }

    /// Returns the pid of the process that was forked since the memory was cleared, if any.
    pub(super) fn get(&self) -> io::Result<Option<Pid>> {
        let mut pid = pid_t::to_ne_bytes(0);
        self.0.read_exact_at(&mut pid, 0)?;
        let pid = pid_t::from_ne_bytes(pid);
        Ok((pid != 0).then(|| Pid::from_raw(pid)))
    }
}

/// Maps the memory in the server, for as long as it runs. Returns where the kernel has to write the
/// pid.
#[expect(unsafe_code, reason = "maps memory")]
pub(super) fn map(memory: impl AsFd) -> io::Result<*mut pid_t> {
    let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    // SAFETY: the mapping replaces no other one, and no Rust value is in it.
    let mapped = unsafe { mmap(None, SIZE, protection, MapFlags::MAP_SHARED, memory, 0) }?;
    Ok(mapped.cast::<c_void>().as_ptr().cast())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(unsafe_code, reason = "writes as the kernel does")]
    fn pid_that_is_written_to_the_mapped_memory_is_known_until_it_is_cleared() {
        let forked = ForkedPid::new().unwrap();
        assert_eq!(forked.get().unwrap(), None);
        let mapped = map(forked.descriptor().unwrap()).unwrap();
        // SAFETY: the mapping is longer, aligned to a page, and stays.
        unsafe { mapped.write(7) };
        assert_eq!(forked.get().unwrap(), Some(Pid::from_raw(7)));
        forked.clear().unwrap();
        assert_eq!(forked.get().unwrap(), None);
    }
}

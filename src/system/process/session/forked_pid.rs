//! The pid of the newest process of the fork server, in memory that the server shares with the
//! agent. The kernel writes it before the process runs, so it is known even if the server has ended
//! without a reply.

use std::{
    fs::File,
    io,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::fs::FileExt,
    },
};

use memmap2::{MmapOptions, MmapRaw};
use nix::{
    libc::pid_t,
    sys::memfd::{MFdFlags, memfd_create},
    unistd::Pid,
};

/// The size of the memory in bytes.
const SIZE: usize = size_of::<pid_t>();

/// The agent's access to the memory.
#[derive(Debug)]
pub(super) struct ForkedPid(File);

impl ForkedPid {
    pub(super) fn new() -> io::Result<Self> {
        let memory = File::from(memfd_create("forked-pid", MFdFlags::MFD_CLOEXEC)?);
        memory.set_len(SIZE as u64)?;
        Ok(ForkedPid(memory))
    }

    /// Returns the descriptor for [`map`].
    pub(super) fn descriptor(&self) -> io::Result<OwnedFd> {
        Ok(self.0.try_clone()?.into())
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

/// Maps the memory in the server. The kernel writes the pid to its start.
pub(super) fn map(memory: &impl AsRawFd) -> io::Result<MmapRaw> {
    MmapOptions::new().len(SIZE).map_raw(memory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(unsafe_code, reason = "writes as the kernel does")]
    fn pid_that_is_written_to_the_mapped_memory_is_known_until_it_is_cleared() {
        let forked = ForkedPid::new().unwrap();
        assert_eq!(forked.get().unwrap(), None);
        let mapped = map(&forked.descriptor().unwrap()).unwrap();
        // SAFETY: the mapping has this size and is aligned to a page.
        unsafe { mapped.as_mut_ptr().cast::<pid_t>().write(7) };
        assert_eq!(forked.get().unwrap(), Some(Pid::from_raw(7)));
        forked.clear().unwrap();
        assert_eq!(forked.get().unwrap(), None);
    }
}

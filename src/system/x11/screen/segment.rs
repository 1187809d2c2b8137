#![allow(
    unsafe_code,
    reason = "memory shared with the X server can only be mapped that way"
)]
//! Memory that the X server writes pixels to and we read them from (MIT-SHM).

use std::{fs::File, io, os::fd::OwnedFd};

use memmap2::MmapMut;
use nix::sys::memfd::{MFdFlags, memfd_create};
use x11rb::protocol::shm::{ConnectionExt as _, Seg};

use crate::system::x11::server::Link;
use crate::system::x11::server::X11Error;

/// The server lets go of it with the connection, or by [`Segment::detach`].
pub struct Segment {
    id: Seg,
    memory: MmapMut,
}

impl Segment {
    /// `len` must not be 0.
    pub fn attach(link: &Link, len: usize) -> Result<Self, X11Error> {
        use x11rb::connection::Connection;
        let file =
            File::from(memfd_create("screen", MFdFlags::MFD_CLOEXEC).map_err(io::Error::from)?);
        file.set_len(len as u64)?;
        // SAFETY: nobody else but the X server has this file, which neither shrinks it nor writes to it but while a request of ours asks it to; the
        // answer is waited for before the memory is read.
        let memory = unsafe { MmapMut::map_mut(&file) }?;
        let id = link.generate_id()?;
        link.shm_attach_fd(id, OwnedFd::from(file), false)?
            .check()?;
        Ok(Self { id, memory })
    }

    pub fn id(&self) -> Seg {
        self.id
    }

    pub fn bytes(&self) -> &[u8] {
        &self.memory
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory
    }

    pub fn detach(self, link: &Link) -> Result<(), X11Error> {
        link.shm_detach(self.id)?;
        Ok(())
    }
}

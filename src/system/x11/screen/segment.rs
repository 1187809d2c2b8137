//! Memory shared with the X server (MIT-SHM), which the server writes pixels to.
#![allow(
    unsafe_code,
    reason = "memory shared with the X server can only be mapped that way"
)]

use std::{fs::File, io, os::fd::OwnedFd};

use memmap2::MmapMut;
use nix::sys::memfd::{MFdFlags, memfd_create};
use x11rb::{
    connection::Connection,
    protocol::shm::{ConnectionExt as _, Seg},
};

use crate::system::x11::server::{X11Error, XConnection};

/// A shared memory segment. The server detaches it when the connection closes, or by
/// [`Segment::detach`].
pub(super) struct Segment {
    id: Seg,
    memory: MmapMut,
}

impl Segment {
    /// Creates a segment and attaches the server to it. `len` must not be 0.
    pub(super) fn attach(x: &XConnection, len: usize) -> Result<Self, X11Error> {
        let file =
            File::from(memfd_create("screen", MFdFlags::MFD_CLOEXEC).map_err(io::Error::from)?);
        file.set_len(len as u64)?;
        // SAFETY: only this process and the X server have the file. The server never shrinks it and
        // writes to it only while it serves a request of this connection; callers read the memory
        // only after they have received all replies.
        let memory = unsafe { MmapMut::map_mut(&file) }?;
        let id = x.generate_id()?;
        x.shm_attach_fd(id, OwnedFd::from(file), false)?.check()?;
        Ok(Self { id, memory })
    }

    pub(super) fn id(&self) -> Seg {
        self.id
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.memory
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory
    }

    pub(super) fn detach(self, x: &XConnection) -> Result<(), X11Error> {
        x.shm_detach(self.id)?;
        Ok(())
    }
}

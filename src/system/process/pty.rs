//! Pseudo-terminals.

use std::{
    fmt,
    fs::File,
    io::{self, Read, Write},
    os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd},
};

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, OFlag, fcntl, open},
    sys::stat::Mode,
};
use parking_lot::Mutex;
use portable_pty::{MasterPty, PtySize, native_pty_system};
use tokio::io::{Interest, unix::AsyncFd};

/// The size of a terminal in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalSize {
    pub rows: u16,
    pub cols: u16,
}

impl From<TerminalSize> for PtySize {
    fn from(TerminalSize { rows, cols }: TerminalSize) -> Self {
        PtySize {
            rows,
            cols,
            ..PtySize::default()
        }
    }
}

/// Opens a pseudo-terminal. Returns its master side and the slave side for the program.
///
/// Call this on the thread that starts all children but programs of clients: the descriptors get
/// their close-on-exec flag only after they are opened, and a child forked in between would inherit
/// them. Programs of clients close all descriptors.
pub(super) fn open_pair(size: TerminalSize) -> io::Result<(UnregisteredTerminal, OwnedFd)> {
    let pair = native_pty_system()
        .openpty(size.into())
        .map_err(io::Error::other)?;
    let name = pair.master.tty_name();
    let name = name.ok_or_else(|| io::Error::other("the terminal has no name"))?;
    let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let slave = open(&name, flags, Mode::empty())?;
    let master = match pair.master.as_raw_fd() {
        // The async runtime gets a duplicate; `control` keeps the original.
        Some(master) => duplicate(master)?,
        None => return Err(io::Error::other("the terminal has no descriptor")),
    };
    fcntl(&master, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    let terminal = UnregisteredTerminal {
        control: pair.master,
        master,
    };
    Ok((terminal, slave))
}

#[expect(
    unsafe_code,
    reason = "portable_pty returns its descriptor as a number"
)]
fn duplicate(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the caller holds the owner of the descriptor for the duration of this call.
    unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned()
}

/// A terminal that is not yet registered with the async runtime.
pub(super) struct UnregisteredTerminal {
    control: Box<dyn MasterPty + Send>,
    master: OwnedFd,
}

impl UnregisteredTerminal {
    #[expect(
        unsafe_code,
        reason = "registering a bare descriptor is unsafe in tokio"
    )]
    pub(super) fn register(self) -> io::Result<Terminal> {
        let master = File::from(self.master);
        // SAFETY: the file owns its descriptor and is not replaced while it is registered.
        let master = unsafe { AsyncFd::register(master) }?;
        Ok(Terminal {
            control: Mutex::new(self.control),
            master,
        })
    }
}

/// The master side of a terminal.
pub struct Terminal {
    /// Used to set the size.
    control: Mutex<Box<dyn MasterPty + Send>>,
    master: AsyncFd<File>,
}

impl fmt::Debug for Terminal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Terminal")
            .field(&self.master.as_fd())
            .finish()
    }
}

impl Terminal {
    /// Waits until there may be data to read.
    pub async fn readable(&self) -> io::Result<()> {
        self.master.readable().await?.retain_ready();
        Ok(())
    }

    /// Reads available data without waiting. Returns 0 once no program has the terminal open.
    pub fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self
            .master
            .try_io(Interest::READABLE, |mut master| master.read(buffer));
        match read {
            Err(error) if error.raw_os_error() == Some(Errno::EIO as i32) => Ok(0),
            read => read,
        }
    }

    /// Waits until the terminal accepts data and writes as much as it accepts.
    pub async fn write(&self, data: &[u8]) -> io::Result<usize> {
        self.master
            .async_io(Interest::WRITABLE, |mut master| master.write(data))
            .await
    }

    /// Sets the size. The kernel sends SIGWINCH to the foreground process group.
    pub fn resize(&self, size: TerminalSize) -> io::Result<()> {
        let control = self.control.lock();
        control.resize(size.into()).map_err(io::Error::other)
    }
}

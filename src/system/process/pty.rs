//! Pseudo-terminals.

use std::{
    fmt,
    fs::File,
    io::{self, Read, Write},
    os::fd::{AsFd, OwnedFd},
};

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, OFlag, fcntl, open},
    sys::stat::Mode,
};
use parking_lot::Mutex;
use portable_pty::{MasterPty, PtySize, native_pty_system};
use tokio::io::{Interest, unix::AsyncFd};

/// Lines and columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    pub rows: u16,
    pub cols: u16,
}

impl From<Size> for PtySize {
    fn from(Size { rows, cols }: Size) -> Self {
        PtySize {
            rows,
            cols,
            ..PtySize::default()
        }
    }
}

/// A terminal of this size that nobody uses yet, and the end for the program.
///
/// To be called on the thread that starts all children: between two steps of this, another thread's child would inherit the descriptors.
pub(super) fn open_pair(size: Size) -> io::Result<(Unused, OwnedFd)> {
    let pair = native_pty_system()
        .openpty(size.into())
        .map_err(io::Error::other)?;
    let name = pair.master.tty_name();
    let name = name.ok_or_else(|| io::Error::other("the terminal has no name"))?;
    let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let slave = open(&name, flags, Mode::empty())?;
    let master = match pair.master.as_raw_fd() {
        // The clone is for the runtime; the original stays with its owner.
        Some(master) => open_again(master)?,
        None => return Err(io::Error::other("the terminal has no descriptor")),
    };
    fcntl(&master, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    let unused = Unused {
        control: pair.master,
        master,
    };
    Ok((unused, slave))
}

#[expect(unsafe_code, reason = "the crate hands out its descriptor as a number")]
fn open_again(number: std::os::fd::RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the caller holds the descriptor's owner while this clones it.
    unsafe { std::os::fd::BorrowedFd::borrow_raw(number) }.try_clone_to_owned()
}

/// A terminal that the runtime does not know of yet.
pub(super) struct Unused {
    control: Box<dyn MasterPty + Send>,
    master: OwnedFd,
}

impl Unused {
    #[expect(unsafe_code, reason = "the runtime watches a bare descriptor")]
    pub fn register(self) -> io::Result<Terminal> {
        let master = File::from(self.master);
        // SAFETY: the file owns its descriptor, and is not replaced while it is registered.
        let master = unsafe { AsyncFd::register(master) }?;
        Ok(Terminal {
            control: Mutex::new(self.control),
            master,
        })
    }
}

/// Our end of a terminal.
pub struct Terminal {
    /// For its size.
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
    /// Waits until there may be something to read.
    pub async fn readable(&self) -> io::Result<()> {
        self.master.readable().await?.retain_ready();
        Ok(())
    }

    /// What is there; 0 once every program has let go of the terminal.
    pub fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self
            .master
            .try_io(Interest::READABLE, |mut master| master.read(buffer));
        match read {
            Err(error) if error.raw_os_error() == Some(Errno::EIO as i32) => Ok(0),
            read => read,
        }
    }

    /// Writes what there is room for, once there is some.
    pub async fn write(&self, data: &[u8]) -> io::Result<usize> {
        self.master
            .async_io(Interest::WRITABLE, |mut master| master.write(data))
            .await
    }

    /// Tells the programs in front, too.
    pub fn resize(&self, size: Size) -> io::Result<()> {
        let control = self.control.lock();
        control.resize(size.into()).map_err(io::Error::other)
    }
}

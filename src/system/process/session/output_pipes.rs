//! The pipes of a program's output. Some are opened and registered ahead, because that takes 20 µs
//! of each start.

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
};

use nix::libc;
use parking_lot::Mutex;
use tokio::{net::unix::pipe, task};

/// The capacity of output pipes. With the kernel's default of 64 KiB, fast writers often block.
const CAPACITY: i32 = 256 << 10;
/// The number of programs whose pipes are opened ahead.
const SPARES: usize = 4;

/// The pipes of one program.
#[derive(Debug)]
pub struct OutputPipes {
    pub(super) stdout: PipeEnds,
    pub(super) stderr: PipeEnds,
}

/// Both ends of a pipe.
#[derive(Debug)]
pub(super) struct PipeEnds {
    pub(super) agent: pipe::Receiver,
    pub(super) program: OwnedFd,
}

impl OutputPipes {
    /// Opens the pipes. Must be called in a runtime.
    pub(super) fn open() -> io::Result<Self> {
        Ok(OutputPipes {
            stdout: PipeEnds::open()?,
            stderr: PipeEnds::open()?,
        })
    }

    /// Raises the capacities. The kernel limits the total per user, so this is not done ahead.
    pub(super) fn enlarge(&self) {
        self.stdout.enlarge();
        self.stderr.enlarge();
    }
}

impl PipeEnds {
    fn open() -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        Ok(PipeEnds {
            agent: pipe::Receiver::from_owned_fd(reader.into())?,
            program: writer.into(),
        })
    }

    #[expect(unsafe_code, reason = "nix does not set the capacity of tokio's pipes")]
    fn enlarge(&self) {
        // Failure is harmless: small pipes work too.
        // SAFETY: the descriptor is open, and the call accesses no memory.
        let _ = unsafe { libc::fcntl(self.agent.as_raw_fd(), libc::F_SETPIPE_SZ, CAPACITY) };
    }
}

/// Pipes that were opened ahead. They are registered with the runtime that refills them, in which
/// the programs must be started.
#[derive(Debug, Default)]
pub struct SparePipes(Mutex<Vec<OutputPipes>>);

impl SparePipes {
    /// Returns the pipes of one program, if there are any.
    pub fn take(&self) -> Option<OutputPipes> {
        self.0.lock().pop()
    }

    /// Opens those that are missing. Must be called in a runtime.
    pub async fn refill(&self) {
        while self.open_ahead() {
            task::yield_now().await;
        }
    }

    /// Opens the pipes of one program, if some are missing. Returns whether it has.
    fn open_ahead(&self) -> bool {
        let mut pipes = self.0.lock();
        // The start that needs some reports the error.
        pipes.len() < SPARES && OutputPipes::open().map(|opened| pipes.push(opened)).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn pipes_that_were_opened_ahead_are_used_once_and_replaced() {
        let spares = SparePipes::default();
        assert!(spares.take().is_none());
        for _ in 0..2 {
            spares.refill().await;
            let taken: Vec<_> = std::iter::from_fn(|| spares.take()).collect();
            assert_eq!(taken.len(), SPARES);
            for OutputPipes { mut stdout, stderr } in taken {
                nix::unistd::write(&stdout.program, b"output").unwrap();
                drop((stdout.program, stderr));
                let mut output = String::new();
                stdout.agent.read_to_string(&mut output).await.unwrap();
                assert_eq!(output, "output");
            }
        }
    }
}

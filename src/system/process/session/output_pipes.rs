//! The pipes of a program's output. Some are opened and registered ahead, after an earlier program
//! has ended, because that takes 20 µs of each start.

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use nix::libc;
use parking_lot::Mutex;
use tokio::net::unix::pipe;

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
pub struct SparePipes {
    pipes: Mutex<Vec<OutputPipes>>,
    is_refill_due: AtomicBool,
}

impl SparePipes {
    /// Returns the pipes of one program, if there are any.
    pub fn take(&self) -> Option<OutputPipes> {
        self.pipes.lock().pop()
    }

    /// Opens more, in another task.
    pub fn refill_soon(self: &Arc<Self>) {
        if !self.is_refill_due.swap(true, Relaxed) {
            let spares = self.clone();
            tokio::spawn(async move { spares.refill() });
        }
    }

    fn refill(&self) {
        while self.pipes.lock().len() < SPARES {
            // The start that needs some reports the error.
            let Ok(opened) = OutputPipes::open() else {
                break;
            };
            self.pipes.lock().push(opened);
        }
        self.is_refill_due.store(false, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn pipes_that_were_opened_ahead_are_used_once_and_replaced() {
        let spares = Arc::new(SparePipes::default());
        assert!(spares.take().is_none());
        for _ in 0..2 {
            spares.refill_soon();
            tokio::task::yield_now().await;
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

//! Reading what a process writes, always and at once, so that it never waits for anybody.

use std::{cell::RefCell, io, os::fd::OwnedFd, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use parking_lot::{Mutex, MutexGuard};
use tokio::{net::unix::pipe, task::JoinSet, time};
use tokio_util::sync::CancellationToken;

use super::budget::Share;
use crate::{
    api::process::{OutputStream, ProcessEvent},
    streams::{Bounds, Log},
    system::process::pty::Terminal,
};

/// Read at once at most; the kernel has at most so much of a pipe by default.
const CHUNK: usize = 64 << 10;
/// The largest that a program may make its own pipe without special rights.
const PIPE_MAX: usize = 1 << 20;
/// What an event takes besides its data.
const EVENT_BYTES: usize = 160;
/// Far more than come of a program that writes lines.
const MAX_EVENTS: usize = 1 << 16;

/// A terminal never has more than this at once.
const TERMINAL_CHUNK: usize = 4 << 10;

thread_local! {
    /// One for all outlets: nothing is awaited while it is in use.
    static BUFFER: RefCell<BytesMut> = RefCell::new(BytesMut::with_capacity(CHUNK));
}

pub type OutputLog = Log<Arc<ProcessEvent>>;

/// What was written to one stream, as far as it is kept.
#[derive(Debug, Default)]
pub struct Collected {
    pub data: Bytes,
    pub is_cut: bool,
}

/// What was written to both, and the memory it takes.
#[derive(Debug, Default)]
pub struct Collection {
    pub stdout: Collected,
    pub stderr: Collected,
    pub memory: Share,
}

/// Where output goes; clones lead to the same place.
#[derive(Debug, Clone)]
pub enum Sink {
    /// The newest is kept, for any number of readers.
    Log(OutputLog),
    /// The beginning is kept.
    Collect {
        limit: usize,
        collected: Arc<Mutex<Beginnings>>,
    },
}

#[derive(Debug, Default)]
pub struct Beginnings {
    stdout: (Vec<u8>, bool),
    stderr: (Vec<u8>, bool),
    memory: Share,
}

impl Sink {
    pub fn keeping(bytes: usize) -> (Self, OutputLog) {
        let log = Log::new(Bounds {
            entries: MAX_EVENTS,
            weight: bytes,
        });
        (Sink::Log(log.clone()), log)
    }

    /// Up to `limit` of each stream, and as much as there is `memory`.
    pub fn collecting(limit: usize, memory: Share) -> Self {
        let nothing = Beginnings {
            memory,
            ..Beginnings::default()
        };
        Sink::Collect {
            limit,
            collected: Arc::new(Mutex::new(nothing)),
        }
    }

    /// Takes what the buffer holds, and the buffer itself where that is full: a program that writes much is not copied once more.
    fn take(&self, stream: OutputStream, data: &mut BytesMut) {
        match self {
            Sink::Log(log) => {
                let data = match data.len() == data.capacity() {
                    true => data.split().freeze(),
                    false => Bytes::copy_from_slice(data),
                };
                let weight = data.len() + EVENT_BYTES;
                log.append(ProcessEvent::output(stream, data), weight);
            }
            Sink::Collect { limit, collected } => {
                let Beginnings {
                    stdout,
                    stderr,
                    memory,
                } = &mut *lock(collected);
                let (kept, is_cut) = match stream {
                    OutputStream::Stdout => stdout,
                    OutputStream::Stderr => stderr,
                };
                // After a gap nothing is a beginning any more.
                let room = match *is_cut {
                    true => 0,
                    false => memory.take((limit - kept.len()).min(data.len())),
                };
                kept.extend_from_slice(&data[..room]);
                *is_cut |= room < data.len();
            }
        }
    }

    /// Nothing comes after this.
    pub fn end(&self, exit_code: i32, output_open: bool) {
        if let Sink::Log(log) = self {
            log.end_with(ProcessEvent::exit(exit_code, output_open), EVENT_BYTES);
        }
    }

    /// The beginnings of both streams, which it then no longer has.
    pub fn collected(&self) -> Collection {
        let Sink::Collect { collected, .. } = self else {
            return Collection::default();
        };
        let Beginnings {
            stdout,
            stderr,
            memory,
        } = std::mem::take(&mut *lock(collected));
        let whole = |(mut data, is_cut): (Vec<u8>, bool)| {
            // It grew by doubling, and may be waited for by a slow client.
            data.shrink_to_fit();
            Collected {
                data: data.into(),
                is_cut,
            }
        };
        Collection {
            stdout: whole(stdout),
            stderr: whole(stderr),
            memory,
        }
    }
}

fn lock(collected: &Mutex<Beginnings>) -> MutexGuard<'_, Beginnings> {
    collected.lock()
}

/// Where a process's output comes from.
#[derive(Debug)]
pub enum Outlets {
    Pipes {
        stdout: pipe::Receiver,
        stderr: pipe::Receiver,
    },
    Terminal {
        terminal: Arc<Terminal>,
        /// See [`crate::system::process::session::Streams::Terminal`].
        slave: OwnedFd,
    },
}

/// One of them.
#[derive(Debug)]
pub enum Outlet {
    Pipe(pipe::Receiver),
    Terminal(Arc<Terminal>),
}

impl Outlet {
    /// Passes on what there is, once there is something: so many bytes, 0 at the end.
    async fn read(&self, take: impl Fn(&mut BytesMut)) -> io::Result<usize> {
        loop {
            // Readiness alone never gives way to other tasks, and some programs always have more to say.
            tokio::task::coop::consume_budget().await;
            match self {
                Outlet::Pipe(pipe) => pipe.readable().await?,
                Outlet::Terminal(terminal) => terminal.readable().await?,
            }
            match self.try_read(&take) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
        }
    }

    fn try_read(&self, take: impl Fn(&mut BytesMut)) -> io::Result<usize> {
        BUFFER.with_borrow_mut(|buffer| {
            buffer.clear();
            buffer.reserve(CHUNK);
            let read = match self {
                Outlet::Pipe(pipe) => pipe.try_read_buf(buffer)?,
                Outlet::Terminal(terminal) => {
                    buffer.resize(TERMINAL_CHUNK, 0);
                    let read = terminal.try_read(buffer)?;
                    buffer.truncate(read);
                    read
                }
            };
            take(buffer);
            Ok(read)
        })
    }

    /// Passes everything on to its end, or until `cut`, and then all that has been written by that time.
    /// What is left is to be discarded.
    pub async fn collect(
        self,
        stream: OutputStream,
        sink: Sink,
        cut: CancellationToken,
    ) -> Option<Self> {
        let take = |data: &mut BytesMut| {
            if !data.is_empty() {
                sink.take(stream, data);
            }
        };
        loop {
            tokio::select! {
                biased;
                () = cut.cancelled() => break,
                read = self.read(take) => if !matches!(read, Ok(1..)) { return None },
            }
        }
        let mut total = 0;
        while total < PIPE_MAX {
            match self.try_read(take) {
                Ok(read @ 1..) => total += read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Ok(0) | Err(_) => return None,
            }
        }
        Some(self)
    }

    /// Reads to the end for nobody: a writer without a reader would be killed, and one whose reader does not read would stop.
    pub async fn discard(self) {
        while let Ok(1..) = self.read(|_| ()).await {}
    }
}

/// The reading of all that a process writes.
#[derive(Debug)]
pub struct Reading {
    outlets: JoinSet<Option<Outlet>>,
    cut: CancellationToken,
    slave: Option<OwnedFd>,
}

impl Reading {
    pub fn start(outlets: Outlets, sink: &Sink) -> Self {
        let (outlets, slave) = match outlets {
            Outlets::Pipes { stdout, stderr } => {
                let stdout = (Outlet::Pipe(stdout), OutputStream::Stdout);
                let stderr = (Outlet::Pipe(stderr), OutputStream::Stderr);
                (vec![stdout, stderr], None)
            }
            Outlets::Terminal { terminal, slave } => {
                let outlet = (Outlet::Terminal(terminal), OutputStream::Stdout);
                (vec![outlet], Some(slave))
            }
        };
        let cut = CancellationToken::new();
        let reading = outlets
            .into_iter()
            .map(|(outlet, stream)| outlet.collect(stream, sink.clone(), cut.clone()))
            .collect();
        Reading {
            outlets: reading,
            cut,
            slave,
        }
    }

    /// Reads on until all who have the output open have let go of it, for `limit` at most. To be called once the process has exited.
    pub async fn settle(&mut self, limit: Duration) {
        self.slave = None;
        let all = async { while self.outlets.join_next().await.is_some() {} };
        let _ = time::timeout(limit, all).await;
    }

    /// Reads all that has been written by now. Whether others have the output open still: what they write later is read for nobody.
    pub async fn finish(mut self) -> bool {
        self.cut.cancel();
        let mut is_open = false;
        while let Some(outlet) = self.outlets.join_next().await {
            if let Ok(Some(outlet)) = outlet {
                is_open = true;
                tokio::spawn(outlet.discard());
            }
        }
        is_open
    }
}

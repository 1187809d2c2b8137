//! What an archive is written to.

use std::{
    io::{self, Write},
    sync::Arc,
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use parking_lot::{Mutex, MutexGuard};
use tokio::{
    runtime::Handle,
    sync::mpsc::{self, error::SendTimeoutError},
};

use super::Wanted;

/// Written at a time, and how many of these may wait to be taken.
const CHUNK: usize = 256 << 10;
const CHUNKS: usize = 4;
/// How long a chunk may wait to be taken before the archive breaks off.
const PATIENCE: Duration = Duration::from_secs(120);

/// A writer that can be broken off: it then takes and forgets. Writers of archives finish these when they are dropped, and half of one must not
/// come to look like a whole one. Clones write to the same.
#[derive(Clone)]
pub struct AbortableWriter(Arc<Mutex<Option<Box<dyn Write + Send>>>>);

impl AbortableWriter {
    pub fn new(out: impl Write + Send + 'static) -> Self {
        AbortableWriter(Arc::new(Mutex::new(Some(Box::new(out)))))
    }

    /// Breaks it off when it is dropped, which has to be before the writer of the archive is.
    pub fn unfinished(&self) -> Unfinished<'_> {
        Unfinished(Some(self))
    }

    fn out(&self) -> MutexGuard<'_, Option<Box<dyn Write + Send>>> {
        self.0.lock()
    }
}

/// An archive whose end has not come.
pub struct Unfinished<'a>(Option<&'a AbortableWriter>);

impl Unfinished<'_> {
    pub fn finish(mut self) {
        self.0 = None;
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if let Some(outlet) = self.0 {
            outlet.out().take();
        }
    }
}

impl Write for AbortableWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut out = self.out();
        let written = match &mut *out {
            Some(out) => out.write(bytes),
            None => Ok(bytes.len()),
        };
        if written.is_err() {
            out.take();
        }
        written
    }

    /// Writers flush after each small part, which is too often; see [`AbortableWriter::flush_all`].
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AbortableWriter {
    /// Passes on what is still held back, once all is written.
    pub fn flush_all(&self) -> io::Result<()> {
        self.out().as_mut().map_or(Ok(()), |out| out.flush())
    }
}

/// Sends what is written in chunks, and waits while too many of them have not been taken.
pub struct Chunks {
    sender: mpsc::Sender<io::Result<Bytes>>,
    buffer: BytesMut,
    runtime: Handle,
}

impl Chunks {
    /// Within a runtime.
    pub fn new() -> (Self, mpsc::Receiver<io::Result<Bytes>>) {
        let (sender, receiver) = mpsc::channel(CHUNKS);
        let buffer = BytesMut::with_capacity(CHUNK);
        let runtime = Handle::current();
        let chunks = Chunks {
            sender,
            buffer,
            runtime,
        };
        (chunks, receiver)
    }

    /// Whether the other end still takes them.
    pub fn wanted(&self) -> Wanted {
        let sender = self.sender.clone();
        Wanted(Arc::new(move || !sender.is_closed()))
    }

    /// Tells the other end that what it got is not all.
    pub fn failure(&self) -> impl FnOnce(io::Error) + use<> {
        let (sender, runtime) = (self.sender.clone(), self.runtime.clone());
        move |error| {
            // Who has left needs no reason, and with who takes nothing the thread does not wait: a task does.
            runtime.spawn(async move { sender.send(Err(error)).await });
        }
    }
}

impl Write for Chunks {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = CHUNK - self.buffer.len();
        let taken = room.min(bytes.len());
        self.buffer.extend_from_slice(&bytes[..taken]);
        if self.buffer.len() == CHUNK {
            self.flush()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let chunk = std::mem::replace(&mut self.buffer, BytesMut::with_capacity(CHUNK));
        let sending = self.sender.send_timeout(Ok(chunk.freeze()), PATIENCE);
        self.runtime.block_on(sending).map_err(|error| match error {
            SendTimeoutError::Timeout(_) => io::ErrorKind::TimedOut.into(),
            SendTimeoutError::Closed(_) => io::ErrorKind::BrokenPipe.into(),
        })
    }
}

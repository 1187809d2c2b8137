//! A bounded channel of chunks from an archive's thread to its async receiver.

use std::{
    io::{self, Write},
    mem,
    sync::Arc,
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use tokio::{
    runtime::Handle,
    sync::mpsc::{self, error::SendTimeoutError},
};

use super::ConsumerProbe;

/// The size of a chunk.
const CHUNK_BYTES: usize = 256 << 10;
/// The limit on chunks that wait to be received.
const MAX_CHUNKS: usize = 4;
/// The time that a chunk may wait to be received before the archive is aborted.
const SEND_TIMEOUT: Duration = Duration::from_secs(120);

/// A writer that sends what is written in chunks, and blocks while the channel is full.
pub(super) struct ChunkSender {
    sender: mpsc::Sender<io::Result<Bytes>>,
    buffer: BytesMut,
    runtime: Handle,
}

impl ChunkSender {
    /// Must be called within a tokio runtime.
    pub(super) fn new() -> (Self, mpsc::Receiver<io::Result<Bytes>>) {
        let (sender, receiver) = mpsc::channel(MAX_CHUNKS);
        let chunks = ChunkSender {
            sender,
            buffer: BytesMut::with_capacity(CHUNK_BYTES),
            runtime: Handle::current(),
        };
        (chunks, receiver)
    }

    /// Returns a probe of whether the receiver still exists.
    pub(super) fn consumer(&self) -> ConsumerProbe {
        let sender = self.sender.clone();
        ConsumerProbe(Arc::new(move || !sender.is_closed()))
    }

    /// Returns a function that sends an error, which marks the archive as incomplete.
    pub(super) fn error_sender(&self) -> impl FnOnce(io::Error) + use<> {
        let (sender, runtime) = (self.sender.clone(), self.runtime.clone());
        move |error| {
            // In a task, as a full channel would block the thread until the receiver is dropped.
            runtime.spawn(async move { sender.send(Err(error)).await });
        }
    }
}

impl Write for ChunkSender {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = CHUNK_BYTES - self.buffer.len();
        let count = room.min(bytes.len());
        self.buffer.extend_from_slice(&bytes[..count]);
        if self.buffer.len() == CHUNK_BYTES {
            self.flush()?;
        }
        Ok(count)
    }

    #[expect(clippy::disallowed_methods, reason = "runs on an archive thread")]
    fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let chunk = mem::replace(&mut self.buffer, BytesMut::with_capacity(CHUNK_BYTES));
        let sending = self.sender.send_timeout(Ok(chunk.freeze()), SEND_TIMEOUT);
        self.runtime.block_on(sending).map_err(|error| match error {
            SendTimeoutError::Timeout(_) => io::ErrorKind::TimedOut.into(),
            SendTimeoutError::Closed(_) => io::ErrorKind::BrokenPipe.into(),
        })
    }
}

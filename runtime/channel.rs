//! The worker's socket: bounded queues of frames in both directions.

use std::{
    cell::RefCell,
    collections::VecDeque,
    io::{self, IoSlice},
    rc::Rc,
};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::{net::UnixStream, sync::Notify};

use crate::script_protocol::{self, Frame, FrameError, FromWorker, ToWorker};

/// Bytes that may be queued for an agent that does not read, before sends are rejected.
const MAX_QUEUED_OUT: usize = 64 << 20;
/// Bytes that may be queued for a script that does not yield. Beyond that, the socket's buffers
/// slow the agent down.
const MAX_QUEUED_IN: usize = 128 << 20;

/// The initial size of the buffer of received bytes.
const READ_SIZE: usize = 16 << 10;

/// Sends messages to the agent. A send never waits: it writes as much as the socket takes and
/// queues the rest.
pub(crate) struct Sender {
    stream: Rc<UnixStream>,
    queued: RefCell<BytesMut>,
    /// Notified when bytes are queued.
    has_queued: Notify,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum SendError {
    #[error("the script sends messages faster than the browser receives them")]
    TooFast,
    #[error(transparent)]
    Frame(#[from] FrameError),
}

impl Sender {
    pub(crate) fn new(stream: Rc<UnixStream>) -> Self {
        Sender {
            stream,
            queued: RefCell::default(),
            has_queued: Notify::new(),
        }
    }

    /// Sends a message of a script. Fails while the agent is far behind.
    pub(crate) fn send(&self, message: FromWorker) -> Result<(), SendError> {
        if self.queued.borrow().len() > MAX_QUEUED_OUT {
            return Err(SendError::TooFast);
        }
        Ok(self.push(message)?)
    }

    /// Sends a message of the worker itself. These are small, and never rejected.
    pub(crate) fn push(&self, message: FromWorker) -> Result<(), FrameError> {
        let (kind, payload) = message.encode()?;
        let header = script_protocol::header(kind, &payload)?;
        let mut queued = self.queued.borrow_mut();
        let mut frame = header.as_slice().chain(payload);
        if queued.is_empty() {
            // An error here occurs again, and is handled, when the loop flushes.
            let written = self
                .stream
                .try_write_vectored(&[
                    IoSlice::new(frame.first_ref()),
                    IoSlice::new(frame.last_ref()),
                ])
                .unwrap_or(0);
            frame.advance(written);
        }
        if frame.has_remaining() {
            queued.put(frame);
            self.has_queued.notify_one();
        }
        Ok(())
    }

    fn is_pending(&self) -> bool {
        !self.queued.borrow().is_empty()
    }

    /// Writes queued bytes until the socket fails, and returns its error.
    pub(crate) async fn keep_flushing(&self) -> io::Error {
        loop {
            if let Err(err) = self.flush().await {
                return err;
            }
            self.has_queued.notified().await;
        }
    }

    /// Writes all queued bytes.
    pub(crate) async fn flush(&self) -> io::Result<()> {
        while self.is_pending() {
            self.stream.writable().await?;
            let mut queued = self.queued.borrow_mut();
            match self.stream.try_write(&queued) {
                Ok(written) => queued.advance(written),
                Err(err) if err.kind() == io::ErrorKind::WouldBlock => {}
                Err(err) => return Err(err),
            }
        }
        Ok(())
    }
}

/// Receives messages from the agent.
pub(crate) struct Receiver {
    stream: Rc<UnixStream>,
    buffer: BytesMut,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ReceiveError {
    #[error("agent socket: {0}")]
    Io(#[from] io::Error),
    #[error("agent socket: {0}")]
    Frame(#[from] FrameError),
}

impl Receiver {
    pub(crate) fn new(stream: Rc<UnixStream>) -> Self {
        Receiver {
            stream,
            buffer: BytesMut::with_capacity(READ_SIZE),
        }
    }

    /// Returns the next message, or `None` once the agent has closed the socket. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Result<Option<ToWorker>, ReceiveError> {
        loop {
            if let Some(message) = script_protocol::take(&mut self.buffer)? {
                self.release_memory();
                return Ok(Some(message));
            }
            self.stream.readable().await?;
            self.buffer.reserve(4096);
            match self.stream.try_read_buf(&mut self.buffer) {
                Ok(0) => return Ok(None),
                Ok(_) => {}
                Err(err) if err.kind() == io::ErrorKind::WouldBlock => {}
                Err(err) => return Err(err.into()),
            }
        }
    }
}

impl Receiver {
    /// Lets the memory of a long message be freed with it: the empty buffer is a part of it.
    fn release_memory(&mut self) {
        if self.buffer.is_empty() {
            self.buffer = BytesMut::with_capacity(READ_SIZE);
        }
    }
}

/// A queue of CDP messages for the engine.
#[derive(Default)]
pub(crate) struct Inbox {
    state: RefCell<InboxState>,
    arrived: Notify,
}

#[derive(Default)]
struct InboxState {
    messages: VecDeque<Bytes>,
    bytes: usize,
}

impl Inbox {
    pub(crate) fn push(&self, message: Bytes) {
        let mut state = self.state.borrow_mut();
        state.bytes += message.len();
        state.messages.push_back(message);
        drop(state);
        self.arrived.notify_one();
    }

    pub(crate) fn is_full(&self) -> bool {
        self.state.borrow().bytes > MAX_QUEUED_IN
    }

    /// Waits for messages and returns all that are queued.
    pub(crate) async fn receive(&self) -> Vec<String> {
        while self.state.borrow().messages.is_empty() {
            self.arrived.notified().await;
        }
        let InboxState { messages, .. } = self.state.take();
        // Chromium sends UTF-8. Other bytes would be an invalid message in any case.
        messages.into_iter().map(text_of).collect()
    }
}

/// Converts a message without a copy if nothing else refers to its memory.
fn text_of(message: Bytes) -> String {
    String::from_utf8(message.into())
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

//! The worker's socket: frames in, frames out, both bounded.

use std::{
    cell::RefCell,
    collections::VecDeque,
    io::{self, IoSlice},
    rc::Rc,
};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::{net::UnixStream, sync::Notify};

use crate::script_protocol::{self, Frame, FrameError, FromWorker, MAX_PAYLOAD, ToWorker};

/// How much may wait for an agent that does not read, beyond the message that crosses the line.
const MAX_WAITING_OUT: usize = 64 << 20;
/// How much may wait for a script that does not yield; the socket's own buffers hold back the agent after that.
const MAX_WAITING_IN: usize = 2 * MAX_PAYLOAD;

/// Messages to the agent. A send never waits: it writes what the socket takes and queues the rest.
pub struct Sender {
    stream: Rc<UnixStream>,
    queued: RefCell<BytesMut>,
    /// Something has been queued.
    waiting: Notify,
}

#[derive(Debug, thiserror::Error)]
pub enum SendError {
    #[error("the script sends messages to the browser faster than they can be delivered")]
    TooFast,
    #[error(transparent)]
    Frame(#[from] FrameError),
}

impl Sender {
    pub fn new(stream: Rc<UnixStream>) -> Self {
        Sender {
            stream,
            queued: RefCell::default(),
            waiting: Notify::new(),
        }
    }

    /// For what a script sends: refused while the agent is far behind.
    pub fn send(&self, message: FromWorker) -> Result<(), SendError> {
        if self.queued.borrow().len() > MAX_WAITING_OUT {
            return Err(SendError::TooFast);
        }
        Ok(self.push(message)?)
    }

    /// For what the worker itself has to say, which is little and never refused.
    pub fn push(&self, message: FromWorker) -> Result<(), FrameError> {
        let (kind, payload) = message.encode()?;
        let header = script_protocol::header(kind, &payload)?;
        let mut queued = self.queued.borrow_mut();
        let mut frame = header.as_slice().chain(payload);
        if queued.is_empty() {
            // Whatever goes wrong here goes wrong again, and is seen, where the loop flushes.
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
            self.waiting.notify_one();
        }
        Ok(())
    }

    fn has_queued(&self) -> bool {
        !self.queued.borrow().is_empty()
    }

    /// Writes what is queued, now and whenever there is something, until the socket fails.
    pub async fn keep_flushing(&self) -> io::Error {
        loop {
            if let Err(err) = self.flush().await {
                return err;
            }
            self.waiting.notified().await;
        }
    }

    /// Waits until everything queued is written.
    pub async fn flush(&self) -> io::Result<()> {
        while self.has_queued() {
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

/// Messages from the agent.
pub struct Receiver {
    stream: Rc<UnixStream>,
    buffer: BytesMut,
}

#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    #[error("the agent's socket: {0}")]
    Io(#[from] io::Error),
    #[error("the agent's socket: {0}")]
    Frame(#[from] FrameError),
}

impl Receiver {
    pub fn new(stream: Rc<UnixStream>) -> Self {
        Receiver {
            stream,
            buffer: BytesMut::with_capacity(16 << 10),
        }
    }

    /// The next message; `None` once the agent has closed its end. Cancel-safe.
    pub async fn next(&mut self) -> Result<Option<ToWorker>, ReceiveError> {
        loop {
            if let Some(message) = script_protocol::take(&mut self.buffer)? {
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

/// CDP messages on their way into the engine.
#[derive(Default)]
pub struct Inbox {
    state: RefCell<InboxState>,
    arrived: Notify,
}

#[derive(Default)]
struct InboxState {
    messages: VecDeque<Bytes>,
    bytes: usize,
}

impl Inbox {
    pub fn push(&self, message: Bytes) {
        let mut state = self.state.borrow_mut();
        state.bytes += message.len();
        state.messages.push_back(message);
        drop(state);
        self.arrived.notify_one();
    }

    pub fn is_full(&self) -> bool {
        self.state.borrow().bytes > MAX_WAITING_IN
    }

    /// All that has come, at least one.
    pub async fn receive(&self) -> Vec<String> {
        while self.state.borrow().messages.is_empty() {
            self.arrived.notified().await;
        }
        let InboxState { messages, .. } = self.state.take();
        // Chromium sends UTF-8; what is not would be a broken message whichever way it is read.
        messages
            .into_iter()
            .map(|message| String::from_utf8_lossy(&message).into_owned())
            .collect()
    }
}

//! Lingering close: closing a connection whose client is still sending.
//!
//! A kernel that closes a socket with unread bytes in its buffer resets the connection, and the
//! reset can overtake the response: a client whose upload is refused would see a broken connection
//! instead of the refusal. Incoming bytes are therefore read and discarded for a short time after
//! the last byte of the response (RFC 9112, section 9.6).
//!
//! ```text
//! response sent ─▶ write side closed ─┬─ body received, nothing more arrives ─▶ closed
//!                                     └─ client still sending ─▶ discard until EOF
//!                                                                or LINGER_TIMEOUT ─▶ closed
//! ```

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use hyper::body::{Body, Frame, SizeHint};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

/// Time a client has to notice the response and stop sending.
const LINGER_TIMEOUT: Duration = Duration::from_secs(2);
const SCRATCH_BYTES: usize = 16 * 1024;

/// Tracks whether the body of a connection's last request is still incomplete.
///
/// Clones share the state of one connection.
#[derive(Clone, Debug, Default)]
pub(super) struct BodyProgress {
    incomplete: Arc<AtomicBool>,
}

impl BodyProgress {
    /// Wraps a request's body and tracks it until its end.
    pub(super) fn track<B: Body>(&self, body: B) -> TrackedBody<B> {
        let progress = self.clone();
        progress.update(&body);
        TrackedBody { body, progress }
    }

    /// Marks the body as fully received, although the handler has not read it.
    pub(super) fn mark_complete(&self) {
        self.incomplete.store(false, Relaxed);
    }

    /// Returns whether the handler has not received the end of the body.
    pub(super) fn is_incomplete(&self) -> bool {
        self.incomplete.load(Relaxed)
    }

    fn update(&self, body: &impl Body) {
        self.incomplete.store(!body.is_end_stream(), Relaxed);
    }
}

/// A request body that reports its end to a [`BodyProgress`].
pub(super) struct TrackedBody<B> {
    body: B,
    progress: BodyProgress,
}

impl<B: Body + Unpin> Body for TrackedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        match &frame {
            Some(_) => self.progress.update(&self.body),
            None => self.progress.mark_complete(),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A stream whose shutdown discards what the client still sends, for [`LINGER_TIMEOUT`] at most.
pub(super) struct LingeringClose<T> {
    stream: T,
    progress: BodyProgress,
    /// Set when the write side is closed.
    timeout: Option<Pin<Box<Sleep>>>,
    /// Whether the client was sending a body when the write side was closed, or has sent since.
    is_sending: bool,
}

impl<T> LingeringClose<T> {
    pub(super) fn new(stream: T, progress: BodyProgress) -> Self {
        Self {
            stream,
            progress,
            timeout: None,
            is_sending: false,
        }
    }

    fn has_timed_out(&mut self, cx: &mut Context<'_>) -> bool {
        let timeout = self.timeout.as_mut();
        timeout.is_some_and(|timeout| timeout.as_mut().poll(cx).is_ready())
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for LingeringClose<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for LingeringClose<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.timeout.is_none() {
            ready!(Pin::new(&mut this.stream).poll_shutdown(cx))?;
            this.timeout = Some(Box::pin(sleep(LINGER_TIMEOUT)));
            this.is_sending = this.progress.is_incomplete();
        }
        // Polled before reading: a fast client would use up the task's cooperative budget, and the
        // timer would never fire.
        if this.has_timed_out(cx) {
            return Poll::Ready(Ok(()));
        }
        let mut scratch = [0; SCRATCH_BYTES];
        loop {
            let mut buffer = ReadBuf::new(&mut scratch);
            match Pin::new(&mut this.stream).poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => this.is_sending = true,
                Poll::Ready(_) => return Poll::Ready(Ok(())),
                Poll::Pending => break,
            }
        }
        // Most clients send nothing more, so their connections are closed at once.
        if !this.is_sending || this.has_timed_out(cx) {
            return Poll::Ready(Ok(()));
        }
        Poll::Pending
    }
}

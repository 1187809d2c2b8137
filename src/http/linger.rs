//! Closing a connection whose client is still sending.
//!
//! A kernel that closes with unread bytes in hand resets the connection, and a reset can overtake the answer: a client whose upload
//! is refused would read of a broken connection and not of the refusal. So what is still coming is read and thrown
//! away for a moment after the last byte of the answer (RFC 9112, section 9.6).

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::{Body, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// How long a client may take to notice that it has been answered.
const PATIENCE: Duration = Duration::from_secs(2);
const SCRATCH: usize = 16 * 1024;

/// Whether the body of a connection's last request has not been read to its end. Clones tell of the same connection.
#[derive(Clone, Debug, Default)]
pub struct Unread(Arc<AtomicBool>);

impl Unread {
    /// A request's body, followed to its end.
    pub fn follow<B: Body>(&self, body: B) -> Followed<B> {
        let unread = self.clone();
        unread.note(&body);
        Followed { body, unread }
    }

    /// What has come of it, and was not read by whom it was for, is all there is.
    pub fn clear(&self) {
        self.0.store(false, Relaxed);
    }

    fn note(&self, body: &impl Body) {
        self.0.store(!body.is_end_stream(), Relaxed);
    }
}

pub struct Followed<B> {
    body: B,
    unread: Unread,
}

impl<B: Body + Unpin> Body for Followed<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        match &frame {
            Some(_) => self.unread.note(&self.body),
            None => self.unread.clear(),
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

/// A stream whose shutdown waits for a client that is in the middle of sending.
pub struct Linger<T> {
    stream: T,
    unread: Unread,
    /// Set once our side is closed.
    patience: Option<Pin<Box<Sleep>>>,
    /// Whether the client was in the middle of a body then, or was found to be sending after that.
    sending: bool,
}

impl<T> Linger<T> {
    pub fn new(stream: T, unread: Unread) -> Self {
        Self {
            stream,
            unread,
            patience: None,
            sending: false,
        }
    }

    /// Whether the client has had its time.
    fn is_over(&mut self, cx: &mut Context<'_>) -> bool {
        let patience = self.patience.as_mut();
        patience.is_some_and(|patience| patience.as_mut().poll(cx).is_ready())
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Linger<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Linger<T> {
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
        if this.patience.is_none() {
            ready!(Pin::new(&mut this.stream).poll_shutdown(cx))?;
            this.patience = Some(Box::pin(sleep(PATIENCE)));
            this.sending = this.unread.0.load(Relaxed);
        }
        // First: what a fast client sends would leave no turn for it.
        if this.is_over(cx) {
            return Poll::Ready(Ok(()));
        }
        let mut scratch = [0; SCRATCH];
        loop {
            let mut buffer = ReadBuf::new(&mut scratch);
            match Pin::new(&mut this.stream).poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => this.sending = true,
                Poll::Ready(_) => return Poll::Ready(Ok(())),
                Poll::Pending => break,
            }
        }
        // Most clients send nothing more, and are not waited for.
        if !this.sending || this.is_over(cx) {
            return Poll::Ready(Ok(()));
        }
        Poll::Pending
    }
}

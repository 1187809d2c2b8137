//! Closing a connection whose client is still sending.
//!
//! A kernel that closes with unread bytes in hand resets the connection, and a reset can overtake the answer: a client whose upload
//! is refused would read of a broken connection and not of the refusal. So what is still coming is read and thrown
//! away for a moment after the last byte of the answer (RFC 9112, section 9.6).

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// How long a client may take to notice that it has been answered.
const PATIENCE: Duration = Duration::from_secs(2);
const SCRATCH: usize = 16 * 1024;

/// A stream whose shutdown waits for a client that is in the middle of sending.
pub struct Linger<T> {
    stream: T,
    /// Set once our side is closed.
    patience: Option<Pin<Box<Sleep>>>,
    /// Whether the client was found to be sending after that.
    sending: bool,
}

impl<T> Linger<T> {
    pub fn new(stream: T) -> Self {
        Self {
            stream,
            patience: None,
            sending: false,
        }
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
        match &mut this.patience {
            Some(patience) if this.sending => patience.as_mut().poll(cx).map(Ok),
            // Most clients send nothing more, and are not waited for.
            _ => Poll::Ready(Ok(())),
        }
    }
}

//! Ends connections whose peer does not read.
//!
//! An unread response fills the kernel's buffer, and its connection would otherwise stay for ever.
//! Time counts only while bytes are waiting to be written: an idle event stream or a long poll has
//! none. A write that the kernel accepts, even of one byte, is progress.
//!
//! The timeout is on the connection, below HTTP, so it applies to every response and to what a
//! connection was upgraded to.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep_until},
};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// Time without progress after which a connection that has bytes to write is closed.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);
/// The same during shutdown, from the last progress on, before or after the shutdown began. A
/// client that reads, however slowly its network permits, makes progress in less.
const SHUTDOWN_WRITE_TIMEOUT: Duration = Duration::from_secs(2);

/// A stream whose writes fail if the peer does not read.
pub(super) struct WriteTimeout<T> {
    stream: T,
    shutdown: CancellationToken,
    timeouts: Timeouts,
    blocked: Option<BlockedWrite>,
}

#[derive(Debug, Clone, Copy)]
struct Timeouts {
    running: Duration,
    shutdown: Duration,
}

/// A write that the kernel does not accept because its buffer is full.
struct BlockedWrite {
    since: Instant,
    deadline: Pin<Box<Sleep>>,
    /// `None` once the shutdown was requested and the deadline is that of the shutdown.
    shutdown: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

impl<T> WriteTimeout<T> {
    pub(super) fn new(stream: T, shutdown: CancellationToken) -> Self {
        Self {
            stream,
            shutdown,
            timeouts: Timeouts {
                running: WRITE_TIMEOUT,
                shutdown: SHUTDOWN_WRITE_TIMEOUT,
            },
            blocked: None,
        }
    }

    /// Passes on the result of a write, but fails if writes have been pending for too long.
    fn check<R>(
        &mut self,
        written: Poll<io::Result<R>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<R>> {
        if written.is_ready() {
            self.blocked = None;
            return written;
        }
        let timeouts = self.timeouts;
        let blocked = self.blocked.get_or_insert_with(|| {
            let since = Instant::now();
            BlockedWrite {
                since,
                deadline: Box::pin(sleep_until(since + timeouts.running)),
                shutdown: Some(Box::pin(self.shutdown.clone().cancelled_owned())),
            }
        });
        if blocked.has_timed_out(timeouts.shutdown, cx) {
            metrics::counter!("berth_connections_aborted_total", "reason" => "unread").increment(1);
            let message = "the peer does not read";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, message)));
        }
        Poll::Pending
    }
}

impl BlockedWrite {
    fn has_timed_out(&mut self, shutdown_timeout: Duration, cx: &mut Context<'_>) -> bool {
        if let Some(shutdown) = &mut self.shutdown
            && shutdown.as_mut().poll(cx).is_ready()
        {
            self.shutdown = None;
            let deadline = self.since + shutdown_timeout;
            self.deadline.as_mut().reset(deadline);
        }
        self.deadline.as_mut().poll(cx).is_ready()
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for WriteTimeout<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.check(written, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.check(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use super::*;

    const BUFFER_BYTES: usize = 16;
    const SHORT: Duration = Duration::from_millis(10);
    const LONG: Duration = Duration::from_secs(3600);

    fn stream(running: Duration, shutdown: Duration) -> (WriteTimeout<DuplexStream>, DuplexStream) {
        let (stream, peer) = duplex(BUFFER_BYTES);
        let mut stream = WriteTimeout::new(stream, CancellationToken::new());
        stream.timeouts = Timeouts { running, shutdown };
        (stream, peer)
    }

    #[tokio::test]
    async fn write_fails_when_the_peer_does_not_read() {
        let (mut stream, _peer) = stream(SHORT, LONG);
        stream.write_all(&[0; BUFFER_BYTES]).await.unwrap();
        let error = stream.write_all(&[0]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn progress_starts_the_timeout_again() {
        let (mut stream, mut peer) = stream(LONG, LONG);
        stream.write_all(&[0; BUFFER_BYTES]).await.unwrap();
        let mut blocked = std::pin::pin!(stream.write_all(&[1, 2]));
        assert!(futures::poll!(&mut blocked).is_pending());
        peer.read_exact(&mut [0; 2]).await.unwrap();
        blocked.await.unwrap();
        assert!(stream.blocked.is_none());
    }

    #[tokio::test]
    async fn stream_without_bytes_to_write_is_not_timed() {
        let (mut stream, mut peer) = stream(Duration::ZERO, Duration::ZERO);
        stream.write_all(b"event").await.unwrap();
        stream.flush().await.unwrap();
        stream.shutdown.cancel();
        assert!(stream.blocked.is_none());
        let (mut reading, mut buffer) = (stream, [0]);
        let mut reading = std::pin::pin!(reading.read_exact(&mut buffer));
        assert!(futures::poll!(&mut reading).is_pending());
        peer.write_all(b"x").await.unwrap();
        reading.await.unwrap();
    }

    #[tokio::test]
    async fn shutdown_ends_a_blocked_write() {
        let (mut stream, _peer) = stream(LONG, SHORT);
        stream.write_all(&[0; BUFFER_BYTES]).await.unwrap();
        let shutdown = stream.shutdown.clone();
        let mut blocked = std::pin::pin!(stream.write_all(&[0]));
        assert!(futures::poll!(&mut blocked).is_pending());
        shutdown.cancel();
        let error = blocked.await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}

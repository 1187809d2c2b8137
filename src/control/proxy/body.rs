//! Bodies of forwarded requests and of their responses. Each frame is forwarded as it arrives.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use hyper::body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::BoxError;

/// The longest wait of a request body for the agent's `100 Continue`. It is sent without one after
/// that (RFC 9110, section 10.1.1).
const CONTINUE_TIMEOUT: Duration = Duration::from_secs(1);

/// The time at which a request body last made progress, from which the response timeout counts.
#[derive(Debug, Clone)]
pub(super) struct Progress(Arc<Mutex<Instant>>);

impl Progress {
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }

    pub(super) fn last(&self) -> Instant {
        *self.0.lock()
    }

    fn record(&self) {
        *self.0.lock() = Instant::now();
    }
}

type Gate = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A request body that reports its progress, and waits for its gate.
pub(super) struct RequestBody<B> {
    body: B,
    progress: Progress,
    gate: Option<Gate>,
}

impl<B> RequestBody<B> {
    pub(super) fn new(body: B, progress: Progress) -> Self {
        Self {
            body,
            progress,
            gate: None,
        }
    }

    /// Holds the body back until `requested` is cancelled. The first poll makes the server send
    /// `100 Continue` to the client, so the body must not be polled earlier.
    pub(super) fn hold_until(mut self, requested: CancellationToken) -> Self {
        self.gate = Some(Box::pin(async move {
            let _ = timeout(CONTINUE_TIMEOUT, requested.cancelled_owned()).await;
        }));
        self
    }
}

impl<B: Body + Unpin> Body for RequestBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        if let Some(gate) = &mut self.gate {
            ready!(gate.as_mut().poll(cx));
            self.gate = None;
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        self.progress.record();
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A response body that fails when its browser ends, also if its agent sends nothing any more.
pub(super) struct ResponseBody<B> {
    body: B,
    ended: CancellationToken,
    /// Present once the body had to wait: a frame that has arrived costs no look at the browser.
    waiting: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

impl<B> ResponseBody<B> {
    /// `ended` is cancelled when the browser ends.
    pub(super) fn new(body: B, ended: CancellationToken) -> Self {
        Self {
            body,
            ended,
            waiting: None,
        }
    }
}

impl<B: Body<Error: Into<BoxError>> + Unpin> Body for ResponseBody<B> {
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        let this = self.get_mut();
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) {
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let ended = &this.ended;
        let waiting = this
            .waiting
            .get_or_insert_with(|| Box::pin(ended.clone().cancelled_owned()));
        ready!(waiting.as_mut().poll(cx));
        let ended = io::Error::new(io::ErrorKind::ConnectionAborted, "the browser has ended");
        Poll::Ready(Some(Err(ended.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

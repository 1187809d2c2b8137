//! Bodies of forwarded requests. Each frame is forwarded as it arrives.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use hyper::body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

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

//! Bodies on their way through: none is held, each frame is passed on as it comes.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

/// How long a body is held back for a server that may not want it (RFC 9110, section 10.1.1: not for ever).
const CONTINUE_PATIENCE: Duration = Duration::from_secs(1);

/// A body with something that lasts as long as it does.
pub struct Held<B, G> {
    body: B,
    _guard: G,
}

impl<B, G> Held<B, G> {
    pub fn new(body: B, guard: G) -> Self {
        Self {
            body,
            _guard: guard,
        }
    }
}

impl<B: Body + Unpin, G: Unpin> Body for Held<B, G> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// When a request's body last moved, so that an answer's time is counted from its end.
#[derive(Debug, Clone)]
pub struct Progress(Arc<Mutex<Instant>>);

impl Progress {
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }

    pub fn last(&self) -> Instant {
        *self.0.lock()
    }

    fn note(&self) {
        *self.0.lock() = Instant::now();
    }
}

type Gate = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A request's body.
pub struct Outgoing<B> {
    body: B,
    progress: Progress,
    gate: Option<Gate>,
}

impl<B> Outgoing<B> {
    pub fn new(body: B, progress: Progress) -> Self {
        Self {
            body,
            progress,
            gate: None,
        }
    }

    /// Holds the body back until `wanted`. Polling it is what tells the client to go on, so it must not happen before.
    pub fn once(mut self, wanted: CancellationToken) -> Self {
        self.gate = Some(Box::pin(async move {
            let _ = timeout(CONTINUE_PATIENCE, wanted.cancelled_owned()).await;
        }));
        self
    }
}

impl<B: Body + Unpin> Body for Outgoing<B> {
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
        self.progress.note();
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

//! Ends requests with their session: new ones are rejected, those in progress are interrupted.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    body::{Body, Bytes},
    extract::{Request, State},
    middleware::Next,
    response::Response,
};
use futures::future::BoxFuture;
use http::{HeaderName, header};
use hyper::body::{Body as HttpBody, Frame, SizeHint};

use crate::{
    agent::sessions::{RequestGuard, SessionScope},
    http::{ApiError, ApiResult},
};

/// The header that names the session a request is for. Requests without it are for the current one.
const GENERATION: HeaderName = HeaderName::from_static("berth-generation");

/// The delay before a client repeats a request during a handover.
const HANDOVER_RETRY_DELAY: Duration = Duration::from_secs(1);
const EVENT_STREAM: &[u8] = b"text/event-stream";

/// Middleware that rejects requests for another session, and interrupts those that are in progress
/// when this one ends.
pub(crate) async fn within_session(
    State(session): State<SessionScope>,
    request: Request,
    next: Next,
) -> ApiResult<Response> {
    if let Some(value) = request.headers().get(GENERATION) {
        let generation = value
            .to_str()
            .ok()
            .and_then(|text| text.parse::<u64>().ok());
        let generation = generation.ok_or_else(|| {
            ApiError::bad_request("the header Berth-Generation is not a whole number")
        })?;
        if generation != session.generation {
            return Err(session_ended());
        }
    }
    let guard = session.requests.begin().ok_or_else(being_replaced)?;
    let response = tokio::select! {
        biased;
        () = session.shutdown.discarded() => return Err(session_ended()),
        response = next.run(request) => response,
    };
    let ended = session.shutdown.clone();
    // A stream ends with the services, and may be opened again afterwards.
    let guard = Some(guard).filter(|_| !is_event_stream(&response));
    Ok(response.map(|body| {
        Body::new(SessionBody {
            body,
            ended: Box::pin(async move { ended.discarded().await }),
            has_ended: false,
            _guard: guard,
        })
    }))
}

fn is_event_stream(response: &Response) -> bool {
    let content_type = response.headers().get(header::CONTENT_TYPE);
    content_type.is_some_and(|value| value.as_bytes().starts_with(EVENT_STREAM))
}

/// Returns the error for requests during a handover.
pub(crate) fn being_replaced() -> ApiError {
    let message = "the agent is being replaced by another program";
    ApiError::unavailable(message, HANDOVER_RETRY_DELAY)
}

fn session_ended() -> ApiError {
    ApiError::gone("the session has ended").code("session_ended")
}

/// A response body that fails when the session ends, unless it ends at the same time.
struct SessionBody {
    body: Body,
    ended: BoxFuture<'static, ()>,
    has_ended: bool,
    _guard: Option<RequestGuard>,
}

#[derive(Debug, thiserror::Error)]
#[error("the session has ended")]
struct SessionEnded;

impl HttpBody for SessionBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let has_ended = self.has_ended || self.ended.as_mut().poll(cx).is_ready();
        self.has_ended = has_ended;
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if !has_ended {
            return frame;
        }
        // An event stream that ends by itself is complete.
        match frame {
            Poll::Ready(None) => Poll::Ready(None),
            _ => Poll::Ready(Some(Err(axum::Error::new(SessionEnded)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

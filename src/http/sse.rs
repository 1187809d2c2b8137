//! Server-sent events.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::{Stream, StreamExt};
use http::header::{CACHE_CONTROL, HeaderName};
use http::request::Parts;
use http::{HeaderValue, StatusCode};
use serde::Serialize;

use super::ApiError;
use crate::shutdown::Shutdown;
use crate::streams::{self, Entry, Reader};

/// At least this often something is sent, so that no proxy between takes the stream for dead.
const HEARTBEAT: Duration = Duration::from_secs(15);

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// One event: its id (what `Last-Event-ID` resumes after) and its JSON data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SseEvent {
    pub id: u64,
    pub data: String,
}

/// A stream of events, flushed at once, kept alive, and ended by the stop.
pub fn sse(events: impl Stream<Item = SseEvent> + Send + 'static, shutdown: &Shutdown) -> Response {
    let stop = shutdown.token();
    let hello = futures::stream::once(async { Event::default().comment("open") });
    let events = events.map(|event| Event::default().id(event.id.to_string()).data(event.data));
    let events = hello
        .chain(events)
        .map(Ok::<_, Infallible>)
        .take_until(async move { stop.cancelled().await });
    let mut response = Sse::new(events)
        .keep_alive(KeepAlive::new().interval(HEARTBEAT))
        .into_response();
    let headers = response.headers_mut();
    headers.insert(
        CACHE_CONTROL,
        HeaderValue::from_static("no-store, no-transform"),
    );
    headers.insert(X_ACCEL_BUFFERING, HeaderValue::from_static("no"));
    response
}

/// All that a reader of a log finds, each item as JSON under its id; `gap` says in the same words that so many were missed.
///
/// Who has read it to its end gets 204: that keeps a browser's `EventSource` from connecting again and again.
pub fn follow<T: Serialize + Clone + Send + 'static>(
    reader: Reader<T>,
    gap: impl Fn(u64) -> T + Send + 'static,
    shutdown: &Shutdown,
) -> Response {
    if reader.is_at_end() {
        return StatusCode::NO_CONTENT.into_response();
    }
    let events = reader.into_stream().map(move |entry| {
        let (id, item) = match entry {
            Entry::Item { id, item } => (id, item),
            Entry::Gap { id, missed } => (id, gap(missed)),
        };
        let data = serde_json::to_string(&item).unwrap_or_default();
        SseEvent { id, data }
    });
    sse(events, shutdown)
}

/// Where a client that was connected before wants to go on: its `Last-Event-ID`.
#[derive(Debug, Clone, Copy)]
pub struct LastEventId(Option<u64>);

impl LastEventId {
    #[must_use]
    pub fn get(self) -> Option<u64> {
        self.0
    }
}

impl From<LastEventId> for streams::From {
    fn from(LastEventId(last): LastEventId) -> Self {
        last.map_or(streams::From::Oldest, streams::From::After)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for LastEventId {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, ApiError> {
        let Some(value) = parts.headers.get(LAST_EVENT_ID) else {
            return Ok(LastEventId(None));
        };
        match value.to_str().ok().and_then(|text| text.parse().ok()) {
            Some(id) => Ok(LastEventId(Some(id))),
            None => {
                let what = "must be the id of an event, a number";
                Err(ApiError::bad_field("Last-Event-ID", what))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn a_stream_opens_at_once_and_ends_with_the_stop() {
        let shutdown = Shutdown::new();
        let events = futures::stream::iter([SseEvent {
            id: 7,
            data: "{}".to_owned(),
        }])
        .chain(futures::stream::pending());
        let mut body = sse(events, &shutdown).into_body();
        let mut text = String::new();
        while !text.contains("data") {
            let frame = body.frame().await.unwrap().unwrap();
            text.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
        }
        assert_eq!(text, ": open\n\nid: 7\ndata: {}\n\n");
        shutdown.stop();
        assert!(body.frame().await.is_none());
    }
}

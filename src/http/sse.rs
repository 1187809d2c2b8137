//! Server-sent events.

use std::{convert::Infallible, time::Duration};

use axum::{
    extract::FromRequestParts,
    response::{
        IntoResponse, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use futures::{Stream, StreamExt};
use http::{
    HeaderValue, StatusCode,
    header::{CACHE_CONTROL, HeaderName},
    request::Parts,
};
use serde::Serialize;

use super::ApiError;
use crate::{
    shutdown::Shutdown,
    streams::{Entry, Reader, StartAt},
};

/// Interval between keep-alive comments, so that no proxy closes an idle stream.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// An event: its id, after which `Last-Event-ID` resumes, if it can, and its JSON data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SseEvent {
    pub id: Option<String>,
    pub data: String,
}

impl SseEvent {
    fn into_event(self) -> Event {
        let event = match self.id {
            Some(id) => Event::default().id(id),
            None => Event::default(),
        };
        event.data(self.data)
    }
}

/// Returns an event stream that starts at once, sends keep-alive comments and ends at shutdown.
pub fn sse_response(
    events: impl Stream<Item = SseEvent> + Send + 'static,
    shutdown: &Shutdown,
) -> Response {
    let stop = shutdown.token();
    // Has the response head sent before the first event.
    let opening = futures::stream::once(async { Event::default().comment("open") });
    let events = events.map(SseEvent::into_event);
    let events = opening
        .chain(events)
        .map(Ok::<_, Infallible>)
        .take_until(async move { stop.cancelled().await });
    let mut response = Sse::new(events)
        .keep_alive(KeepAlive::new().interval(KEEP_ALIVE_INTERVAL))
        .into_response();
    let headers = response.headers_mut();
    headers.insert(
        CACHE_CONTROL,
        HeaderValue::from_static("no-store, no-transform"),
    );
    headers.insert(X_ACCEL_BUFFERING, HeaderValue::from_static("no"));
    response
}

/// Returns the entries of a log as an event stream, each item as JSON with its id; `gap` makes the
/// item that reports a number of missed entries.
///
/// Responds 204 at the end of a closed log, which stops a browser's `EventSource` from
/// reconnecting.
pub fn follow_log<T: Serialize + Clone + Send + 'static>(
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
        SseEvent {
            id: Some(id.to_string()),
            data,
        }
    });
    sse_response(events, shutdown)
}

/// The `Last-Event-ID` header: the last event that a reconnecting client has received.
#[derive(Debug, Clone, Copy)]
pub struct LastEventId(Option<u64>);

impl LastEventId {
    #[must_use]
    pub fn get(self) -> Option<u64> {
        self.0
    }
}

impl From<LastEventId> for StartAt {
    fn from(LastEventId(last): LastEventId) -> Self {
        last.map_or(StartAt::Oldest, StartAt::After)
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
                let message = "must be the numeric id of an event";
                Err(ApiError::bad_field("Last-Event-ID", message))
            }
        }
    }
}

/// The `Last-Event-ID` header of a stream whose events have ids of another form. An unknown id is
/// no error, because clients send it by themselves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedEventId(Option<String>);

impl NamedEventId {
    #[must_use]
    pub fn get(&self) -> Option<&str> {
        self.0.as_deref()
    }
}

impl<S: Send + Sync> FromRequestParts<S> for NamedEventId {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, ApiError> {
        let value = parts.headers.get(LAST_EVENT_ID);
        let text = value.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        Ok(NamedEventId(text))
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn event_stream_opens_at_once_and_ends_at_shutdown() {
        let shutdown = Shutdown::new();
        let events = futures::stream::iter([SseEvent {
            id: Some("7".to_owned()),
            data: "{}".to_owned(),
        }])
        .chain(futures::stream::pending());
        let mut body = sse_response(events, &shutdown).into_body();
        let mut text = String::new();
        while !text.contains("data") {
            let frame = body.frame().await.unwrap().unwrap();
            text.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
        }
        assert_eq!(text, ": open\n\nid: 7\ndata: {}\n\n");
        shutdown.request();
        assert!(body.frame().await.is_none());
    }
}

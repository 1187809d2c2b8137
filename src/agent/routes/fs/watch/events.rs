//! `GET /fs/watch/{watch_id}/events`.

use std::sync::Arc;

use axum::{extract::State, response::Response};

use super::{TAG, watch_not_found};
use crate::{
    agent::fs::watches::{Watches, overflow_event},
    api::{ErrorBody, fs::WatchEvent, ids::WatchId},
    http::{ApiResult, LastEventId, Path, follow_log},
    shutdown::Shutdown,
};

/// Stream the events of a watch
///
/// Returns server-sent events, each a `WatchEvent`: first the stored events, then new ones as they
/// come. With `Last-Event-ID` the stream continues after that event. A reader that falls behind the
/// stored events gets an `OVERFLOW` event with the number of missed events.
///
/// An `OVERFLOW` without a number means that the system has dropped events, or that not all
/// directories can be watched: events after it are reported again, and some before it may be
/// reported twice. The stream ends with the watch, or when the directory itself is gone.
#[utoipa::path(
    get,
    path = "/fs/watch/{watch_id}/events",
    operation_id = "stream_watch_events",
    tag = TAG,
    params(("watch_id" = String, Path, description = "The id of the watch", example = "watch_01kgc3v7e8r9t0w1x2y3z4a5b6"), ("Last-Event-ID" = Option<u64>, Header, description = "The id of the last event that was received")),
    responses(
        (status = 200, body = WatchEvent, content_type = "text/event-stream"),
        (status = 204, description = "The stream has ended, and no event follows `Last-Event-ID`"),
        (status = 400, body = ErrorBody, description = "`Last-Event-ID` is not a number"),
        (status = 404, body = ErrorBody, description = "The watch does not exist"),
    )
)]
pub(crate) async fn events(
    State(watches): State<Watches>,
    State(shutdown): State<Shutdown>,
    Path(id): Path<WatchId>,
    last: LastEventId,
) -> ApiResult<Response> {
    let reader = watches
        .events(&id, last.into())
        .ok_or_else(watch_not_found)?;
    let gap = |missed| Arc::new(overflow_event(Some(missed)));
    Ok(follow_log(reader, gap, &shutdown))
}

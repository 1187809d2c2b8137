//! `GET /fs/watch/{watch_id}/events`

use std::sync::Arc;

use axum::{extract::State, response::Response};

use super::{TAG, no_watch};
use crate::{
    agent::{Agent, fs::watches::overflow_event},
    api::{ErrorBody, fs::WatchEvent, ids::WatchId},
    http::{ApiResult, LastEventId, Path, follow},
};

/// Read a watch's events
///
/// Server-sent events, each a `WatchEvent`. Every reader gets all that is kept, then all that comes; with `Last-Event-ID`, what
/// comes after that event. Who falls behind what is kept gets an `OVERFLOW` event with the number that was missed. One without a
/// number says that the system has dropped events, or that not all directories can be watched: what happens after it is told again,
/// and some of what happened before may be told twice. The stream ends with the watch, or when the directory itself is gone.
#[utoipa::path(
    get,
    path = "/fs/watch/{watch_id}/events",
    operation_id = "watch_events",
    tag = TAG,
    params(("watch_id" = String, Path), ("Last-Event-ID" = Option<u64>, Header)),
    responses(
        (status = 200, body = WatchEvent, content_type = "text/event-stream"),
        (status = 204, description = "nothing comes after `Last-Event-ID`: the stream has ended"),
        (status = 400, body = ErrorBody, description = "`Last-Event-ID` is not a number"),
        (status = 404, body = ErrorBody, description = "there is no such watch"),
    )
)]
pub async fn events(
    State(agent): State<Agent>,
    Path(id): Path<WatchId>,
    last: LastEventId,
) -> ApiResult<Response> {
    let reader = agent
        .watches
        .events(&id, last.into())
        .ok_or_else(no_watch)?;
    let gap = |missed| Arc::new(overflow_event(Some(missed)));
    Ok(follow(reader, gap, &agent.shutdown))
}

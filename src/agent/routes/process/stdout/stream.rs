//! `GET /process/{process_id}/stdout/stream`

use axum::{extract::State, response::Response};

use super::super::{TAG, find};
use crate::{
    agent::Agent,
    api::{ErrorBody, ids::ProcessId, process::ProcessEvent},
    http::{ApiResult, LastEventId, Path, follow},
};

/// Read a process's output
///
/// Server-sent events, each a `ProcessEvent`, in the order in which the output was read. Every reader gets all that is kept, then all
/// that comes, and the exit as the last; with `Last-Event-ID`, what comes after that event. Who falls behind what is kept gets an
/// `overflow` event. The exit comes when both outputs have ended; where other programs hold them open, half a second after the
/// process's end, and says so (`output_open`): what those write later is not kept.
#[utoipa::path(
    get,
    path = "/process/{process_id}/stdout/stream",
    operation_id = "process_output",
    tag = TAG,
    params(("process_id" = ProcessId, Path), ("Last-Event-ID" = Option<u64>, Header)),
    responses(
        (status = 200, body = ProcessEvent, content_type = "text/event-stream"),
        (status = 204, description = "nothing comes after `Last-Event-ID`: the stream has ended"),
        (status = 400, body = ErrorBody, description = "`Last-Event-ID` is not a number"),
        (status = 404, body = ErrorBody, description = "there is no such process"),
    )
)]
pub async fn stream(
    State(agent): State<Agent>,
    Path(id): Path<ProcessId>,
    last: LastEventId,
) -> ApiResult<Response> {
    let reader = find(&agent, &id)?.output(last.into());
    Ok(follow(reader, ProcessEvent::overflow, &agent.shutdown))
}

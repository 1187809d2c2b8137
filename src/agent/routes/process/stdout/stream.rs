//! `GET /process/{process_id}/stdout/stream`.

use axum::{extract::State, response::Response};

use super::super::{TAG, find};
use crate::{
    agent::process::Processes,
    api::{ErrorBody, ids::ProcessId, process::ProcessEvent},
    http::{ApiResult, LastEventId, Path, follow_log},
    shutdown::Shutdown,
};

/// Stream the output of a process
///
/// Returns server-sent events, each a `ProcessEvent`, in the order in which the output was read:
/// first the stored output, then new output as it comes, and last the exit. With `Last-Event-ID`
/// the stream continues after that event. A reader that falls behind the stored output gets an
/// `overflow` event.
///
/// The exit follows when both outputs have ended. If other programs hold them open, it follows half
/// a second after the end of the process, with `output_open`; what they write later is not stored.
#[utoipa::path(
    get,
    path = "/process/{process_id}/stdout/stream",
    operation_id = "stream_process_output",
    tag = TAG,
    params(("process_id" = ProcessId, Path, description = "The id of the process", example = "3f0c6a52-9d1e-4b7a-8c55-6f2d1e0b9a47"), ("Last-Event-ID" = Option<u64>, Header, description = "The id of the last event that was received")),
    responses(
        (status = 200, body = ProcessEvent, content_type = "text/event-stream"),
        (status = 204, description = "The stream has ended, and no event follows `Last-Event-ID`"),
        (status = 400, body = ErrorBody, description = "`Last-Event-ID` is not a number"),
        (status = 404, body = ErrorBody, description = "The process does not exist"),
    )
)]
pub(crate) async fn stream(
    State(processes): State<Processes>,
    State(shutdown): State<Shutdown>,
    Path(id): Path<ProcessId>,
    last: LastEventId,
) -> ApiResult<Response> {
    let reader = find(&processes, &id)?.output(last.into());
    Ok(follow_log(reader, ProcessEvent::overflow, &shutdown))
}

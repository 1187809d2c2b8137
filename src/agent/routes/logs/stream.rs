//! `GET /logs/stream`

use axum::{extract::State, response::Response};
use futures::stream;

use super::TAG;
use crate::{
    agent::Agent,
    api::{
        ErrorBody,
        logs::{LogEvent, LogQuery, LogSourceName, SupervisorProcess},
    },
    http::{ApiResult, LastEventId, Query, SseEvent, sse},
};

/// Read a log
///
/// Server-sent events, each a `LogEvent`: all there is, from the beginning of the file, or of what is kept of a program's output
/// (2 MiB and 16,384 lines, across its restarts), then, with `follow`, all that comes; else an `end`. With `Last-Event-ID`, what
/// comes after that event.
///
/// A file is read at the pace of its reader and followed by its name: when it is truncated, replaced or deleted, a `restart` says so
/// and the next begins from its start. An empty one that has replaced another is waited for, and the other read meanwhile: its writer
/// may not have heard of it yet. One that is missing is waited for where its directory is there. What is written over a file that was
/// truncated, until it is longer than before, cannot be told from an append. A line of more than 64 KiB comes in parts, and so does a
/// file's whose end is not written within a second. A reader of a program's output that falls behind what is kept gets a
/// `gap` with the number of lines.
#[utoipa::path(
    get,
    path = "/logs/stream",
    operation_id = "stream_log",
    tag = TAG,
    params(
        ("source" = LogSourceName, Query, description = "A file, or a program of the agent"),
        ("path" = Option<String>, Query, max_length = 4095, description = "With `source=path`: the absolute path of a regular file"),
        ("supervisor_process" = Option<SupervisorProcess>, Query, description = "With `source=supervisor`: which program's output"),
        ("follow" = Option<bool>, Query, description = "Whether to stay for what comes; `true` where nothing is said"),
        ("Last-Event-ID" = Option<u64>, Header),
    ),
    responses(
        (status = 200, body = LogEvent, content_type = "text/event-stream"),
        (status = 400, body = ErrorBody, description = "a parameter is missing, not known or of the other source; the path is not absolute or not of a regular file"),
        (status = 403, body = ErrorBody, description = "the file may not be read"),
        (status = 404, body = ErrorBody, description = "there is no such file; with `follow`, no such directory"),
        (status = 429, body = ErrorBody, description = "64 logs are being read, or the system has no inotify watch left"),
    )
)]
pub async fn stream(
    State(agent): State<Agent>,
    Query(query): Query<LogQuery>,
    last: LastEventId,
) -> ApiResult<Response> {
    let reader = agent.logs.open(query, last.get()).await?;
    let events = stream::unfold(reader, |mut reader| async move {
        let (id, event) = reader.next().await?;
        let data = serde_json::to_string(&event).unwrap_or_default();
        Some((SseEvent { id, data }, reader))
    });
    Ok(sse(events, &agent.shutdown))
}

//! `GET /logs/stream`.

use axum::{extract::State, response::Response};
use futures::stream;

use super::TAG;
use crate::{
    agent::logs::Logs,
    api::{
        ErrorBody,
        logs::{LogEvent, LogQuery, LogSourceName, SupervisorProcess},
    },
    http::{ApiResult, LastEventId, Query, SseEvent, sse_response},
    shutdown::Shutdown,
};

/// Stream a log
///
/// Returns server-sent events, each a `LogEvent`: first all stored lines (of a file from its start,
/// of a program the newest 2 MiB or 16,384 lines, across its restarts), then, with `follow`, new
/// lines as they come, else one `end` event. With `Last-Event-ID` the stream continues after that
/// event.
///
/// A file is read as fast as its reader takes it, and is followed by name. If it is truncated,
/// replaced or deleted, a `restart` event follows, and reading continues at the start of the new
/// file. If the new file is still empty, reading of the old one continues until the new one has
/// content, since its writer may not have switched yet. A missing file is waited for if its
/// directory exists. Data that is written over a truncated file cannot be distinguished from an
/// append once the file is longer than before.
///
/// A line longer than 64 KiB comes in parts, and so does a line of a file that is not complete
/// within a second. A reader that falls behind the stored output of a program gets a `gap` event
/// with the number of missed lines.
#[utoipa::path(
    get,
    path = "/logs/stream",
    operation_id = "stream_log",
    tag = TAG,
    params(
        ("source" = inline(LogSourceName), Query, description = "A file, or a program that the agent runs", example = "supervisor"),
        ("path" = Option<String>, Query, max_length = 4095, description = "With `source=path`: the absolute path of a regular file", example = "/var/log/syslog"),
        ("supervisor_process" = inline(Option<SupervisorProcess>), Query, description = "With `source=supervisor`: the program", example = "chromium"),
        ("follow" = Option<bool>, Query, description = "Whether to keep the stream open for new lines. The default is `true`"),
        ("Last-Event-ID" = Option<u64>, Header, description = "The id of the last event that was received"),
    ),
    responses(
        (status = 200, body = LogEvent, content_type = "text/event-stream"),
        (status = 400, body = ErrorBody, description = "A parameter is missing, unknown or of the other source, or the path is not absolute or not of a regular file"),
        (status = 403, body = ErrorBody, description = "Permission denied, or the file is the agent's own"),
        (status = 404, body = ErrorBody, description = "The file (with `follow`: its directory) does not exist"),
        (status = 429, body = ErrorBody, description = "64 logs are being read, or the system's limit of inotify watches is reached"),
    )
)]
pub(crate) async fn stream(
    State(logs): State<Logs>,
    State(shutdown): State<Shutdown>,
    Query(query): Query<LogQuery>,
    last: LastEventId,
) -> ApiResult<Response> {
    let reader = logs.open(query, last.get()).await?;
    let events = stream::unfold(reader, |mut reader| async move {
        let (id, event) = reader.next().await?;
        let data = serde_json::to_string(&event).unwrap_or_default();
        let id = Some(id.to_string());
        Some((SseEvent { id, data }, reader))
    });
    Ok(sse_response(events, &shutdown))
}

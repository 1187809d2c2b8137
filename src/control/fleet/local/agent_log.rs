//! Copies the log of an agent into control's own log.

use serde::Deserialize;
use serde_json::{Map, Value};
use tracing::Level;

use super::session_record::SessionRecord;
use crate::api::ids::HostId;

/// The target of these events. Agents filter their log themselves, so control's log filter passes
/// all of them.
pub const TARGET: &str = "berth_agent";

/// The most characters of a line that are retained for the report of an agent's exit.
const MAX_SUMMARY: usize = 1024;

/// A line of a log in the format `--log-format=json`.
#[derive(Deserialize)]
struct Line {
    level: String,
    target: String,
    #[serde(default)]
    fields: Map<String, Value>,
    #[serde(default)]
    spans: Vec<Map<String, Value>>,
}

/// Logs a line of a host's agent at the level it has there. Returns a summary of the line, or
/// `None` if it is not a line of a log.
pub(super) fn copy_line(host: &HostId, session: &SessionRecord, line: &str) -> Option<String> {
    let Line {
        level,
        target,
        mut fields,
        spans,
    } = serde_json::from_str(line).ok()?;
    let level: Level = level.parse().ok()?;
    let message = fields.remove("message");
    let message = message.as_ref().and_then(Value::as_str).unwrap_or_default();
    let (mut request, mut trace) = (None, None);
    for mut span in spans {
        if span.remove("name").is_some_and(|name| name == "request") {
            request = span.remove("id");
            trace = span.remove("trace");
        }
        for (name, value) in span {
            fields.entry(name).or_insert(value);
        }
    }
    let request = request.as_ref().and_then(Value::as_str);
    let trace = trace.as_ref().and_then(Value::as_str);
    let fields = (!fields.is_empty()).then(|| Value::Object(fields).to_string());
    let fields = fields.as_deref();
    let browser = session.get();
    let browser = browser.as_ref().map(tracing::field::display);
    macro_rules! event {
        ($level:ident) => {
            tracing::event!(
                target: TARGET,
                Level::$level,
                %host,
                browser,
                request,
                trace,
                source = target,
                fields,
                "{message}"
            )
        };
    }
    match level {
        Level::ERROR => event!(ERROR),
        Level::WARN => event!(WARN),
        Level::INFO => event!(INFO),
        Level::DEBUG => event!(DEBUG),
        Level::TRACE => event!(TRACE),
    }
    let summary = format!("{level} {message} {}", fields.unwrap_or_default());
    Some(summary.chars().take(MAX_SUMMARY).collect())
}

//! What agents log, told again in control's own log.

use serde::Deserialize;
use serde_json::{Map, Value};
use tracing::Level;

use crate::api::ids::BrowserId;

/// The target of these lines. The agents have filtered them already, so the log lets all of it pass.
pub const TARGET: &str = "berth_agent";

/// How many characters of a line are worth keeping for the report of an agent's death.
const MAX_SUMMARY: usize = 1024;

/// A line as `--log-format=json` has it.
#[derive(Deserialize)]
struct Line {
    level: String,
    target: String,
    #[serde(default)]
    fields: Map<String, Value>,
    #[serde(default)]
    spans: Vec<Map<String, Value>>,
}

/// Tells a line of `browser`'s agent at its own level; returns a summary of it, or nothing where it is no line of a log.
pub fn tell(browser: &BrowserId, line: &str) -> Option<String> {
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
    macro_rules! event {
        ($level:ident) => {
            tracing::event!(
                target: TARGET,
                Level::$level,
                %browser,
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

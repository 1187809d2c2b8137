//! Logs.

use deserr::{DeserializeError, Deserr, IntoValue, Value, ValuePointerRef};
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    field::{Fields, Flag, from_text},
    fs::GuestPath,
    time::Timestamp,
};

/// The log to read, and whether to follow it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogQuery {
    pub source: LogSource,
    pub follow: bool,
}

/// The source of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogSource {
    /// A file on the browser's host.
    Path(GuestPath),
    /// The output of a program that the agent runs.
    Supervisor(SupervisorProcess),
}

/// A program whose output the agent retains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum SupervisorProcess {
    Chromium,
    /// The X server. It prints nothing if the browser is headless.
    Xvfb,
    /// The agent's own log.
    Agent,
}

/// The kind of a log source.
#[derive(Debug, Clone, Copy, ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum LogSourceName {
    Path,
    Supervisor,
}

impl<E: DeserializeError> Deserr<E> for LogSourceName {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        from_text(value, location, |text| match text.as_str() {
            "path" => Ok(LogSourceName::Path),
            "supervisor" => Ok(LogSourceName::Supervisor),
            _ => Err("must be path or supervisor".to_owned()),
        })
    }
}

impl<E: DeserializeError> Deserr<E> for SupervisorProcess {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        from_text(value, location, |text| match text.as_str() {
            "chromium" => Ok(SupervisorProcess::Chromium),
            "xvfb" => Ok(SupervisorProcess::Xvfb),
            "agent" => Ok(SupervisorProcess::Agent),
            _ => Err("must be chromium, xvfb or agent".to_owned()),
        })
    }
}

impl<E: DeserializeError> Deserr<E> for LogQuery {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        let mut fields = Fields::new(value, location)?;
        let follow = fields.optional::<Flag>("follow");
        let source = match fields.required("source") {
            Some(LogSourceName::Path) => {
                fields.reject_if_present("supervisor_process", "requires source=supervisor");
                fields.required("path").map(LogSource::Path)
            }
            Some(LogSourceName::Supervisor) => {
                fields.reject_if_present("path", "requires source=path");
                fields
                    .required("supervisor_process")
                    .map(LogSource::Supervisor)
            }
            None => None,
        };
        let follow = follow.is_none_or(|Flag(follow)| follow);
        fields.finish(source.map(|source| LogQuery { source, follow }))
    }
}

/// An event of a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct LogEvent {
    pub event: LogEventKind,
    /// The time when the line was printed, or read from a file.
    pub timestamp: Timestamp,
    /// The line without its line feed, or a description of the event. Invalid UTF-8 is replaced by
    /// U+FFFD.
    pub message: String,
    /// With `log`: `true` if the line continues in the next event or is not complete yet.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    pub partial: bool,
    /// With `gap`: number of lines that were dropped before they were read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missed: Option<u64>,
}

/// The kind of a log event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogEventKind {
    /// A line.
    Log,
    /// Lines were dropped before they were read.
    Gap,
    /// The log starts again: the file was truncated, replaced or deleted, or the agent restarted.
    Restart,
    /// The end of the log.
    End,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::http::{ApiError, FieldErrors};

    fn parse(query: serde_json::Value) -> Result<LogQuery, Vec<String>> {
        deserr::deserialize::<LogQuery, _, FieldErrors>(query).map_err(|errors| {
            let error = ApiError::from(errors);
            let details = error.body().details.iter();
            let mut fields: Vec<_> = details.map(|detail| detail.code.clone()).collect();
            fields.sort();
            fields
        })
    }

    #[test]
    fn source_requires_its_own_field_and_no_other() {
        let path = GuestPath::parse("/x".to_owned()).unwrap();
        assert_eq!(
            parse(json!({"source": "path", "path": "/x"})),
            Ok(LogQuery {
                source: LogSource::Path(path),
                follow: true
            })
        );
        assert_eq!(
            parse(json!({"source": "supervisor", "supervisor_process": "xvfb", "follow": "false"})),
            Ok(LogQuery {
                source: LogSource::Supervisor(SupervisorProcess::Xvfb),
                follow: false
            })
        );
        for (query, fields) in [
            (json!({}), &["source"][..]),
            (json!({"source": "x", "follow": "1"}), &["follow", "source"]),
            (json!({"source": "path"}), &["path"]),
            (json!({"source": "supervisor"}), &["supervisor_process"]),
            (
                json!({"source": "path", "supervisor_process": "agent"}),
                &["path", "supervisor_process"],
            ),
            (
                json!({"source": "supervisor", "path": "/x", "supervisor_process": "systemd"}),
                &["path", "supervisor_process"],
            ),
        ] {
            assert_eq!(parse(query.clone()).unwrap_err(), fields, "{query}");
        }
    }
}

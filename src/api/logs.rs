//! Logs, on the wire.

use deserr::{DeserializeError, Deserr, IntoValue, Value, ValuePointerRef};
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    field::{Fields, Flag, from_text},
    fs::GuestPath,
    time::Timestamp,
};

/// Which log to read, and whether to stay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogQuery {
    pub source: LogSource,
    pub follow: bool,
}

/// Where a log comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogSource {
    /// A file on the browser's host.
    Path(GuestPath),
    /// What one of the agent's programs prints.
    Supervisor(SupervisorProcess),
}

/// A program whose output the agent keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum SupervisorProcess {
    Chromium,
    /// The X server; it prints nothing where the browser is headless.
    Xvfb,
    /// The agent's own log.
    Agent,
}

/// The values of `source`.
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
                fields.reject_if_present("supervisor_process", "is only for source=supervisor");
                fields.required("path").map(LogSource::Path)
            }
            Some(LogSourceName::Supervisor) => {
                fields.reject_if_present("path", "is only for source=path");
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

/// What a log's stream tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct LogEvent {
    pub event: LogEventKind,
    /// When the line was printed; of a file's line, when it was read.
    pub timestamp: Timestamp,
    /// The line without its line feed; else what happened, in words. What is no UTF-8 is shown as well as it can be.
    pub message: String,
    /// With `log`, `true` where the line goes on in the next event, or its end has not been written.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    pub partial: bool,
    /// With `gap`: how many lines were dropped before they were read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missed: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogEventKind {
    /// A line.
    Log,
    /// Lines were dropped that had not been read.
    Gap,
    /// What follows begins anew: the file was truncated, replaced or deleted, or the agent has been started again.
    Restart,
    /// Nothing follows.
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
    fn a_source_has_the_field_that_is_its_own() {
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

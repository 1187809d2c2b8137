//! The audit log.

use std::{fmt, str::FromStr};

use chrono::{DateTime, Utc};
use deserr::{DeserializeError, Deserr, IntoValue, Map, Value, ValuePointerRef};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    field::{self, Fields},
    ids::{AuditLogId, KeyId, ProjectId},
    paging::Limit,
    time::Timestamp,
};

/// A request in the audit log. Texts are empty where they are unknown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditLogEntry {
    /// Time of the response.
    pub timestamp: Timestamp,
    pub method: String,
    /// Path without its query, at most 512 bytes. What has the form of a token is replaced by
    /// `[redacted]`.
    pub path: String,
    /// Path with the names of its parameters, as in this document.
    pub route: String,
    /// Status of the response; 499 if the client disconnected before it.
    pub status: u16,
    /// Milliseconds from the request to the head of its response.
    pub duration_ms: u64,
    /// Address of the client.
    pub client_ip: String,
    /// `User-Agent` of the request, at most 256 bytes.
    pub user_agent: String,
    /// Host name or address that the request was sent to.
    pub domain: String,
    pub auth_strategy: AuthStrategy,
    /// Id of the API key, or of the browser or auth connection that the token is for. Empty if the
    /// authentication failed.
    pub user_id: String,
    /// Always empty: this server has no user accounts.
    pub email: String,
    pub request_id: String,
    /// Id of the operation in this document, such as `create_browser`; `records_lost` for an entry
    /// that stands for records which were not stored.
    pub action: String,
    /// Path of the resource, such as `browsers/brw_01kgc3v7e8r9t0w1x2y3z4a5b6`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// Project that the request was about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project_id: Option<ProjectId>,
    /// API key of the request, or the one that its token was issued for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key_id: Option<KeyId>,
}

/// The kind of credential that a request has presented.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AuthStrategy {
    /// An `Authorization` header.
    ApiKey,
    /// The token in one of a browser's own URLs.
    SessionToken,
    /// The token of a login flow.
    FlowToken,
    /// A join token, or a token of a host's own key.
    Host,
    /// No credential.
    None,
}

impl AuthStrategy {
    const ALL: [AuthStrategy; 5] = [
        Self::ApiKey,
        Self::SessionToken,
        Self::FlowToken,
        Self::Host,
        Self::None,
    ];

    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            AuthStrategy::ApiKey => "api_key",
            AuthStrategy::SessionToken => "session_token",
            AuthStrategy::FlowToken => "flow_token",
            AuthStrategy::Host => "host",
            AuthStrategy::None => "none",
        }
    }
}

impl FromStr for AuthStrategy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL
            .into_iter()
            .find(|strategy| strategy.as_str() == text);
        found.ok_or_else(|| format!("must be among {}", Self::ALL.map(Self::as_str).join(", ")))
    }
}

/// The methods that requests in the audit log may have.
const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/// An HTTP method, in upper case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MethodName(&'static str);

impl MethodName {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.0
    }
}

impl FromStr for MethodName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = METHODS
            .into_iter()
            .find(|name| name.eq_ignore_ascii_case(text));
        found
            .map(MethodName)
            .ok_or_else(|| format!("must be among {}", METHODS.join(", ")))
    }
}

/// The first segment of a route, such as `browsers`: 1–64 characters of `a-z 0-9 . _ -`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceName(String);

impl ServiceName {
    const MAX: usize = 64;

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ServiceName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let allowed =
            |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'_' | b'-');
        if text.is_empty() || text.len() > Self::MAX || !text.bytes().all(allowed) {
            return Err(format!(
                "must have 1 to {} characters of a-z 0-9 . _ -",
                Self::MAX
            ));
        }
        Ok(ServiceName(text.to_owned()))
    }
}

/// A text to search for: 1–255 characters without control characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlainText(String);

impl PlainText {
    const MAX: usize = 255;

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for PlainText {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let count = text.chars().count();
        if count == 0 || count > Self::MAX || text.chars().any(char::is_control) {
            return Err(format!(
                "must have 1 to {} characters without control characters",
                Self::MAX
            ));
        }
        Ok(PlainText(text.to_owned()))
    }
}

/// A position in the audit log: the entry before which the next page starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditLogPosition {
    pub time: DateTime<Utc>,
    pub id: AuditLogId,
}

impl fmt::Display for AuditLogPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.time.timestamp_millis(), self.id)
    }
}

impl FromStr for AuditLogPosition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = |text: &str| {
            let (millis, id) = text.split_once('.')?;
            Some(AuditLogPosition {
                time: DateTime::from_timestamp_millis(millis.parse().ok()?)?,
                id: id.parse().ok()?,
            })
        };
        parse(text).ok_or_else(|| "must be a value of an earlier response".to_owned())
    }
}

/// The requests of the audit log to return: those that match every parameter.
#[derive(Debug, Clone, PartialEq, Eq, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct AuditLogFilter {
    /// First time of the entries.
    #[param(value_type = String, format = DateTime, example = "2026-01-01T00:00:00Z")]
    pub start: DateTime<Utc>,
    /// Time after that of the last entry.
    #[param(value_type = String, format = DateTime, example = "2026-01-02T00:00:00Z")]
    pub end: DateTime<Utc>,
    /// Methods, up to 10, joined by commas.
    #[param(value_type = Option<String>, example = "POST,DELETE")]
    pub method: Vec<MethodName>,
    /// Methods to leave out, up to 10, joined by commas.
    #[param(value_type = Option<String>, example = "GET")]
    pub exclude_method: Vec<MethodName>,
    /// Kinds of credentials, joined by commas: `api_key`, `session_token`, `flow_token`, `host`,
    /// `none`.
    #[param(value_type = Option<String>, example = "api_key")]
    pub auth_strategy: Vec<AuthStrategy>,
    /// First segments of routes, up to 10, joined by commas.
    #[param(value_type = Option<String>, example = "browsers,org")]
    pub service: Vec<ServiceName>,
    /// Text to search for, case-insensitive, in path, action, resource, user id, client address and
    /// request id; or a status. 1–255 characters.
    #[param(value_type = Option<String>, example = "brw_01kgc3v7e8r9t0w1x2y3z4a5b6")]
    pub search: Option<PlainText>,
    /// User ids, up to 100, joined by commas. Their requests are returned in addition to those with
    /// the text of `search`.
    #[param(value_type = Option<String>, example = "key_01kgc3v7e8r9t0w1x2y3z4a5b6")]
    pub search_user_id: Vec<PlainText>,
}

/// A page of the audit log.
#[derive(Debug, Clone, PartialEq, Eq, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ListAuditLogs {
    #[param(ignore)]
    pub filter: AuditLogFilter,
    /// Number of entries per page.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 100, default = 20)]
    pub limit: Limit,
    /// `X-Next-Page-Token` of the page before, with the same filter.
    #[param(value_type = Option<String>)]
    pub page_token: Option<AuditLogPosition>,
}

/// A chunk of an export of the audit log.
#[derive(Debug, Clone, PartialEq, Eq, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ExportAuditLogs {
    #[param(ignore)]
    pub filter: AuditLogFilter,
    /// Most entries of the chunk.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 50000, default = 10000)]
    pub limit: ChunkLimit,
    /// `X-Next-Cursor` of the chunk before, with the same filter.
    #[param(value_type = Option<String>)]
    pub cursor: Option<AuditLogPosition>,
    /// Format of the body: JSON lines, compressed by gzip or not.
    #[param(value_type = Option<ExportFormat>, inline, example = "jsonl")]
    pub format: ExportFormat,
}

/// The most entries of a chunk: 1–50,000, 10,000 by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkLimit(u32);

impl ChunkLimit {
    pub const MAX: u32 = 50_000;

    #[must_use]
    pub fn get(self) -> u32 {
        self.0
    }
}

impl Default for ChunkLimit {
    fn default() -> Self {
        ChunkLimit(10_000)
    }
}

impl FromStr for ChunkLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(limit @ 1..=Self::MAX) => Ok(ChunkLimit(limit)),
            _ => Err(format!("must be a whole number from 1 to {}", Self::MAX)),
        }
    }
}

/// The format of an export.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ToSchema)]
pub enum ExportFormat {
    #[schema(rename = "jsonl")]
    JsonLines,
    /// Compressed, the default.
    #[default]
    #[schema(rename = "jsonl.gz")]
    JsonLinesGzip,
}

impl FromStr for ExportFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "jsonl" => Ok(ExportFormat::JsonLines),
            "jsonl.gz" => Ok(ExportFormat::JsonLinesGzip),
            _ => Err("must be jsonl or jsonl.gz".to_owned()),
        }
    }
}

/// A parameter parsed from its text.
struct Parsed<T>(T);

/// A parameter with 1 to `MAX` values, joined by commas.
struct CommaList<T, const MAX: usize>(Vec<T>);

struct Time(DateTime<Utc>);

impl FromStr for Time {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let time = DateTime::parse_from_rfc3339(text);
        time.map(|time| Time(time.to_utc()))
            .map_err(|_| "must be an RFC 3339 time such as 2026-01-31T12:00:00Z".to_owned())
    }
}

impl<E: DeserializeError, T: FromStr<Err = String>> Deserr<E> for Parsed<T> {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        field::from_text(value, location, |text| text.parse().map(Parsed))
    }
}

impl<E, T, const MAX: usize> Deserr<E> for CommaList<T, MAX>
where
    E: DeserializeError,
    T: FromStr<Err = String>,
{
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        field::from_text(value, location, |text| {
            if text.split(',').count() > MAX {
                return Err(format!("must have at most {MAX} values"));
            }
            let values = text.split(',').map(|value| value.trim().parse());
            values.collect::<Result<_, _>>().map(CommaList)
        })
    }
}

impl AuditLogFilter {
    /// Reads the parameters of the filter. Returns `None` if one is invalid.
    fn read<M: Map, E: DeserializeError>(fields: &mut Fields<M, E>) -> Option<Self> {
        let start: Option<Parsed<Time>> = fields.required("start");
        let end: Option<Parsed<Time>> = fields.required("end");
        let method: Option<CommaList<_, 10>> = fields.optional("method");
        let exclude_method: Option<CommaList<_, 10>> = fields.optional("exclude_method");
        let auth_strategy: Option<CommaList<_, 10>> = fields.optional("auth_strategy");
        let service: Option<CommaList<_, 10>> = fields.optional("service");
        let search: Option<Parsed<_>> = fields.optional("search");
        let search_user_id: Option<CommaList<_, 100>> = fields.optional("search_user_id");
        let (Parsed(Time(start)), Parsed(Time(end))) = (start?, end?);
        if start >= end {
            fields.reject("end", "must be later than start");
        }
        Some(AuditLogFilter {
            start,
            end,
            method: values(method),
            exclude_method: values(exclude_method),
            auth_strategy: values(auth_strategy),
            service: values(service),
            search: search.map(|Parsed(text)| text),
            search_user_id: values(search_user_id),
        })
    }
}

fn values<T, const MAX: usize>(list: Option<CommaList<T, MAX>>) -> Vec<T> {
    list.map_or_else(Vec::new, |CommaList(values)| values)
}

fn parsed<T>(value: Option<Parsed<T>>) -> Option<T> {
    value.map(|Parsed(value)| value)
}

impl<E: DeserializeError> Deserr<E> for ListAuditLogs {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        let mut fields = Fields::<_, E>::new(value, location)?;
        let limit: Option<Limit> = fields.optional("limit");
        let page_token = fields.optional("page_token");
        let filter = AuditLogFilter::read(&mut fields);
        fields.finish(filter.map(|filter| ListAuditLogs {
            filter,
            limit: limit.unwrap_or_default(),
            page_token: parsed(page_token),
        }))
    }
}

impl<E: DeserializeError> Deserr<E> for ExportAuditLogs {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        let mut fields = Fields::<_, E>::new(value, location)?;
        let limit = fields.optional("limit");
        let cursor = fields.optional("cursor");
        let format = fields.optional("format");
        let filter = AuditLogFilter::read(&mut fields);
        fields.finish(filter.map(|filter| ExportAuditLogs {
            filter,
            limit: parsed(limit).unwrap_or_default(),
            cursor: parsed(cursor),
            format: parsed(format).unwrap_or_default(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn position_parses_its_own_text() {
        let position = AuditLogPosition {
            time: DateTime::from_timestamp_millis(1_769_860_800_005).unwrap(),
            id: AuditLogId::generate(),
        };
        assert_eq!(position.to_string().parse(), Ok(position.clone()));
        let id = &position.id;
        for other in [
            "",
            "1",
            &format!(".{id}"),
            &format!("9223372036854775807.{id}"),
            &format!("1.{id}x"),
        ] {
            assert!(other.parse::<AuditLogPosition>().is_err(), "{other}");
        }
    }
}

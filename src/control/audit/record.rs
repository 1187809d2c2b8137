//! A record of the audit log.

use std::{net::IpAddr, time::Duration};

use chrono::{DateTime, Utc};

use crate::api::{
    audit_logs::AuthStrategy,
    ids::{AuditLogId, KeyId, ProjectId},
};

/// The most bytes of a path and of a resource.
const MAX_PATH: usize = 512;
/// The most bytes of a user agent.
const MAX_USER_AGENT: usize = 256;
/// The most bytes of a host name, that of the Domain Name System.
const MAX_DOMAIN: usize = 253;
/// The least length of a text that is taken for a token, if it contains one of [`TOKEN_MARKS`].
const MIN_TOKEN: usize = 32;
/// Parts of API keys and of JSON Web Tokens.
const TOKEN_MARKS: [&str; 2] = ["berth_", "eyJ"];
const REDACTED: &str = "[redacted]";
/// The action of a record that stands for lost ones.
const RECORDS_LOST: &str = "records_lost";

/// A row of the audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRecord {
    pub id: AuditLogId,
    /// The time of the response, in milliseconds.
    pub time: DateTime<Utc>,
    pub method: String,
    pub path: String,
    pub route: String,
    /// The first segment of the route.
    pub service: String,
    pub status: u16,
    pub duration_ms: u64,
    pub client_ip: String,
    pub user_agent: String,
    pub domain: String,
    pub auth_strategy: AuthStrategy,
    /// The API key, the browser or the connection of the token, the host, or its join token.
    pub user_id: Option<String>,
    pub api_key_id: Option<KeyId>,
    pub project_id: Option<ProjectId>,
    pub request_id: String,
    pub action: String,
    pub resource: Option<String>,
}

/// A request that has ended, as the server has received it.
#[derive(Debug, Clone)]
pub struct EndedRequest<'a> {
    pub method: &'a str,
    /// Without the query.
    pub path: &'a str,
    pub route: &'a str,
    pub action: &'a str,
    pub resource: Option<&'a str>,
    pub status: u16,
    pub duration: Duration,
    pub client: Option<IpAddr>,
    pub user_agent: &'a str,
    pub domain: &'a str,
    pub auth_strategy: AuthStrategy,
    /// `None` if the authentication failed.
    pub actor: Option<&'a Actor>,
    pub request_id: &'a str,
}

/// The authenticated sender of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor {
    /// The API key, or the one that the token was issued for. `None` for hosts.
    pub key: Option<KeyId>,
    /// The browser or the connection of the token, or the host, or the join token that it registers
    /// with.
    pub holder: Option<String>,
    pub project: Option<ProjectId>,
}

/// Why records were not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossReason {
    /// The queue was full, because the database did not accept the records in time.
    QueueFull,
    /// Failed authentications beyond their rate limit.
    RateLimit,
}

impl LossReason {
    pub fn as_str(self) -> &'static str {
        match self {
            LossReason::QueueFull => "queue_full",
            LossReason::RateLimit => "rate_limit",
        }
    }
}

impl AuditRecord {
    pub fn new(request: &EndedRequest<'_>, now: DateTime<Utc>) -> AuditRecord {
        let actor = request.actor;
        let user_id = |actor: &Actor| match &actor.holder {
            Some(holder) => Some(holder.clone()),
            None => actor.key.as_ref().map(ToString::to_string),
        };
        let resource = request.resource.map(|path| redact(path, '/'));
        AuditRecord {
            id: AuditLogId::generate(),
            time: now,
            method: request.method.to_owned(),
            path: bounded(redact(request.path, '/'), MAX_PATH),
            route: request.route.to_owned(),
            service: first_segment(request.route).to_owned(),
            status: request.status,
            duration_ms: u64::try_from(request.duration.as_millis()).unwrap_or(u64::MAX),
            client_ip: request.client.map_or_else(String::new, |ip| ip.to_string()),
            user_agent: bounded(redact(request.user_agent, ' '), MAX_USER_AGENT),
            domain: bounded(redact(request.domain, '.'), MAX_DOMAIN),
            auth_strategy: request.auth_strategy,
            user_id: actor.and_then(user_id),
            api_key_id: actor.and_then(|actor| actor.key.clone()),
            project_id: actor.and_then(|actor| actor.project.clone()),
            request_id: redact(request.request_id, ' '),
            action: request.action.to_owned(),
            resource: resource.map(|path| bounded(path, MAX_PATH)),
        }
    }

    /// Returns the record that stands for `count` lost ones.
    pub fn of_lost(count: u64, reason: LossReason, now: DateTime<Utc>) -> AuditRecord {
        AuditRecord {
            id: AuditLogId::generate(),
            time: now,
            method: String::new(),
            path: String::new(),
            route: String::new(),
            service: String::new(),
            status: 0,
            duration_ms: 0,
            client_ip: String::new(),
            user_agent: String::new(),
            domain: String::new(),
            auth_strategy: AuthStrategy::None,
            user_id: None,
            api_key_id: None,
            project_id: None,
            request_id: String::new(),
            action: RECORDS_LOST.to_owned(),
            resource: Some(format!("{}/{count}", reason.as_str())),
        }
    }
}

fn first_segment(route: &str) -> &str {
    let segment = route.trim_start_matches('/').split('/').next();
    segment.unwrap_or_default()
}

/// Replaces the parts between separators that have the form of a token.
fn redact(text: &str, separator: char) -> String {
    let is_token =
        |part: &str| part.len() >= MIN_TOKEN && TOKEN_MARKS.iter().any(|mark| part.contains(mark));
    if !is_token(text) {
        return text.to_owned();
    }
    let separator = separator.to_string();
    let parts = text.split(&separator);
    let parts = parts.map(|part| if is_token(part) { REDACTED } else { part });
    parts.collect::<Vec<_>>().join(&separator)
}

/// Cuts a text to `max` bytes.
fn bounded(mut text: String, max: usize) -> String {
    if text.len() > max {
        text.truncate(text.floor_char_boundary(max));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request<'a>() -> EndedRequest<'a> {
        EndedRequest {
            method: "POST",
            path: "/browsers",
            route: "/browsers/{id}",
            action: "create_browser",
            resource: None,
            status: 201,
            duration: Duration::from_millis(7),
            client: None,
            user_agent: "",
            domain: "",
            auth_strategy: AuthStrategy::None,
            actor: None,
            request_id: "r",
        }
    }

    #[test]
    fn token_in_a_text_is_redacted() {
        let key = format!("berth_{}_{}", "0".repeat(12), "0".repeat(64));
        let jwt = "eyJ0eXAiOiJKV1QiLCJhbGciOiJIUzI1NiJ9.eyJhdWQiOiJ4In0.c2ln";
        let path = format!("/org/api_keys/{key}/rotate");
        let agent = format!("curl/8 {jwt} x");
        let record = AuditRecord::new(
            &EndedRequest {
                path: &path,
                resource: Some(path.trim_start_matches('/')),
                user_agent: &agent,
                request_id: &key,
                domain: &key,
                ..request()
            },
            Utc::now(),
        );
        assert_eq!(record.path, "/org/api_keys/[redacted]/rotate");
        assert_eq!(record.user_agent, "curl/8 [redacted] x");
        let text = format!("{record:?}");
        assert!(!text.contains(&key) && !text.contains(jwt), "{text}");
        let name = "/org/projects/berth_is_a_name";
        assert_eq!(redact(name, '/'), name);
    }

    #[test]
    fn long_texts_are_cut() {
        let path = format!("/{}", "é".repeat(1000));
        let record = AuditRecord::new(
            &EndedRequest {
                path: &path,
                user_agent: &path,
                domain: &path,
                resource: Some(&path),
                ..request()
            },
            Utc::now(),
        );
        assert!((MAX_PATH - 1..=MAX_PATH).contains(&record.path.len()));
        assert!(record.user_agent.len() <= MAX_USER_AGENT && record.domain.len() <= MAX_DOMAIN);
        assert!(record.resource.unwrap().len() <= MAX_PATH);
        assert_eq!(record.service, "browsers");
    }
}

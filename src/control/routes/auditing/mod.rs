//! Records requests in the audit log.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{Arc, OnceLock},
    time::Instant,
};

use axum::{
    extract::{ConnectInfo, MatchedPath, Request},
    response::{IntoResponse, Response},
};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri,
    header::{AUTHORIZATION, HOST, USER_AGENT},
    uri::Authority,
};
use serde::Serialize;
use utoipa::openapi::OpenApi;

use self::operations::{Operations, is_mutating};
use super::{
    authentication::{
        HostRoute, Principal, RequestCredential, bearer_flow_token, is_flow_path, token_in,
    },
    limiting::Throttled,
};
use crate::{
    api::audit_logs::AuthStrategy,
    control::{
        audit::{Actor, AuditLog, EndedRequest},
        trusted_proxies::TrustedProxies,
    },
    http::{Json, RequestId},
};

mod operations;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// The status of a request whose client has disconnected before the response. Clients never see it.
const CLIENT_CLOSED_REQUEST: u16 = 499;
/// The action of a request with a method or path that the API does not have.
const UNKNOWN_ACTION: &str = "unknown";
const UNKNOWN_ROUTE: &str = "unmatched";

/// Decides which requests are recorded, and how. Clones share its state.
#[derive(Clone)]
pub struct Auditing(Arc<Inner>);

struct Inner {
    log: AuditLog,
    operations: Operations,
    proxies: TrustedProxies,
}

impl Auditing {
    pub fn new(log: AuditLog, document: &OpenApi, proxies: TrustedProxies) -> Auditing {
        Auditing(Arc::new(Inner {
            log,
            operations: Operations::of(document),
            proxies,
        }))
    }

    /// Notes what is recorded of a request when it ends.
    pub(super) fn begin(&self, request: &mut Request) -> PendingRecord {
        PendingRecord::of(self.clone(), request)
    }
}

/// The actor of a request, an extension that is set once the request has authenticated.
#[derive(Debug, Clone, Default)]
pub(super) struct ActorCell(Arc<OnceLock<Actor>>);

impl ActorCell {
    pub(super) fn set(&self, principal: &Principal) {
        let holder = match &principal.credential {
            RequestCredential::ApiKey(_) => None,
            RequestCredential::SessionToken { browser, .. } => Some(browser.to_string()),
            RequestCredential::FlowToken { connection, .. } => Some(connection.to_string()),
        };
        let _ = self.0.set(Actor {
            key: Some(principal.key.clone()),
            holder,
            project: Some(principal.project.clone()),
        });
    }

    /// Notes that a host has sent the request, or the holder of a join token, by its id.
    pub(super) fn set_host(&self, id: String) {
        let _ = self.0.set(Actor {
            key: None,
            holder: Some(id),
            project: None,
        });
    }
}

/// A 201 with the new resource. Its id is recorded in the audit log.
#[derive(Debug)]
pub(crate) struct Created<T> {
    pub id: String,
    pub body: T,
}

/// The id of a created resource: an extension of the response.
#[derive(Debug, Clone)]
struct CreatedId(String);

/// A resource that a request uses, relative to that of its path: an extension of the request. It is
/// recorded in the audit log, also if the client disconnects.
#[derive(Debug, Clone, Default)]
pub(crate) struct UsedResource(Arc<OnceLock<String>>);

impl UsedResource {
    pub(crate) fn set(&self, path: String) {
        let _ = self.0.set(path);
    }
}

impl<T: Serialize> IntoResponse for Created<T> {
    fn into_response(self) -> Response {
        let mut response = (StatusCode::CREATED, Json(self.body)).into_response();
        response.extensions_mut().insert(CreatedId(self.id));
        response
    }
}

/// A request in progress. It is recorded when it ends, also if it ends without a response.
pub(super) struct PendingRecord {
    auditing: Auditing,
    started_at: Instant,
    method: Method,
    uri: Uri,
    request_id: Option<RequestId>,
    client: Option<IpAddr>,
    user_agent: Option<HeaderValue>,
    host: Option<HeaderValue>,
    has_authorization: bool,
    /// Whether the authorization is the token of a login flow, valid or not.
    has_flow_token: bool,
    matched: Option<MatchedPath>,
    actor: ActorCell,
    used: UsedResource,
    is_finished: bool,
}

impl PendingRecord {
    fn of(auditing: Auditing, request: &mut Request) -> PendingRecord {
        let (actor, used) = (ActorCell::default(), UsedResource::default());
        request.extensions_mut().insert(actor.clone());
        request.extensions_mut().insert(used.clone());
        let (headers, extensions) = (request.headers(), request.extensions());
        let peer = extensions.get::<ConnectInfo<SocketAddr>>();
        PendingRecord {
            started_at: Instant::now(),
            method: request.method().clone(),
            uri: request.uri().clone(),
            request_id: extensions.get::<RequestId>().cloned(),
            client: peer
                .map(|ConnectInfo(peer)| client_address(&auditing.0.proxies, *peer, headers)),
            user_agent: headers.get(USER_AGENT).cloned(),
            host: headers.get(HOST).cloned(),
            has_authorization: headers.contains_key(AUTHORIZATION),
            has_flow_token: bearer_flow_token(headers).is_some(),
            matched: extensions.get::<MatchedPath>().cloned(),
            actor,
            used,
            is_finished: false,
            auditing,
        }
    }

    /// Records the request, if it changes something, reads what is worth protecting, or has failed
    /// to authenticate.
    pub(super) fn finish(mut self, response: &Response) {
        self.is_finished = true;
        // A caller beyond its limit must not fill the log.
        if response.extensions().get::<Throttled>().is_some() {
            return;
        }
        let created = response.extensions().get::<CreatedId>();
        self.record(response.status().as_u16(), created);
    }

    fn record(&self, status: u16, created: Option<&CreatedId>) {
        let path = self.uri.path();
        let found = self.auditing.0.operations.find(&self.method, path);
        let actor = self.actor.0.get();
        let is_recorded = match (actor, found) {
            (None, _) => matches!(status, 401 | 403),
            (Some(_), Some(operation)) => operation.is_recorded,
            (Some(_), None) => is_mutating(&self.method),
        };
        if !is_recorded {
            return;
        }
        let matched = || {
            self.matched
                .as_ref()
                .map_or(UNKNOWN_ROUTE, MatchedPath::as_str)
        };
        let resource = found.map(|operation| {
            let resource = operation.resource_of(path);
            match (created, self.used.0.get()) {
                (Some(CreatedId(id)), _) => format!("{}/{id}", path.trim_matches('/')),
                (None, Some(used)) => format!("{}/{used}", resource.trim_matches('/')),
                (None, None) => resource.to_owned(),
            }
        });
        let host = text_of(self.host.as_ref()).parse::<Authority>().ok();
        self.auditing.0.log.record(&EndedRequest {
            method: self.method.as_str(),
            path,
            route: found.map_or_else(matched, |operation| operation.route),
            action: found.map_or(UNKNOWN_ACTION, |operation| operation.id),
            resource: resource.as_deref(),
            status,
            duration: self.started_at.elapsed(),
            client: self.client,
            user_agent: text_of(self.user_agent.as_ref()),
            domain: host.as_ref().map_or("", Authority::host),
            auth_strategy: self.auth_strategy(),
            actor,
            request_id: self.request_id.as_ref().map_or("", RequestId::as_str),
        });
    }

    fn auth_strategy(&self) -> AuthStrategy {
        match self.has_authorization {
            true if HostRoute::of(&self.method, self.uri.path()).is_some() => AuthStrategy::Host,
            true if self.has_flow_token => AuthStrategy::FlowToken,
            true => AuthStrategy::ApiKey,
            false if token_in(&self.uri).is_none() => AuthStrategy::None,
            false if is_flow_path(self.uri.path()) => AuthStrategy::FlowToken,
            false => AuthStrategy::SessionToken,
        }
    }
}

impl Drop for PendingRecord {
    fn drop(&mut self) {
        if !self.is_finished {
            let status = match std::thread::panicking() {
                true => StatusCode::INTERNAL_SERVER_ERROR.as_u16(),
                false => CLIENT_CLOSED_REQUEST,
            };
            self.record(status, None);
        }
    }
}

/// Returns the address of the client of a request.
pub(super) fn client_address(
    proxies: &TrustedProxies,
    peer: SocketAddr,
    headers: &HeaderMap,
) -> IpAddr {
    let values = headers.get_all(FORWARDED_FOR).iter();
    let forwarded: Vec<&str> = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .collect();
    proxies.client_of(peer.ip(), forwarded.into_iter())
}

fn text_of(value: Option<&HeaderValue>) -> &str {
    value
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
}

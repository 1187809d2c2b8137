//! Access to the routes that hosts call: their registration and their heartbeats.
//!
//! A host has no API key. It registers with a join token, or proves its own key with a token that
//! is signed with it.

use axum::{
    extract::{FromRequestParts, Request},
    middleware::Next,
    response::Response,
};
use http::{Method, request::Parts};

use crate::{
    api::ids::HostId,
    control::{
        Control, fleet::registered::Registrant, routes::auditing::ActorCell,
        store::RegisteredHostRow,
    },
    http::{ApiError, ApiResult, bearer_token},
};

/// A route that hosts call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::control::routes) enum HostRoute {
    Registration,
    /// The id in the path, or `None` if it is not one.
    Heartbeat(Option<HostId>),
}

impl HostRoute {
    /// Returns the route of a request, if hosts call it.
    pub(in crate::control::routes) fn of(method: &Method, path: &str) -> Option<HostRoute> {
        if method != Method::POST {
            return None;
        }
        let rest = path.strip_prefix("/fleet/hosts")?;
        if rest.is_empty() {
            return Some(HostRoute::Registration);
        }
        let id = rest.strip_prefix('/')?.strip_suffix("/heartbeat")?;
        match id.contains('/') {
            true => None,
            false => Some(HostRoute::Heartbeat(id.parse().ok())),
        }
    }
}

/// The host of a heartbeat, as it was when the request was authenticated.
#[derive(Debug, Clone)]
pub(in crate::control::routes) struct AuthenticatedHost(
    pub(in crate::control::routes) Box<RegisteredHostRow>,
);

/// The sender of a registration.
#[derive(Debug, Clone)]
pub(in crate::control::routes) struct AuthenticatedRegistrant(
    pub(in crate::control::routes) Registrant,
);

/// Runs a request of a host if it has a valid credential.
pub(super) async fn authenticate_host(
    control: &Control,
    route: HostRoute,
    mut request: Request,
    next: Next,
) -> ApiResult<Response> {
    let presented = bearer_token(request.headers())?;
    let hosts = &control.registered_hosts;
    let actor = match route {
        HostRoute::Registration => {
            let registrant = hosts.authenticate_registration(presented).await?;
            let actor = match &registrant {
                Registrant::JoinToken(token) => token.id.to_string(),
                Registrant::Launch(launch) => launch.to_string(),
                Registrant::Host(host) => host.id.to_string(),
            };
            request
                .extensions_mut()
                .insert(AuthenticatedRegistrant(registrant));
            actor
        }
        HostRoute::Heartbeat(id) => {
            let id = id.ok_or_else(|| ApiError::not_found("no host with that id"))?;
            let host = hosts.authenticate_heartbeat(&id, presented).await?;
            let host = AuthenticatedHost(Box::new(host));
            request.extensions_mut().insert(host);
            id.to_string()
        }
    };
    if let Some(cell) = request.extensions().get::<ActorCell>() {
        cell.set_host(actor);
    }
    Ok(next.run(request).await)
}

impl<S: Sync> FromRequestParts<S> for AuthenticatedHost {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, ApiError> {
        let host = parts.extensions.get::<AuthenticatedHost>().cloned();
        host.ok_or_else(|| ApiError::internal("the route is not behind `authenticate_host`"))
    }
}

impl<S: Sync> FromRequestParts<S> for AuthenticatedRegistrant {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, ApiError> {
        let registrant = parts.extensions.get::<AuthenticatedRegistrant>().cloned();
        registrant.ok_or_else(|| ApiError::internal("the route is not behind `authenticate_host`"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_registrations_and_heartbeats_are_routes_of_hosts() {
        let id = HostId::generate();
        let heartbeat = format!("/fleet/hosts/{id}/heartbeat");
        for (method, path, expected) in [
            (Method::POST, "/fleet/hosts", Some(HostRoute::Registration)),
            (
                Method::POST,
                &heartbeat,
                Some(HostRoute::Heartbeat(Some(id))),
            ),
            (
                Method::POST,
                "/fleet/hosts/x/heartbeat",
                Some(HostRoute::Heartbeat(None)),
            ),
            (Method::GET, "/fleet/hosts", None),
            (Method::GET, &heartbeat, None),
            (Method::POST, "/fleet/hosts/", None),
            (Method::POST, "/fleet/hosts/heartbeat", None),
            (Method::POST, "/fleet/hosts/x/y/heartbeat", None),
            (Method::POST, "/fleet/hosts/x/drain", None),
            (Method::POST, "/fleet/hostsheartbeat", None),
        ] {
            assert_eq!(HostRoute::of(&method, path), expected, "{method} {path}");
        }
    }
}

//! Authenticates requests with an API key or a token, and selects the project.
//!
//! An API key in the `Authorization` header is valid for all routes. A session token in the `jwt`
//! query parameter of a browser's own URLs is valid only for a part of that browser, and as long as
//! the API key that it was issued for. The token of a login flow is valid for a few routes of its
//! connection ([`super::flow_token`]). The metrics and the routes that hosts call have rules of
//! their own ([`super::metrics`], [`super::host`]).

use axum::{
    extract::{FromRequestParts, Request},
    middleware::Next,
    response::{IntoResponse, Response},
};
use http::{
    HeaderMap, HeaderValue, Method, Uri,
    header::{AUTHORIZATION, REFERRER_POLICY},
    request::Parts,
};

use super::{
    flow_token::{bearer_flow_token, is_flow_path, verify_flow_token},
    host::{HostRoute, authenticate_host},
    metrics::{METRICS_PATH, authorize_metrics},
    project::{RequestedProject, check_bound, select_project},
};
use crate::{
    api::ids::{AuthConnectionId, BrowserId, FlowId, KeyId, ProjectId},
    control::{
        Control,
        browsers::BrowserError,
        keys::{Identity, KeyError},
        projects::ProjectScope,
        routes::{auditing::ActorCell, limiting::run_within_limits},
        session_token::{Grant, Issuer, Scope},
    },
    http::{ApiError, ApiResult, LinkId, bearer_token},
};

/// The query parameter that contains a token.
pub const SESSION_PARAMETER: &str = "jwt";

/// The authenticated sender of a request.
#[derive(Debug, Clone)]
pub struct Principal {
    /// The project that the request is about.
    pub project: ProjectId,
    /// The API key, or the one that the token was issued for.
    pub key: KeyId,
    /// The same project, unless it is the default of a request that selects none.
    pub selected_project: Option<ProjectId>,
    pub credential: RequestCredential,
    /// The credential with which tokens in the response end.
    pub issuer: Issuer,
}

/// The credential with which a request was authenticated.
#[derive(Debug, Clone)]
pub enum RequestCredential {
    ApiKey(Identity),
    /// The token of one of a browser's own URLs.
    SessionToken {
        browser: BrowserId,
        scope: Scope,
    },
    /// The token of a login flow.
    FlowToken {
        connection: AuthConnectionId,
        flow: FlowId,
    },
}

impl Principal {
    /// Returns the projects that the API key gives access to. Rejects tokens.
    pub fn project_scope(&self) -> ApiResult<ProjectScope<'_>> {
        Ok(ProjectScope(self.api_key()?.project.as_ref()))
    }

    /// Returns the API key. Rejects tokens, and keys that are bound to a project:
    /// `subject`, with its verb, is about all projects.
    pub fn organization_key(&self, subject: &str) -> ApiResult<&Identity> {
        let identity = self.api_key()?;
        match identity.project {
            None => Ok(identity),
            Some(_) => Err(ApiError::forbidden(format!(
                "{subject} all projects, and the API key belongs to one of them"
            ))),
        }
    }

    /// Returns the error for a request to a browser that has ended since the request was
    /// authenticated.
    pub fn browser_ended(&self) -> ApiError {
        match &self.credential {
            RequestCredential::ApiKey(_) | RequestCredential::FlowToken { .. } => {
                BrowserError::NotFound.into()
            }
            RequestCredential::SessionToken { .. } => session_ended(),
        }
    }

    /// Returns the login flow that the credential is a token of.
    pub fn flow(&self) -> Option<&FlowId> {
        match &self.credential {
            RequestCredential::FlowToken { flow, .. } => Some(flow),
            RequestCredential::ApiKey(_) | RequestCredential::SessionToken { .. } => None,
        }
    }

    /// Returns the API key. Rejects tokens.
    pub fn api_key(&self) -> ApiResult<&Identity> {
        match &self.credential {
            RequestCredential::ApiKey(identity) => Ok(identity),
            RequestCredential::SessionToken { .. } | RequestCredential::FlowToken { .. } => {
                Err(ApiError::unauthorized("this route requires an API key"))
            }
        }
    }
}

/// Runs a request if it has a valid credential for its route, within the limits of its key.
pub(in crate::control::routes) async fn authenticate(
    control: &Control,
    mut request: Request,
    next: Next,
) -> ApiResult<Response> {
    if request.uri().path() == METRICS_PATH {
        authorize_metrics(control, request.headers()).await?;
        return Ok(next.run(request).await);
    }
    if let Some(route) = HostRoute::of(request.method(), request.uri().path()) {
        return authenticate_host(control, route, request, next).await;
    }
    let token = PresentedToken::of(&request);
    let authenticated = match &token {
        Some(token) => authenticate_token(control, token, &mut request).await,
        None => verify_api_key(control, request.headers()).await,
    };
    let mut response = match authenticated {
        Ok(principal) => {
            if let Some(actor) = request.extensions().get::<ActorCell>() {
                actor.set(&principal);
            }
            let key = principal.key.clone();
            request.extensions_mut().insert(principal);
            run_within_limits(&control.limits, &key, request, next).await
        }
        Err(error) => error.into_response(),
    };
    if token.is_some_and(|token| token.is_in_url) {
        // If the URL is that of a page, requests from the page must not contain the token.
        let policy = HeaderValue::from_static("no-referrer");
        response.headers_mut().insert(REFERRER_POLICY, policy);
    }
    Ok(response)
}

/// A token that a request has presented, valid or not.
struct PresentedToken {
    text: String,
    kind: TokenKind,
    is_in_url: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TokenKind {
    Session,
    Flow,
}

impl PresentedToken {
    /// Returns the token of a request. An `Authorization` header takes precedence over the URL.
    fn of(request: &Request) -> Option<PresentedToken> {
        let (url, headers) = (request.uri(), request.headers());
        if let Some(token) = bearer_flow_token(headers) {
            return Some(PresentedToken {
                text: token.to_owned(),
                kind: TokenKind::Flow,
                is_in_url: false,
            });
        }
        if headers.contains_key(AUTHORIZATION) {
            return None;
        }
        let kind = match is_flow_path(url.path()) {
            true => TokenKind::Flow,
            false => TokenKind::Session,
        };
        Some(PresentedToken {
            text: token_in(url)?,
            kind,
            is_in_url: true,
        })
    }
}

/// Verifies the token of a request, and notes in the request which link it is.
async fn authenticate_token(
    control: &Control,
    token: &PresentedToken,
    request: &mut Request,
) -> ApiResult<Principal> {
    let (method, path) = (request.method(), request.uri().path());
    let (principal, link) = match token.kind {
        TokenKind::Session => verify_session_token(control, &token.text, method, path).await?,
        TokenKind::Flow => verify_flow_token(control, &token.text, method, path).await?,
    };
    request.extensions_mut().insert(link);
    Ok(principal)
}

/// Returns the token in a URL, valid or not.
pub fn token_in(url: &Uri) -> Option<String> {
    let query = url.query()?;
    url::form_urlencoded::parse(query.as_bytes())
        .find(|(name, _)| name == SESSION_PARAMETER)
        .map(|(_, token)| token.into_owned())
}

/// Verifies a session token, and that its browser or replay exists: only then the request counts as
/// authenticated. Returns the principal and the link that the token is part of.
async fn verify_session_token(
    control: &Control,
    token: &str,
    method: &Method,
    path: &str,
) -> ApiResult<(Principal, LinkId)> {
    let rejected = || ApiError::unauthorized("the session token is not valid for this route");
    let grant = control.tokens.verify(token).map_err(|_| rejected())?;
    let (id, route) = path
        .strip_prefix("/browsers/")
        .and_then(|rest| rest.split_once('/'))
        .ok_or_else(rejected)?;
    if id != grant.browser.as_str() || !scope_allows(&grant.scope, method, route) {
        return Err(rejected());
    }
    let identity = identify_issuer(control, &grant.key).await?;
    let identity = identity.ok_or_else(rejected)?;
    check_bound(control, &grant.project).await?;
    check_exists(control, &grant).await?;
    let link = link_id(&grant);
    let longest = Some(grant.expires_at);
    let principal = Principal {
        selected_project: Some(grant.project.clone()),
        project: grant.project,
        credential: RequestCredential::SessionToken {
            browser: grant.browser,
            scope: grant.scope,
        },
        key: identity.key,
        issuer: Issuer {
            key: identity.public_part,
            expires_at: identity.expires_at.min(longest).or(longest),
        },
    };
    Ok((principal, link))
}

/// Returns the identity of the key that a token was issued for, unless the key has ended.
pub(super) async fn identify_issuer(control: &Control, key: &str) -> ApiResult<Option<Identity>> {
    match control.keys.identify(key).await {
        Ok(identity) => Ok(Some(identity)),
        Err(KeyError::Store(cause)) => Err(cause.into()),
        Err(error @ KeyError::Task(_)) => Err(ApiError::internal(error)),
        Err(_) => Ok(None),
    }
}

/// Rejects a token whose browser has ended, or whose replay has been deleted.
async fn check_exists(control: &Control, grant: &Grant) -> ApiResult<()> {
    let (project, browser) = (&grant.project, &grant.browser);
    match &grant.scope {
        Scope::Replay(id) => {
            control.replays.find(project, browser, id).await?;
        }
        Scope::Session | Scope::Live | Scope::LiveView => {
            if !control.browsers.is_active(project, browser).await? {
                return Err(session_ended());
            }
        }
    }
    Ok(())
}

/// Returns the error for the token of a browser that has ended.
fn session_ended() -> ApiError {
    ApiError::gone("the browser has ended").code("session_ended")
}

/// Returns the id that all links to one part of a browser share. Anyone who has a link for the
/// whole session can read further ones.
fn link_id(grant: &Grant) -> LinkId {
    let browser = &grant.browser;
    LinkId::new(&match &grant.scope {
        Scope::Session => format!("{browser}/session"),
        Scope::Live => format!("{browser}/live"),
        Scope::LiveView => format!("{browser}/live/view"),
        Scope::Replay(id) => format!("{browser}/replays/{id}"),
    })
}

/// Returns whether a scope allows a request to `route` of its browser, compared byte for byte.
///
/// Ambiguous paths that could lead out of the scope are rejected when they are forwarded.
fn scope_allows(scope: &Scope, method: &Method, route: &str) -> bool {
    let is_below = |prefix: &str| match route.strip_prefix(prefix) {
        Some(rest) => rest.is_empty() || rest.starts_with('/'),
        None => false,
    };
    let is_read = matches!(*method, Method::GET | Method::HEAD);
    match scope {
        Scope::Session => !route.is_empty(),
        Scope::Live => is_read && is_below("live"),
        Scope::LiveView => is_read && is_below("live/view"),
        Scope::Replay(id) => {
            let routes = [format!("replays/{id}"), format!("replays/{id}/view")];
            is_read && routes.iter().any(|allowed| allowed == route)
        }
    }
}

async fn verify_api_key(control: &Control, headers: &HeaderMap) -> ApiResult<Principal> {
    let identity = identify_api_key(control, bearer_token(headers)?).await?;
    let requested = RequestedProject::of(headers)?;
    let selected_project = select_project(control, identity.project.as_ref(), requested).await?;
    let project = match &selected_project {
        Some(selected) => selected.clone(),
        None => control.projects.default_id().await?,
    };
    Ok(Principal {
        project,
        selected_project,
        issuer: Issuer::from(&identity),
        key: identity.key.clone(),
        credential: RequestCredential::ApiKey(identity),
    })
}

/// Verifies an API key. Every text that is not a valid key is a 401.
pub(super) async fn identify_api_key(control: &Control, presented: &str) -> ApiResult<Identity> {
    control
        .keys
        .authenticate(presented)
        .await
        .map_err(|error| match error {
            KeyError::Expired => ApiError::unauthorized("the API key has expired"),
            KeyError::Store(cause) => cause.into(),
            KeyError::Task(_) => ApiError::internal(error),
            KeyError::NotFound
            | KeyError::UnknownProject
            | KeyError::ForeignProject
            | KeyError::CallerInvalid
            | KeyError::DeletionNotStored
            | KeyError::RotationExpired
            | KeyError::OutlivesCaller(_) => ApiError::unauthorized("the API key is not valid"),
        })
}

impl From<&Identity> for Issuer {
    fn from(identity: &Identity) -> Self {
        Issuer {
            key: identity.public_part.clone(),
            expires_at: identity.expires_at,
        }
    }
}

impl<S: Sync> FromRequestParts<S> for Principal {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, ApiError> {
        let principal = parts.extensions.get::<Principal>().cloned();
        principal.ok_or_else(|| ApiError::internal("the route is not behind `authenticate`"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ids::ReplayId;

    #[test]
    fn scope_allows_only_its_part_of_the_browser() {
        let (replay, other) = (ReplayId::generate(), ReplayId::generate());
        let scopes = [
            Scope::Session,
            Scope::Live,
            Scope::LiveView,
            Scope::Replay(replay.clone()),
        ];
        // Each route, and which of the scopes allow it.
        let reads = [
            ("", [false, false, false, false]),
            ("cdp", [true, false, false, false]),
            ("json/version", [true, false, false, false]),
            ("live", [true, true, false, false]),
            ("live/", [true, true, false, false]),
            ("live/socket", [true, true, false, false]),
            ("live/view", [true, true, true, false]),
            ("live/view/socket", [true, true, true, false]),
            ("live/viewer", [true, true, false, false]),
            ("live/view%2Fsocket", [true, true, false, false]),
            ("live/%76iew", [true, true, false, false]),
            ("lively", [true, false, false, false]),
            ("liv%65", [true, false, false, false]),
            ("replays", [true, false, false, false]),
            (&format!("replays/{replay}"), [true, false, false, true]),
            (
                &format!("replays/{replay}/view"),
                [true, false, false, true],
            ),
            (
                &format!("replays/{replay}/stop"),
                [true, false, false, false],
            ),
            (&format!("replays/{replay}/"), [true, false, false, false]),
            (&format!("replays/{other}"), [true, false, false, false]),
            (
                &format!("replays/{other}/view"),
                [true, false, false, false],
            ),
        ];
        for (route, expected) in reads {
            let found = scopes
                .each_ref()
                .map(|scope| scope_allows(scope, &Method::GET, route));
            assert_eq!(found, expected, "{route}");
        }
        for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            for route in ["live", "live/view", &format!("replays/{replay}")] {
                let found = scopes
                    .each_ref()
                    .map(|scope| scope_allows(scope, &method, route));
                assert_eq!(found, [true, false, false, false], "{method} {route}");
            }
        }
    }
}

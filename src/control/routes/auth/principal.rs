//! Who is asking, and for which project.

use axum::{
    extract::{FromRequestParts, Request, State},
    middleware::Next,
    response::Response,
};
use http::{HeaderMap, HeaderValue, Method, Uri, header::REFERRER_POLICY, request::Parts};

use crate::{
    api::ids::ProjectId,
    control::{
        Control,
        keys::{Identity, KeyError},
        session_token::Scope,
    },
    http::{ApiError, ApiResult, bearer},
};

/// The header that selects a project, and the name that some clients know it by.
const PROJECT_HEADERS: [&str; 2] = ["x-project-id", "x-kernel-project-id"];
/// The query parameter that carries a session token.
const SESSION_PARAMETER: &str = "jwt";

/// Who is asking, found out before the handler is called.
#[derive(Debug, Clone)]
pub struct Principal {
    /// The project the request is about.
    pub project: ProjectId,
    pub credential: Credential,
}

/// What opened the request.
#[derive(Debug, Clone)]
pub enum Credential {
    ApiKey(Identity),
    /// A token of one of its browser's own URLs. It opens that part of the browser and nothing else.
    SessionToken(Scope),
}

impl Principal {
    /// The key that is asking; session tokens open no route that wants to know.
    pub fn api_key(&self) -> ApiResult<&Identity> {
        match &self.credential {
            Credential::ApiKey(identity) => Ok(identity),
            Credential::SessionToken(_) => {
                Err(ApiError::unauthorized("this route wants an API key"))
            }
        }
    }
}

/// Middleware: nothing passes without a key, or a session token on the routes it opens.
pub async fn authenticate(
    State(control): State<Control>,
    mut request: Request,
    next: Next,
) -> ApiResult<Response> {
    let token = session_token(&request);
    let principal = match &token {
        Some(token) => by_session_token(&control, token, request.method(), request.uri().path())?,
        None => by_key(&control, request.headers()).await?,
    };
    request.extensions_mut().insert(principal);
    let mut response = next.run(request).await;
    if token.is_some() {
        // Where the address is a page's, what that loads need not learn the token.
        let policy = HeaderValue::from_static("no-referrer");
        response.headers_mut().insert(REFERRER_POLICY, policy);
    }
    Ok(response)
}

/// A header wins over the query: whoever sends both means the header.
fn session_token(request: &Request) -> Option<String> {
    if request.headers().contains_key(http::header::AUTHORIZATION) {
        return None;
    }
    token_of(request.uri())
}

/// The session token in an address, whether or not it is one.
pub fn token_of(address: &Uri) -> Option<String> {
    let query = address.query()?;
    url::form_urlencoded::parse(query.as_bytes())
        .find(|(name, _)| name == SESSION_PARAMETER)
        .map(|(_, token)| token.into_owned())
}

fn by_session_token(
    control: &Control,
    token: &str,
    method: &Method,
    path: &str,
) -> ApiResult<Principal> {
    let refused = || ApiError::unauthorized("the session token does not open this");
    let grant = control.tokens.verify(token).map_err(|_| refused())?;
    let route = path
        .strip_prefix("/browsers/")
        .and_then(|rest| rest.split_once('/'));
    match route {
        Some((id, rest))
            if id == grant.browser.as_str() && scope_allows(&grant.scope, method, rest) =>
        {
            Ok(Principal {
                project: grant.project,
                credential: Credential::SessionToken(grant.scope),
            })
        }
        _ => Err(refused()),
    }
}

/// Whether a token of this scope opens `route` of its browser, letter for letter. What could be read as a way out of it
/// is refused where it is passed on.
fn scope_allows(scope: &Scope, method: &Method, route: &str) -> bool {
    let below = |place: &str| match route.strip_prefix(place) {
        Some(rest) => rest.is_empty() || rest.starts_with('/'),
        None => false,
    };
    let reads = matches!(*method, Method::GET | Method::HEAD);
    match scope {
        Scope::Session => !route.is_empty(),
        Scope::Live => reads && below("live"),
        Scope::LiveView => reads && below("live/view"),
        Scope::Replay(id) => {
            reads && [format!("replays/{id}"), format!("replays/{id}/view")].contains(&route.into())
        }
    }
}

async fn by_key(control: &Control, headers: &HeaderMap) -> ApiResult<Principal> {
    let identity = match control.keys.authenticate(bearer(headers)?).await {
        Ok(identity) => identity,
        Err(KeyError::Expired) => return Err(ApiError::unauthorized("the key has expired")),
        Err(KeyError::NotFound | KeyError::UnknownProject) => {
            return Err(ApiError::unauthorized("the key is not valid"));
        }
        Err(error @ (KeyError::Store(_) | KeyError::Task(_))) => {
            return Err(ApiError::internal(error));
        }
    };
    let asked = asked_project(headers)?;
    let project = match (&identity.project, asked) {
        (Some(bound), Some(asked)) if *bound != asked => {
            return Err(ApiError::forbidden("the key belongs to another project"));
        }
        (Some(bound), _) => bound.clone(),
        (None, None) => control.default_project.clone(),
        (None, Some(asked)) if asked == control.default_project => asked,
        (None, Some(asked)) => {
            let found = control.store.find_project(&asked).await;
            let found = found.map_err(ApiError::internal)?;
            found
                .ok_or_else(|| ApiError::not_found("there is no such project"))?
                .id
        }
    };
    Ok(Principal {
        project,
        credential: Credential::ApiKey(identity),
    })
}

fn asked_project(headers: &HeaderMap) -> ApiResult<Option<ProjectId>> {
    for name in PROJECT_HEADERS {
        if let Some(value) = headers.get(name) {
            let id = value.to_str().ok().and_then(|text| text.parse().ok());
            let id = id.ok_or_else(|| ApiError::bad_field(name, "must be a project's id"))?;
            return Ok(Some(id));
        }
    }
    Ok(None)
}

impl<S: Sync> FromRequestParts<S> for Principal {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, ApiError> {
        let principal = parts.extensions.get::<Principal>().cloned();
        principal
            .ok_or_else(|| ApiError::internal("a route that asks for its principal is not guarded"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ids::ReplayId;

    #[test]
    fn a_scope_opens_its_part_and_no_other() {
        let (replay, other) = (ReplayId::generate(), ReplayId::generate());
        let scopes = [
            Scope::Session,
            Scope::Live,
            Scope::LiveView,
            Scope::Replay(replay.clone()),
        ];
        // The route, and which of the scopes open it.
        let reading = [
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
        for (route, expected) in reading {
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

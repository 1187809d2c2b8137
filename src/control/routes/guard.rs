//! Who is asking, and for which project.

use axum::{
    extract::{FromRequestParts, Request, State},
    middleware::Next,
    response::Response,
};
use http::{HeaderMap, request::Parts};

use crate::{
    api::ids::{BrowserId, ProjectId},
    control::{
        Control,
        keys::{Identity, KeyError},
    },
    http::{ApiError, ApiResult, bearer},
};

/// The header that selects a project, and the name that some clients know it by.
const PROJECT_HEADERS: [&str; 2] = ["x-project-id", "x-kernel-project-id"];
/// The query parameter that carries a session token.
const SESSION_PARAMETER: &str = "jwt";

/// Who is asking, found out before the handler is called.
#[derive(Debug, Clone)]
pub struct Caller {
    /// The project the request is about.
    pub project: ProjectId,
    pub access: Access,
}

/// What opened the request.
#[derive(Debug, Clone)]
pub enum Access {
    Key(Identity),
    /// The token of this browser's own URLs. It opens its session routes and nothing else.
    Session(BrowserId),
}

impl Caller {
    /// The key that is asking; session tokens open no route that wants to know.
    pub fn key(&self) -> ApiResult<&Identity> {
        match &self.access {
            Access::Key(identity) => Ok(identity),
            Access::Session(_) => Err(ApiError::unauthorized("this route wants an API key")),
        }
    }
}

/// Middleware: nothing passes without a key, or a session token on the routes it opens.
pub async fn guard(
    State(control): State<Control>,
    mut request: Request,
    next: Next,
) -> ApiResult<Response> {
    let caller = match session_token(&request) {
        Some(token) => by_session_token(&control, &token, request.uri().path())?,
        None => by_key(&control, request.headers()).await?,
    };
    request.extensions_mut().insert(caller);
    Ok(next.run(request).await)
}

/// A header wins over the query: whoever sends both means the header.
fn session_token(request: &Request) -> Option<String> {
    if request.headers().contains_key(http::header::AUTHORIZATION) {
        return None;
    }
    let query = request.uri().query()?;
    url::form_urlencoded::parse(query.as_bytes())
        .find(|(name, _)| name == SESSION_PARAMETER)
        .map(|(_, token)| token.into_owned())
}

fn by_session_token(control: &Control, token: &str, path: &str) -> ApiResult<Caller> {
    let refused = || ApiError::unauthorized("the session token does not open this");
    let (browser, project) = control.tokens.verify(token).map_err(|_| refused())?;
    let route = path
        .strip_prefix("/browsers/")
        .and_then(|rest| rest.split_once('/'));
    match route {
        Some((id, rest)) if id == browser.as_str() && !rest.is_empty() => Ok(Caller {
            project,
            access: Access::Session(browser),
        }),
        _ => Err(refused()),
    }
}

async fn by_key(control: &Control, headers: &HeaderMap) -> ApiResult<Caller> {
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
    Ok(Caller {
        project,
        access: Access::Key(identity),
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

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, ApiError> {
        let caller = parts.extensions.get::<Caller>().cloned();
        caller.ok_or_else(|| ApiError::internal("a route that asks for its caller is not guarded"))
    }
}

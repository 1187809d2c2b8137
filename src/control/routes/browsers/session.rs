//! `/browsers/{id}/…`: the session routes, which are forwarded to the browser's agent.

use axum::{
    extract::{FromRequestParts, Request, State},
    response::Response,
};
use http::Method;
use utoipa::openapi::{
    OpenApi, Paths, RefOr, Required,
    path::{Parameter, ParameterBuilder, ParameterIn},
    schema::{ObjectBuilder, Type},
};

use crate::{
    control::{
        Control,
        browsers::{BrowserError, Browsers, Session},
        proxy::{PathError, Proxy, ProxyError, ProxyTarget, SessionPath},
        routes::authentication::Principal,
    },
    http::{ApiError, ApiResult, Path, declare_errors},
};

/// Statuses with which control responds where it cannot forward a request to the agent.
const FORWARDING_ERRORS: &[u16] = &[400, 404, 502, 503, 504];

/// Finds the session of a request and forwards requests to its agent.
#[derive(Clone, FromRequestParts)]
#[from_request(state(Control))]
pub(crate) struct SessionForwarder {
    #[from_request(via(State))]
    pub browsers: Browsers,
    #[from_request(via(State))]
    proxy: Proxy,
    pub principal: Principal,
}

impl SessionForwarder {
    /// Finds an active browser of the principal's project.
    pub(crate) async fn session(&self, id_or_name: &str) -> Result<Session, BrowserError> {
        let project = &self.principal.project;
        self.browsers.session(project, id_or_name).await
    }

    /// Forwards a request to `path` of the session's agent.
    pub(crate) async fn forward(
        &self,
        session: &Session,
        path: SessionPath<'_>,
        request: Request,
    ) -> ApiResult<Response> {
        match self.try_forward(session, path, request).await {
            Err(ProxyError::BrowserEnded) => Err(self.principal.browser_ended()),
            forwarded => Ok(forwarded?),
        }
    }

    /// Forwards a request like [`Self::forward`]. A browser that ends meanwhile is an error of its
    /// own.
    pub(crate) async fn try_forward(
        &self,
        session: &Session,
        path: SessionPath<'_>,
        request: Request,
    ) -> Result<Response, ProxyError> {
        let target = ProxyTarget {
            agent: session.agent.clone(),
            activity: session.activity.clone(),
            ended: session.ended.clone(),
        };
        self.proxy.forward(&target, path, request).await
    }
}

pub(crate) async fn forward(
    forwarder: SessionForwarder,
    Path((id, _)): Path<(String, String)>,
    mut request: Request,
) -> ApiResult<Response> {
    // These are never forwarded. No session route supports OPTIONS either, so the agent responds to
    // it with the methods that the route does support.
    if matches!(*request.method(), Method::CONNECT | Method::TRACE) {
        *request.method_mut() = Method::OPTIONS;
    }
    let path = request.uri().path().to_owned();
    let path = SessionPath::of_request(&path)?;
    let session = forwarder.session(&id).await?;
    forwarder.forward(&session, path, request).await
}

/// Returns the session routes of the agent's OpenAPI document under their paths in control,
/// without those that control serves itself.
pub(crate) fn document(mut agent: OpenApi, own: &Paths) -> OpenApi {
    for (path, mut item) in std::mem::take(&mut agent.paths.paths) {
        let path = format!("/browsers/{{id}}{path}");
        if !own.paths.contains_key(&path) && SessionPath::of_request(&path).is_ok() {
            declare_errors(&mut item, FORWARDING_ERRORS);
            let parameters = item.parameters.get_or_insert_default();
            parameters.push(RefOr::T(browser_parameter()));
            agent.paths.paths.insert(path, item);
        }
    }
    agent
}

fn browser_parameter() -> Parameter {
    ParameterBuilder::new()
        .name("id")
        .parameter_in(ParameterIn::Path)
        .required(Required::True)
        .description(Some("The id or name of the browser"))
        .schema(Some(ObjectBuilder::new().schema_type(Type::String)))
        .example(Some("brw_01kgc3v7e8r9t0w1x2y3z4a5b6".into()))
        .build()
}

impl From<PathError> for ApiError {
    fn from(error: PathError) -> Self {
        match error {
            PathError::Unknown => ApiError::not_found("no such route"),
            PathError::Ambiguous => ApiError::bad_request(
                "the path has an empty segment, a dot segment, or an encoded slash or control character",
            ),
        }
    }
}

impl From<ProxyError> for ApiError {
    fn from(error: ProxyError) -> Self {
        match error {
            ProxyError::Method => {
                ApiError::method_not_allowed("the route does not support this method")
            }
            ProxyError::Malformed(_) => ApiError::bad_request("malformed URL"),
            ProxyError::Body(_) => ApiError::bad_request("the request body is incomplete"),
            // The agent has received nothing of the request, so clients may retry it.
            ProxyError::Unreachable(cause) => {
                tracing::warn!(%cause, "agent unreachable");
                ApiError::bad_gateway("the browser is unreachable")
            }
            // The agent may have processed the request, so a retry could process it twice.
            ProxyError::Disconnected(cause) => {
                tracing::warn!(%cause, "agent disconnected");
                ApiError::bad_gateway("the browser disconnected before it responded").permanent()
            }
            ProxyError::Timeout => {
                ApiError::timeout("the browser did not respond in time").permanent()
            }
            ProxyError::BrowserEnded => BrowserError::NotFound.into(),
            ProxyError::ShuttingDown => BrowserError::ShuttingDown.into(),
        }
    }
}

//! `/browsers/{id}/…`: the session routes, which the browser's agent serves.

use axum::{
    extract::{Request, State},
    response::Response,
};
use utoipa::openapi::{
    OpenApi, Paths, RefOr, Required,
    path::{Parameter, ParameterBuilder, ParameterIn},
    schema::{ObjectBuilder, Type},
};

use crate::{
    control::{
        Control,
        browsers::Session,
        proxy::{Agent, PathError, ProxyError, SessionPath},
        routes::auth::Principal,
    },
    http::{ApiError, ApiResult, Path},
};

pub async fn pass(
    State(control): State<Control>,
    principal: Principal,
    Path((id, _)): Path<(String, String)>,
    request: Request,
) -> ApiResult<Response> {
    let path = request.uri().path().to_owned();
    let path = SessionPath::of_request(&path)?;
    let session = control.browsers.session(&principal.project, &id).await?;
    Ok(control.proxy.pass(&agent(&session), path, request).await?)
}

pub fn agent(session: &Session) -> Agent {
    Agent {
        addr: session.agent_addr,
        token: session.agent_token.clone(),
        activity: session.activity.clone(),
        ended: session.ended.clone(),
    }
}

/// What the agent's document says of the session routes, as clients of control reach them; but for those control answers itself.
pub fn document(mut agent: OpenApi, own: &Paths) -> OpenApi {
    for (path, mut item) in std::mem::take(&mut agent.paths.paths) {
        if own.paths.contains_key(&format!("/browsers/{{id}}{path}")) {
            continue;
        }
        // The agent's own `{id}` is another one.
        let path = format!("/browsers/{{browser}}{path}");
        if SessionPath::of_request(&path).is_ok() {
            let parameters = item.parameters.get_or_insert_default();
            parameters.push(RefOr::T(browser_parameter()));
            agent.paths.paths.insert(path, item);
        }
    }
    agent
}

fn browser_parameter() -> Parameter {
    ParameterBuilder::new()
        .name("browser")
        .parameter_in(ParameterIn::Path)
        .required(Required::True)
        .description(Some("The id or name of the browser"))
        .schema(Some(ObjectBuilder::new().schema_type(Type::String)))
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
                ApiError::method_not_allowed("this route does not take that method")
            }
            ProxyError::Malformed(_) => ApiError::bad_request("the address is malformed"),
            ProxyError::Body(_) => ApiError::bad_request("the request's body did not come whole"),
            // Nothing of the request has base_url it, so clients may send it again.
            ProxyError::Unreachable(cause) => {
                tracing::warn!(%cause, "an agent cannot be base_url");
                ApiError::bad_gateway("the browser cannot be base_url")
            }
            // The request may have been carried out: sending it again could do so twice.
            ProxyError::Broken(cause) => {
                tracing::warn!(%cause, "an agent broke off");
                ApiError::bad_gateway("the browser broke off before it answered").permanent()
            }
            // So may this one.
            ProxyError::Timeout => {
                ApiError::timeout("the browser did not answer in time").permanent()
            }
        }
    }
}

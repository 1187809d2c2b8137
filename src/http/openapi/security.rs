//! The credentials that routes accept.

use http::Method;
use utoipa::openapi::{
    RefOr, SecurityRequirement,
    security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme},
};

use super::ApiInfo;

const BEARER: &str = "bearer";
const SESSION_TOKEN: &str = "session_token";

/// Routes that accept a token in the query instead of the bearer token.
#[derive(Debug, Clone, Copy)]
pub struct SessionRoutes {
    /// The start of their paths.
    pub prefix: &'static str,
    /// The methods and paths of further ones.
    pub operations: &'static [(Method, &'static str)],
    /// The query parameter with the token.
    pub parameter: &'static str,
    /// Describes the token.
    pub description: &'static str,
}

/// Returns the credentials that a guarded route accepts, of which a request needs one.
pub(super) fn requirements(
    info: &ApiInfo,
    method: &Method,
    path: &str,
) -> Vec<SecurityRequirement> {
    let requirement = |name| SecurityRequirement::new(name, Vec::<String>::new());
    let accepts_token = info.session_routes.is_some_and(|routes| {
        let mut operations = routes.operations.iter();
        path.starts_with(routes.prefix)
            || operations.any(|operation| (&operation.0, operation.1) == (method, path))
    });
    let mut accepted = vec![requirement(BEARER)];
    if accepts_token {
        accepted.push(requirement(SESSION_TOKEN));
    }
    accepted
}

/// Returns the security schemes of a server with their names.
pub(super) fn schemes(info: &ApiInfo) -> Vec<(String, RefOr<SecurityScheme>)> {
    let bearer = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some(info.bearer))
        .build();
    let mut schemes = vec![(BEARER.to_owned(), RefOr::T(SecurityScheme::Http(bearer)))];
    if let Some(routes) = info.session_routes {
        let token = ApiKeyValue::with_description(routes.parameter, routes.description);
        let token = SecurityScheme::ApiKey(ApiKey::Query(token));
        schemes.push((SESSION_TOKEN.to_owned(), RefOr::T(token)));
    }
    schemes
}

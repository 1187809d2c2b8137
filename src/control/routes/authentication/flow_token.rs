//! Authenticates requests with the token of a login flow.
//!
//! The token is valid for four operations of its own connection, as long as the API key that the
//! flow was started with.

use http::{HeaderMap, Method};

use super::{
    principal::{Principal, RequestCredential, identify_issuer},
    project::check_bound,
};
use crate::{
    api::ids::AuthConnectionId,
    control::{
        Control,
        auth_connections::flow_tokens::{FlowGrant, FlowTokenError},
        session_token::Issuer,
    },
    http::{ApiError, ApiResult, LinkId, bearer_token},
};

const CONNECTIONS: &str = "/auth/connections/";
/// The path of a connection in the OpenAPI document.
const CONNECTION: &str = "/auth/connections/{id}";
/// The methods and paths of the operations that a token is valid for.
pub const FLOW_OPERATIONS: [(Method, &str); 4] = [
    (Method::GET, "/auth/connections/{id}"),
    (Method::GET, "/auth/connections/{id}/events"),
    (Method::POST, "/auth/connections/{id}/submit"),
    (Method::POST, "/auth/connections/{id}/cancel"),
];
/// The start of every token: `{"`, the first bytes of its header.
const TOKEN_START: &str = "eyJ";

/// Returns the token of a flow in the `Authorization` header. API keys have another form.
pub(in crate::control::routes) fn bearer_flow_token(headers: &HeaderMap) -> Option<&str> {
    let token = bearer_token(headers).ok()?;
    let has_form = token.starts_with(TOKEN_START) && token.matches('.').count() == 2;
    has_form.then_some(token)
}

/// Returns whether a token in the URL of this path is that of a flow.
pub(in crate::control::routes) fn is_flow_path(path: &str) -> bool {
    path.starts_with(CONNECTIONS)
}

/// Verifies the token of a flow. Returns the principal, and the link that all tokens for the
/// connection are part of.
pub(super) async fn verify_flow_token(
    control: &Control,
    token: &str,
    method: &Method,
    path: &str,
) -> ApiResult<(Principal, LinkId)> {
    let rejected = || ApiError::unauthorized("the token is not valid for this route");
    // Before the signature, whose key may have to be read.
    if connection_of(method, path).is_none() {
        return Err(rejected());
    }
    let grant = match control.flow_tokens.verify(token).await {
        Ok(grant) => grant,
        Err(FlowTokenError::Invalid) => return Err(rejected()),
        Err(FlowTokenError::Store(cause)) => return Err(cause.into()),
    };
    if !allows(&grant.connection, method, path) {
        return Err(rejected());
    }
    let FlowGrant {
        connection,
        flow,
        project,
        issuer: token,
    } = grant;
    let identity = identify_issuer(control, &token.key).await?;
    let identity = identity.ok_or_else(rejected)?;
    check_bound(control, &project).await?;
    let link = LinkId::new(&format!("{connection}/flow"));
    let longest = token.expires_at;
    let principal = Principal {
        selected_project: Some(project.clone()),
        project,
        credential: RequestCredential::FlowToken { connection, flow },
        key: identity.key,
        issuer: Issuer {
            key: identity.public_part,
            expires_at: identity.expires_at.min(longest).or(longest),
        },
    };
    Ok((principal, link))
}

/// Returns the connection that a request is for, if a token may be valid for the operation.
fn connection_of<'p>(method: &Method, path: &'p str) -> Option<&'p str> {
    let rest = path.strip_prefix(CONNECTIONS)?;
    let (connection, operation) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let method = match *method {
        // Handlers of GET serve HEAD.
        Method::HEAD => &Method::GET,
        _ => method,
    };
    let mut allowed = FLOW_OPERATIONS.iter();
    allowed
        .any(|(allowed, path)| {
            allowed == method && path.strip_prefix(CONNECTION) == Some(operation)
        })
        .then_some(connection)
}

/// Returns whether a token for a connection is valid for a request, whose path is compared byte for
/// byte.
fn allows(connection: &AuthConnectionId, method: &Method, path: &str) -> bool {
    connection_of(method, path).is_some_and(|id| id == connection.as_str())
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, header::AUTHORIZATION};

    use super::*;

    #[test]
    fn token_is_valid_for_four_operations_of_its_connection() {
        let (own, other) = (AuthConnectionId::generate(), AuthConnectionId::generate());
        let upper = own.as_str().to_uppercase();
        // Each path, and the methods that are allowed.
        let cases = [
            (format!("/auth/connections/{own}"), "GET HEAD"),
            (format!("/auth/connections/{own}/events"), "GET HEAD"),
            (format!("/auth/connections/{own}/submit"), "POST"),
            (format!("/auth/connections/{own}/cancel"), "POST"),
            (format!("/auth/connections/{own}/login"), ""),
            (format!("/auth/connections/{own}/exchange"), ""),
            (format!("/auth/connections/{own}/timeline"), ""),
            (format!("/auth/connections/{own}/"), ""),
            (format!("/auth/connections/{own}/events/"), ""),
            (format!("/auth/connections/{own}//events"), ""),
            (format!("/auth/connections/{own}/event%73"), ""),
            (format!("/auth/connections/{own}%2Fevents"), ""),
            (format!("/auth/connections/{own}/submit/../login"), ""),
            (format!("/auth/connections/{other}"), ""),
            (format!("/auth/connections/{other}/submit"), ""),
            (format!("/auth/connections/{other}/../{own}"), ""),
            (format!("/auth/connections/{upper}"), ""),
            (format!("/auth/connections//{own}"), ""),
            (format!("//auth/connections/{own}"), ""),
            (format!("/Auth/connections/{own}"), ""),
            (format!("/auth/connections{own}"), ""),
            (format!("/browsers/{own}"), ""),
            ("/auth/connections".to_owned(), ""),
            ("/auth/connections/".to_owned(), ""),
            ("/auth/connections//events".to_owned(), ""),
            ("/auth/context".to_owned(), ""),
        ];
        let methods = [
            Method::GET,
            Method::HEAD,
            Method::POST,
            Method::PUT,
            Method::PATCH,
            Method::DELETE,
            Method::OPTIONS,
            Method::TRACE,
        ];
        for (path, expected) in cases {
            let allowed = methods.iter().filter(|method| allows(&own, method, &path));
            let allowed: Vec<&str> = allowed.map(Method::as_str).collect();
            assert_eq!(allowed.join(" "), expected, "{path}");
        }
    }

    #[test]
    fn bearer_token_of_another_form_is_no_flow_token() {
        for (value, is_token) in [
            ("Bearer eyJhbGciOiJFZERTQSJ9.e30.AA", true),
            ("bearer  eyJhbGciOiJFZERTQSJ9.e30.AA ", true),
            ("Bearer eyJ..", true),
            ("Bearer eyJhbGciOiJFZERTQSJ9.e30", false),
            ("Bearer eyJhbGciOiJFZERTQSJ9.e30.AA.AA", false),
            ("Bearer berth_0123456789ab_0.0.0", false),
            ("Basic eyJhbGciOiJFZERTQSJ9.e30.AA", false),
            ("eyJhbGciOiJFZERTQSJ9.e30.AA", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, HeaderValue::from_static(value));
            assert_eq!(bearer_flow_token(&headers).is_some(), is_token, "{value}");
        }
        assert_eq!(bearer_flow_token(&HeaderMap::new()), None);
    }
}

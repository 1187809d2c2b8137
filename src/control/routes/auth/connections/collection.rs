//! `/auth/connections`.

use axum::extract::State;

use super::{ConnectionContext, TAG};
use crate::{
    api::{
        ErrorBody,
        auth_connections::{AuthConnection, CreateAuthConnection, ListAuthConnections},
        ids::AuthConnectionId,
        paging::Page,
    },
    control::{
        auth_connections::{AuthConnections, logins::Logins},
        routes::{auditing::Created, authentication::Principal, paged::Paged},
        store::AuthConnectionListing,
    },
    http::{ApiResult, Json, Query},
};

/// Create an auth connection
///
/// Nothing is logged in, and the profile need not exist.
#[utoipa::path(
    post,
    path = "/auth/connections",
    operation_id = "create_auth_connection",
    tag = TAG,
    request_body(content = CreateAuthConnection, example = json!({
        "domain": "example.com",
        "profile_name": "shop-login",
        "login_url": "https://accounts.example.com/login",
        "allowed_domains": ["sso.example.net"],
        "health_check_interval": 3600,
    })),
    responses(
        (status = 201, body = AuthConnection),
        (status = 409, body = ErrorBody, description = "The project has a connection with the domain and the profile, or the limit of connections is reached"),
        (status = 503, body = ErrorBody, description = "The disk of the server is full"),
    )
)]
pub(crate) async fn create(
    State(connections): State<AuthConnections>,
    context: ConnectionContext,
    principal: Principal,
    Json(request): Json<CreateAuthConnection>,
) -> ApiResult<Created<AuthConnection>> {
    let created = connections.create(&principal.project, request).await?;
    Ok(Created {
        id: created.row.id.to_string(),
        body: context.to_connection(created, None, &principal),
    })
}

/// List auth connections
///
/// Newest first.
#[utoipa::path(
    get,
    path = "/auth/connections",
    operation_id = "list_auth_connections",
    tag = TAG,
    params(ListAuthConnections, Page),
    responses((status = 200, body = Vec<AuthConnection>, headers(
        ("X-Has-More" = bool, description = "Whether there are more entries"),
        ("X-Next-Offset" = u64, description = "The offset of the next page, 0 on the last one"),
    )))
)]
pub(crate) async fn list(
    State(connections): State<AuthConnections>,
    State(logins): State<Logins>,
    context: ConnectionContext,
    principal: Principal,
    Query(request): Query<ListAuthConnections>,
) -> ApiResult<Paged<AuthConnection>> {
    let page = request.page();
    let listing = AuthConnectionListing {
        domain: request.domain.map(|domain| domain.as_str().to_owned()),
        profile_name: request.profile_name.map(Into::into),
        query: request.query.map(Into::into),
        offset: page.offset.get().into(),
        limit: page.limit.get().into(),
    };
    let rows = connections.list(&principal.project, &listing).await?;
    let ids: Vec<AuthConnectionId> = rows.iter().map(|found| found.row.id.clone()).collect();
    let flows = logins.newest_of(&ids).await?;
    let flow_of = |id: &AuthConnectionId| flows.iter().find(|flow| flow.connection_id == *id);
    Ok(Paged::new(page, rows, |found| {
        let flow = flow_of(&found.row.id);
        context.to_connection(found, flow, &principal)
    }))
}

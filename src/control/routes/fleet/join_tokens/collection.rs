//! `/fleet/join_tokens`.

use axum::extract::State;

use super::to_join_token;
use crate::{
    api::{
        ErrorBody,
        fleet::{CreateJoinToken, JoinToken, JoinTokenWithSecret},
        paging::Page,
    },
    control::{
        fleet::registered::JoinTokens,
        routes::{
            auditing::Created,
            authentication::Principal,
            fleet::{TAG, organization_key},
            paged::Paged,
        },
        secret_token::reveal,
    },
    http::{ApiResult, Json, Query},
};

/// Create a join token
///
/// The response contains the secret, which is not shown again. Hosts register with it, as often as
/// it has uses, and receive an identity of their own; it gives access to nothing else. A key that
/// expires creates only tokens that expire no later.
#[utoipa::path(
    post,
    path = "/fleet/join_tokens",
    operation_id = "create_join_token",
    tag = TAG,
    request_body(content = CreateJoinToken, example = json!({"uses": 10, "labels": {"zone": "a"}})),
    responses(
        (status = 201, body = JoinTokenWithSecret),
        (status = 403, body = ErrorBody, description = "The key of the request is bound to a project, or expires before the token would"),
        (status = 503, body = ErrorBody, description = "The disk of the server is full"),
    )
)]
pub(crate) async fn create(
    State(tokens): State<JoinTokens>,
    principal: Principal,
    Json(request): Json<CreateJoinToken>,
) -> ApiResult<Created<JoinTokenWithSecret>> {
    let caller = organization_key(&principal)?;
    let uses = request.uses.unwrap_or_default().get();
    let expires_at = request.expires_at.map(|time| time.0);
    let labels = request.labels.unwrap_or_default().into_inner();
    let (row, token) = tokens.create(caller, uses, expires_at, labels).await?;
    Ok(Created {
        id: row.id.to_string(),
        body: JoinTokenWithSecret {
            record: to_join_token(row),
            token: reveal(&token),
        },
    })
}

/// List join tokens
///
/// Without their secrets, newest first. Tokens that have expired or are used up are listed for as
/// long as their records are retained.
#[utoipa::path(
    get,
    path = "/fleet/join_tokens",
    operation_id = "list_join_tokens",
    tag = TAG,
    params(Page),
    responses(
        (status = 200, body = Vec<JoinToken>, headers(
            ("X-Has-More" = bool, description = "Whether there are more entries"),
            ("X-Next-Offset" = u64, description = "The offset of the next page, 0 on the last one"),
        )),
        (status = 403, body = ErrorBody, description = "The key of the request is bound to a project"),
    )
)]
pub(crate) async fn list(
    State(tokens): State<JoinTokens>,
    principal: Principal,
    Query(page): Query<Page>,
) -> ApiResult<Paged<JoinToken>> {
    organization_key(&principal)?;
    let (offset, limit) = (page.offset.get().into(), page.limit.get().into());
    let rows = tokens.list(offset, limit).await?;
    Ok(Paged::new(page, rows, to_join_token))
}

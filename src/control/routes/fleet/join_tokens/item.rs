//! `/fleet/join_tokens/{id}`.

use axum::extract::State;
use http::StatusCode;

use crate::{
    api::{ErrorBody, ids::JoinTokenId},
    control::{
        fleet::registered::JoinTokens,
        routes::{
            authentication::Principal,
            fleet::{TAG, organization_key},
        },
    },
    http::{ApiResult, Path},
};

/// Delete a join token
///
/// No further host can register with it, from this response on. Hosts that have registered with it
/// stay.
#[utoipa::path(
    delete,
    path = "/fleet/join_tokens/{id}",
    operation_id = "delete_join_token",
    tag = TAG,
    params(("id" = JoinTokenId, Path, description = "The id of the join token", example = "join_01kgc3v7e8r9t0w1x2y3z4a5b6")),
    responses(
        (status = 204, description = "The token is deleted"),
        (status = 403, body = ErrorBody, description = "The key of the request is bound to a project"),
        (status = 503, body = ErrorBody, description = "The disk of the server is full"),
    )
)]
pub(crate) async fn delete(
    State(tokens): State<JoinTokens>,
    principal: Principal,
    Path(id): Path<JoinTokenId>,
) -> ApiResult<StatusCode> {
    tokens.delete(organization_key(&principal)?, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}

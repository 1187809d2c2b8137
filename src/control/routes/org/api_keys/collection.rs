//! `/org/api_keys`.

use axum::extract::State;
use chrono::Utc;
use http::StatusCode;

use super::{TAG, to_api_key, to_created_key};
use crate::{
    api::{
        ErrorBody,
        api_keys::{ApiKey, ApiKeyWithSecret, CreateApiKey},
        paging::Page,
    },
    control::{
        keys::ApiKeys,
        routes::{auth::Principal, paged::Paged},
    },
    http::{ApiError, ApiResult, Json, Query},
};

/// Create an API key
///
/// The response contains the secret of the key, which is not shown again. A key that is bound to a
/// project can create only keys of that project.
#[utoipa::path(
    post,
    path = "/org/api_keys",
    operation_id = "create_api_key",
    tag = TAG,
    request_body(content = CreateApiKey, example = json!({"name": "ci", "days_to_expire": 90})),
    responses(
        (status = 201, body = ApiKeyWithSecret),
        (status = 400, body = ErrorBody),
        (status = 403, body = ErrorBody, description = "The credential is bound to another project"),
        (status = 404, body = ErrorBody, description = "The project does not exist"),
    )
)]
pub(crate) async fn create(
    State(keys): State<ApiKeys>,
    principal: Principal,
    Json(request): Json<CreateApiKey>,
) -> ApiResult<(StatusCode, Json<ApiKeyWithSecret>)> {
    let expiry = request.expiry(Utc::now());
    let project = match (&principal.api_key()?.project, request.project_id) {
        (Some(bound), Some(requested)) if *bound != requested => {
            return Err(ApiError::forbidden("the key belongs to another project"));
        }
        // A key of one project cannot create a key for all projects.
        (Some(bound), _) => Some(bound.clone()),
        (None, requested) => requested,
    };
    let created = keys.create(request.name.as_str(), project, expiry).await?;
    Ok((StatusCode::CREATED, Json(to_created_key(created))))
}

/// List API keys
///
/// Newest first, without their secrets.
#[utoipa::path(
    get,
    path = "/org/api_keys",
    operation_id = "list_api_keys",
    tag = TAG,
    params(Page),
    responses((status = 200, body = Vec<ApiKey>), (status = 400, body = ErrorBody))
)]
pub(crate) async fn list(
    State(keys): State<ApiKeys>,
    principal: Principal,
    Query(page): Query<Page>,
) -> ApiResult<Paged<ApiKey>> {
    let scope = principal.api_key()?.project.as_ref();
    let (offset, limit) = (page.offset.get().into(), page.limit.get().into());
    let rows = keys.list(scope, offset, limit).await?;
    Ok(Paged::new(page, rows, to_api_key))
}

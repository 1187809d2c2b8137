use axum::extract::State;
use chrono::Utc;
use http::StatusCode;

use super::{TAG, show, show_fresh};
use crate::{
    api::{
        ErrorBody,
        api_keys::{ApiKey, CreateApiKey, FreshApiKey},
        paging::Page,
    },
    control::{
        Control,
        routes::{auth::Principal, paged::Paged},
    },
    http::{ApiError, ApiResult, Json, Query},
};

/// Create an API key
///
/// The response has the secret of the key, which is not shown again. A key that is bound to a
/// project can create only keys of that project.
#[utoipa::path(
    post,
    path = "/org/api_keys",
    operation_id = "create_api_key",
    tag = TAG,
    request_body(content = CreateApiKey, example = json!({"name": "ci", "days_to_expire": 90})),
    responses(
        (status = 201, body = FreshApiKey),
        (status = 400, body = ErrorBody),
        (status = 403, body = ErrorBody, description = "The credential is bound to another project"),
        (status = 404, body = ErrorBody, description = "The project does not exist"),
    )
)]
pub async fn create(
    State(control): State<Control>,
    principal: Principal,
    Json(request): Json<CreateApiKey>,
) -> ApiResult<(StatusCode, Json<FreshApiKey>)> {
    let expiry = request.expiry(Utc::now());
    let project = match (&principal.api_key()?.project, request.project_id) {
        (Some(bound), Some(asked)) if *bound != asked => {
            return Err(ApiError::forbidden("the key belongs to another project"));
        }
        // A key cannot make a mightier one than itself.
        (Some(bound), _) => Some(bound.clone()),
        (None, asked) => asked,
    };
    let fresh = control
        .keys
        .create(request.name.as_str(), project, expiry)
        .await?;
    Ok((StatusCode::CREATED, Json(show_fresh(fresh))))
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
pub async fn list(
    State(control): State<Control>,
    principal: Principal,
    Query(page): Query<Page>,
) -> ApiResult<Paged<ApiKey>> {
    let scope = principal.api_key()?.project.as_ref();
    let (offset, limit) = (page.offset.get().into(), page.limit.get().into());
    let rows = control.keys.list(scope, offset, limit).await?;
    Ok(Paged::new(page, rows, show))
}

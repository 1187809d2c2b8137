//! `/org/api_keys`.

use axum::extract::State;
use chrono::Utc;

use super::{TAG, to_api_key, to_created_key};
use crate::{
    api::{
        ErrorBody,
        api_keys::{
            ApiKey, ApiKeySortField, ApiKeyStatus, ApiKeyWithSecret, CreateApiKey, ListApiKeys,
            SortDirection,
        },
        field::Flag,
        paging::Page,
    },
    control::{
        keys::ApiKeys,
        routes::{auditing::Created, authentication::Principal, paged::Paged},
        store::{KeyListing, KeyOrder, KeyStatusFilter},
    },
    http::{ApiResult, Json, Query},
};

/// Create an API key
///
/// The response contains the secret of the key, which is not shown again.
///
/// A key that is bound to a project can create only keys of that project, and one that expires only
/// keys that expire no later. Without a project or an expiry, the new key has those of the key of
/// the request.
#[utoipa::path(
    post,
    path = "/org/api_keys",
    operation_id = "create_api_key",
    tag = TAG,
    request_body(content = CreateApiKey, example = json!({"name": "ci", "days_to_expire": 90})),
    responses(
        (status = 201, body = ApiKeyWithSecret),
        (status = 403, body = ErrorBody, description = "The key of the request is bound to another project, or expires before the new key would"),
        (status = 404, body = ErrorBody, description = "The project does not exist"),
        (status = 503, body = ErrorBody, description = "The disk of the server is full"),
    )
)]
pub(crate) async fn create(
    State(keys): State<ApiKeys>,
    principal: Principal,
    Json(request): Json<CreateApiKey>,
) -> ApiResult<Created<ApiKeyWithSecret>> {
    let expiry = request.expiry(Utc::now());
    let (caller, name) = (principal.api_key()?, request.name.as_str());
    let created = keys.create_for(caller, name, request.project_id, expiry);
    let created = created.await?;
    Ok(Created {
        id: created.0.row.id.to_string(),
        body: to_created_key(created),
    })
}

/// List API keys
///
/// Without their secrets, newest first by default. Deleted keys are listed for as long as their
/// records are retained.
#[utoipa::path(
    get,
    path = "/org/api_keys",
    operation_id = "list_api_keys",
    tag = TAG,
    params(ListApiKeys, Page),
    responses((status = 200, body = Vec<ApiKey>, headers(
        ("X-Has-More" = bool, description = "Whether there are more entries"),
        ("X-Next-Offset" = u64, description = "The offset of the next page, 0 on the last one"),
    )))
)]
pub(crate) async fn list(
    State(keys): State<ApiKeys>,
    principal: Principal,
    Query(request): Query<ListApiKeys>,
) -> ApiResult<Paged<ApiKey>> {
    let scope = principal.api_key()?.project.as_ref();
    let page = request.page();
    let rows = keys.list(scope, KeyListing::from(request)).await?;
    Ok(Paged::new(page, rows, to_api_key))
}

impl From<ListApiKeys> for KeyListing {
    fn from(request: ListApiKeys) -> Self {
        let page = request.page();
        KeyListing {
            status: match (request.status, request.include_deleted) {
                (Some(ApiKeyStatus::Active), _) | (None, Flag(false)) => KeyStatusFilter::Active,
                (Some(ApiKeyStatus::Deleted), _) => KeyStatusFilter::Deleted,
                (Some(ApiKeyStatus::All), _) | (None, Flag(true)) => KeyStatusFilter::All,
            },
            name: request.name.map(Into::into),
            query: request.query.map(Into::into),
            public_part: None,
            order: match request.sort_by {
                ApiKeySortField::CreatedAt => KeyOrder::CreatedAt,
                ApiKeySortField::Name => KeyOrder::Name,
                ApiKeySortField::ExpiresAt => KeyOrder::ExpiresAt,
            },
            is_descending: request.sort_direction == SortDirection::Desc,
            offset: page.offset.get().into(),
            limit: page.limit.get().into(),
        }
    }
}

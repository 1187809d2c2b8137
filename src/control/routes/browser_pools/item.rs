//! `/browser_pools/{id_or_name}`.

use axum::extract::State;
use http::StatusCode;

use super::{TAG, limit, to_pool};
use crate::{
    api::{
        ErrorBody,
        pools::{DeletePool, DeletePoolQuery, Pool, UpdatePool},
    },
    control::{
        pools::{PoolChange, Pools},
        region::ServerRegion,
        routes::{authentication::Principal, browsers::BODY_LIMIT},
        store::PoolRow,
    },
    http::{ApiResult, Json, LargeJson, Path, Query},
};

/// Get a pool
///
/// Finds the pool by its id or its name.
#[utoipa::path(
    get,
    path = "/browser_pools/{id_or_name}",
    operation_id = "get_pool",
    tag = TAG,
    params(("id_or_name" = String, Path, description = "The id or name of the pool", example = "checkout")),
    responses((status = 200, body = Pool))
)]
pub(crate) async fn get(
    State(pools): State<Pools>,
    State(region): State<ServerRegion>,
    principal: Principal,
    Path(id_or_name): Path<String>,
) -> ApiResult<Json<Pool>> {
    let row = pools.get(&principal.project, &id_or_name).await?;
    counted(&pools, row, &region).await
}

/// Update a pool
///
/// Fields that are absent or null stay unchanged. From now on no browser is handed out that was
/// started with other settings; such idle ones are replaced. Acquired browsers stay as they are.
#[utoipa::path(
    patch,
    path = "/browser_pools/{id_or_name}",
    operation_id = "update_pool",
    tag = TAG,
    params(("id_or_name" = String, Path, description = "The id or name of the pool", example = "checkout")),
    request_body(content = UpdatePool, example = json!({"size": 4, "discard_all_idle": true})),
    responses(
        (status = 200, body = Pool),
        (status = 404, body = ErrorBody, description = "The pool or the profile does not exist"),
        (status = 409, body = ErrorBody, description = "The name is taken"),
        (status = 429, body = ErrorBody, description = "The limit of browsers of the project is reached"),
        (status = 503, body = ErrorBody, description = "The disk of the server is full"),
    )
)]
pub(crate) async fn update(
    State(pools): State<Pools>,
    State(region): State<ServerRegion>,
    principal: Principal,
    Path(id_or_name): Path<String>,
    LargeJson(request): LargeJson<UpdatePool, BODY_LIMIT>,
) -> ApiResult<Json<Pool>> {
    let discard = request.discard_all_idle.unwrap_or(false);
    let updating = pools.update(&principal.project, &id_or_name, request.into(), discard);
    let row = updating.await?;
    counted(&pools, row, &region).await
}

/// Delete a pool
///
/// Idle browsers are ended. Acquired ones prevent the deletion, unless `force` is set in the body
/// or in the query; they are ended, too, then.
#[utoipa::path(
    delete,
    path = "/browser_pools/{id_or_name}",
    operation_id = "delete_pool",
    tag = TAG,
    params(("id_or_name" = String, Path, description = "The id or name of the pool", example = "checkout"), DeletePoolQuery),
    request_body(content = DeletePool, example = json!({"force": true})),
    responses(
        (status = 204, description = "The pool is deleted"),
        (status = 409, body = ErrorBody, description = "Clients have browsers of the pool"),
        (status = 503, body = ErrorBody, description = "The disk of the server is full"),
    )
)]
pub(crate) async fn delete(
    State(pools): State<Pools>,
    principal: Principal,
    Path(id_or_name): Path<String>,
    Query(query): Query<DeletePoolQuery>,
    Json(request): Json<DeletePool>,
) -> ApiResult<StatusCode> {
    let force = request.force.unwrap_or(false) || query.force.is_some_and(|force| force.0);
    pools.delete(&principal.project, &id_or_name, force).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn counted(pools: &Pools, row: PoolRow, region: &ServerRegion) -> ApiResult<Json<Pool>> {
    let mut counts = pools.counts(std::slice::from_ref(&row.id)).await?;
    let counts = counts.remove(&row.id).unwrap_or_default();
    Ok(Json(to_pool(row, counts, region)))
}

impl From<UpdatePool> for PoolChange {
    fn from(request: UpdatePool) -> Self {
        PoolChange {
            name: request.name.map(Into::into),
            size: request.size.map(|size| size.get()),
            fill_rate_per_minute: request.fill_rate_per_minute.map(|rate| rate.get()),
            timeout_seconds: request.timeout_seconds.map(|timeout| timeout.get()),
            max_age_seconds: request.max_age_seconds.map(|age| limit(age.get())),
            max_leases: request.max_leases.map(|leases| limit(leases.get())),
            headless: request.headless,
            kiosk_mode: request.kiosk_mode,
            viewport: request.viewport,
            start_url: request.start_url.map(Into::into),
            profile: request.profile.map(|profile| profile.0),
            refresh_on_profile_update: request.refresh_on_profile_update,
        }
    }
}

//! `/browser_pools`.

use axum::extract::State;

use super::{TAG, limit, to_pool};
use crate::{
    api::{
        ErrorBody,
        paging::{Page, SearchText},
        pools::{CreatePool, DEFAULT_FILL_RATE_PERCENT, DEFAULT_TIMEOUT_SECONDS, ListPools, Pool},
        viewport::Viewport,
    },
    control::{
        pools::{Pools, config::PoolConfig},
        region::ServerRegion,
        routes::{
            auditing::Created, authentication::Principal, browsers::BODY_LIMIT, paged::Paged,
        },
        store::{PoolCounts, PoolListing, PoolSettings},
    },
    http::{ApiResult, LargeJson, Query},
};

/// Create a pool
///
/// Its browsers are started in the background, at `fill_rate_per_minute`. They count towards the
/// browser limit of the project from now on.
///
/// With a `profile`, they are started with its current version, and with
/// `refresh_on_profile_update` none is handed out that was started with an older one. The profile
/// cannot be deleted before the pool.
#[utoipa::path(
    post,
    path = "/browser_pools",
    operation_id = "create_pool",
    tag = TAG,
    request_body(content = CreatePool, example = json!({"name": "checkout", "size": 2, "timeout_seconds": 300, "headless": true})),
    responses(
        (status = 201, body = Pool),
        (status = 404, body = ErrorBody, description = "The profile does not exist"),
        (status = 409, body = ErrorBody, description = "The name is taken"),
        (status = 429, body = ErrorBody, description = "The limit of browsers of the project is reached"),
        (status = 503, body = ErrorBody, description = "The disk of the server is full"),
    )
)]
pub(crate) async fn create(
    State(pools): State<Pools>,
    State(region): State<ServerRegion>,
    principal: Principal,
    LargeJson(request): LargeJson<CreatePool, BODY_LIMIT>,
) -> ApiResult<Created<Pool>> {
    let profile = request.profile.clone().and_then(|profile| profile.0);
    let row = pools
        .create(&principal.project, request.into(), profile)
        .await?;
    Ok(Created {
        id: row.id.to_string(),
        body: to_pool(row, PoolCounts::default(), &region),
    })
}

/// List pools
///
/// Newest first.
#[utoipa::path(
    get,
    path = "/browser_pools",
    operation_id = "list_pools",
    tag = TAG,
    params(ListPools, Page),
    responses((status = 200, body = Vec<Pool>, headers(
        ("X-Has-More" = bool, description = "Whether there are more entries"),
        ("X-Next-Offset" = u64, description = "The offset of the next page, 0 on the last one"),
    )))
)]
pub(crate) async fn list(
    State(pools): State<Pools>,
    State(region): State<ServerRegion>,
    principal: Principal,
    Query(request): Query<ListPools>,
) -> ApiResult<Paged<Pool>> {
    let page = request.page();
    let is_own = |other: SearchText| String::from(other) == region.as_str();
    if !request.region.is_none_or(is_own) {
        return Ok(Paged::new(page, Vec::new(), |pool: Pool| pool));
    }
    let listing = PoolListing {
        name: request.name.map(Into::into),
        query: request.query.map(Into::into),
        offset: page.offset.get().into(),
        limit: page.limit.get().into(),
    };
    let rows = pools.list(&principal.project, &listing).await?;
    let ids: Vec<_> = rows.iter().map(|row| row.id.clone()).collect();
    let mut counts = pools.counts(&ids).await?;
    Ok(Paged::new(page, rows, |row| {
        let counts = counts.remove(&row.id).unwrap_or_default();
        to_pool(row, counts, &region)
    }))
}

impl From<CreatePool> for PoolSettings {
    fn from(request: CreatePool) -> Self {
        let default = Viewport::default();
        let fill_rate = request.fill_rate_per_minute.map(|rate| rate.get());
        let timeout = request.timeout_seconds.map(|timeout| timeout.get());
        PoolSettings {
            name: request.name.map(Into::into),
            size: request.size.get(),
            fill_rate_per_minute: fill_rate.unwrap_or(DEFAULT_FILL_RATE_PERCENT),
            timeout_seconds: timeout.unwrap_or(DEFAULT_TIMEOUT_SECONDS),
            max_age_seconds: request.max_age_seconds.and_then(|age| limit(age.get())),
            max_leases: request.max_leases.and_then(|leases| limit(leases.get())),
            refresh_on_profile_update: request.refresh_on_profile_update.unwrap_or(false),
            config: PoolConfig {
                headless: request.headless.unwrap_or(false),
                kiosk_mode: request.kiosk_mode.unwrap_or(false),
                viewport: request
                    .viewport
                    .map_or(default, |requested| requested.resolve(default.refresh_rate)),
                start_url: request.start_url.map(Into::into),
                // Known once it is found.
                profile: None,
            },
        }
    }
}

//! `/browser_pools`, and the conversion of pools and their errors to API types.

use std::time::Duration;

use utoipa_axum::{router::OpenApiRouter, routes};

use super::{PROJECT_ARCHIVED, browsers::START_RETRY_DELAY};
use crate::{
    api::pools::{BrowserPoolConfig, Pool, StartProfile},
    control::{
        Control,
        browsers::HandOverError,
        pools::PoolError,
        region::ServerRegion,
        store::{PoolCounts, PoolRow},
    },
    http::ApiError,
};

mod acquire;
mod collection;
mod flush;
mod item;
mod release;

const TAG: &str = crate::api::groups::POOLS;
/// `Retry-After` if the server is shutting down.
const RESTART_RETRY_DELAY: Duration = Duration::from_secs(1);

pub(crate) fn router() -> OpenApiRouter<Control> {
    OpenApiRouter::new()
        .routes(routes!(collection::create, collection::list))
        .routes(routes!(item::get, item::update, item::delete))
        .routes(routes!(acquire::acquire))
        .routes(routes!(release::release))
        .routes(routes!(flush::flush))
}

fn to_pool(row: PoolRow, counts: PoolCounts, region: &ServerRegion) -> Pool {
    let settings = row.settings;
    let config = settings.config;
    Pool {
        id: row.id,
        name: settings.name.clone(),
        created_at: row.created_at.into(),
        updated_at: row.updated_at.into(),
        available_count: counts.available,
        acquired_count: counts.acquired,
        waiting_count: counts.waiting,
        config_hash: row.config_hash,
        browser_pool_config: BrowserPoolConfig {
            size: settings.size,
            name: settings.name,
            fill_rate_per_minute: settings.fill_rate_per_minute,
            timeout_seconds: settings.timeout_seconds,
            headless: config.headless,
            kiosk_mode: config.kiosk_mode,
            stealth: false,
            viewport: config.viewport,
            start_url: config.start_url,
            max_age_seconds: settings.max_age_seconds,
            max_leases: settings.max_leases,
            refresh_on_profile_update: settings.refresh_on_profile_update,
            profile: row.profile.map(|profile| StartProfile {
                id: profile.id,
                name: profile.name,
            }),
            region: region.to_string(),
        },
        region: region.to_string(),
        profile_id: config.profile,
        extension_ids: Vec::new(),
    }
}

/// Converts a limit of which 0 is none.
fn limit(value: u32) -> Option<u32> {
    (value > 0).then_some(value)
}

impl From<PoolError> for ApiError {
    fn from(error: PoolError) -> Self {
        let message = error.to_string();
        match error {
            PoolError::NotFound
            | PoolError::BrowserNotFound
            | PoolError::HandOver(HandOverError::PoolDeleted) => ApiError::not_found(message),
            PoolError::PoolNameTaken | PoolError::NameTaken => ApiError::conflict(message)
                .detail("name", "is taken")
                .permanent(),
            PoolError::ProjectInactive => ApiError::forbidden(message).code(PROJECT_ARCHIVED),
            PoolError::ProjectLimitReached(_) => {
                ApiError::limit_exceeded(message, START_RETRY_DELAY)
            }
            PoolError::Leased(_) => ApiError::conflict(message).permanent(),
            PoolError::NotLeased => ApiError::conflict(message).code("not_leased").permanent(),
            PoolError::Abandoned => {
                ApiError::unavailable("the request was cancelled", RESTART_RETRY_DELAY)
            }
            PoolError::ShuttingDown => ApiError::unavailable(message, RESTART_RETRY_DELAY),
            PoolError::HandOver(HandOverError::StartUrl(cause)) => {
                super::browsers::agent_error(cause)
            }
            PoolError::HandOver(HandOverError::Browser(error)) | PoolError::Browser(error) => {
                error.into()
            }
            PoolError::HandOver(HandOverError::Unusable(cause)) => {
                tracing::warn!(%cause, "a browser of a pool is not usable");
                ApiError::unavailable("no browser of the pool is usable", START_RETRY_DELAY)
            }
            PoolError::Store(cause) => cause.into(),
            PoolError::Task(cause) => ApiError::internal(cause),
        }
    }
}

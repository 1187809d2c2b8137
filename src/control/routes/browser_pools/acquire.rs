//! `/browser_pools/{id_or_name}/acquire`.

use std::time::Duration;

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use http::StatusCode;

use super::TAG;
use crate::{
    api::{
        ErrorBody,
        browsers::Browser,
        pools::{AcquireBrowser, DEFAULT_ACQUIRE_TIMEOUT_SECONDS},
    },
    control::{
        pools::{NewLease, Pools},
        routes::{
            authentication::Principal,
            browsers::{BODY_LIMIT, BrowserContext},
            idempotency::IdempotencyKey,
        },
    },
    http::{ApiResult, ArrivedAt, Json, LargeJson, Path},
};

/// Acquire a browser
///
/// Responds as soon as a browser of the pool is available, and with 204 if that takes longer than
/// `acquire_timeout_seconds`; repeat the request then. Clients are served in the order of their
/// requests. One that disconnects gets no browser.
///
/// The browser is a new session with the pool's `timeout_seconds` as its idle timeout. It was
/// checked to respond. Release it when you are done; it ends like any other browser if it is not
/// used.
///
/// With an `idempotency-key`, a request that is repeated within 10 minutes returns the browser of
/// the first one.
#[utoipa::path(
    post,
    path = "/browser_pools/{id_or_name}/acquire",
    operation_id = "acquire_browser",
    tag = TAG,
    params(
        ("id_or_name" = String, Path, description = "The id or name of the pool", example = "checkout"),
        ("idempotency-key" = Option<String>, Header, description = "Makes the request safe to repeat for 10 minutes", example = "7c9e6679-7425-40de-944b-e07fc1f90ae7"),
    ),
    request_body(content = AcquireBrowser, example = json!({"acquire_timeout_seconds": 10, "tags": {"team": "qa"}})),
    responses(
        (status = 200, body = Browser),
        (status = 204, description = "No browser was available in time"),
        (status = 409, body = ErrorBody, description = "The name is taken, something else saves the profile (`profile_in_use`), or the idempotency key was used for a different request or one that is still in progress"),
        (status = 502, body = ErrorBody, description = "The browser rejected the start URL"),
        (status = 503, body = ErrorBody, description = "The server is shutting down, or its disk is full"),
    )
)]
pub(crate) async fn acquire(
    State(pools): State<Pools>,
    principal: Principal,
    context: BrowserContext,
    IdempotencyKey(key): IdempotencyKey,
    ArrivedAt(arrived_at): ArrivedAt,
    Path(id_or_name): Path<String>,
    LargeJson(request): LargeJson<AcquireBrowser, BODY_LIMIT>,
) -> ApiResult<Response> {
    let wait = request.acquire_timeout_seconds.map(|wait| wait.get());
    let wait = wait.unwrap_or(DEFAULT_ACQUIRE_TIMEOUT_SECONDS);
    let lease = NewLease {
        name: request.name.map(Into::into),
        tags: request.tags.unwrap_or_default().into_inner(),
        start_url: request.start_url.map(Into::into),
        profile: request.profile,
    };
    let wait = Duration::from_secs(wait.into());
    let pool = pools.get(&principal.project, &id_or_name).await?;
    let creation = key
        .map(|key| super::super::browsers::creation(key, &(&pool.id, &lease)))
        .transpose()?;
    let deadline = (arrived_at + wait).into();
    let acquiring = pools.acquire(&pool, deadline, lease, creation);
    Ok(match acquiring.await? {
        Some(row) => Json(context.to_browser(row, &principal)).into_response(),
        None => StatusCode::NO_CONTENT.into_response(),
    })
}

//! `/browsers`.

use axum::extract::State;
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::{BrowserContext, TAG};
use crate::{
    api::{
        ErrorBody,
        browsers::{Browser, CreateBrowser, ListBrowsers},
        paging::Page,
        viewport::Viewport,
    },
    control::{
        browsers::{Browsers, NewBrowser},
        routes::{
            auditing::Created, authentication::Principal, idempotency::IdempotencyKey, paged::Paged,
        },
        store::{Creation, Listing},
    },
    http::{ApiError, ApiResult, LargeJson, Query},
};

/// Size limit of a request to create a browser, in bytes.
pub(in crate::control::routes) const BODY_LIMIT: usize = 6 << 20;

/// Create a browser
///
/// Starts a browser, and responds once it accepts DevTools connections. It ends when it is deleted,
/// or after `timeout_seconds` without use (60 by default): connections and requests count as use.
///
/// With an `idempotency-key`, a request that is repeated within 10 minutes returns the browser of
/// the first one. A client that disconnects before the response cancels the creation.
#[utoipa::path(
    post,
    path = "/browsers",
    operation_id = "create_browser",
    tag = TAG,
    params(("idempotency-key" = Option<String>, Header, description = "Makes the request safe to repeat for 10 minutes", example = "7c9e6679-7425-40de-944b-e07fc1f90ae7")),
    request_body(content = CreateBrowser, example = json!({"name": "checkout-test", "timeout_seconds": 600, "viewport": {"width": 1280, "height": 800}, "start_url": "https://example.com", "tags": {"team": "qa"}})),
    responses(
        (status = 201, body = Browser),
        (status = 404, body = ErrorBody, description = "The profile does not exist"),
        (status = 409, body = ErrorBody, description = "The name is taken, something else saves the profile (`profile_in_use`), the profile is of a newer major version of Chromium (`newer_chromium`), or the idempotency key was used for a different request or one that is still in progress"),
        (status = 429, body = ErrorBody, description = "The limit of browsers of the server or of the project is reached"),
        (status = 503, body = ErrorBody, description = "The browser did not start, or no registered host is ready for it; nothing is left behind"),
    )
)]
pub(crate) async fn create(
    State(browsers): State<Browsers>,
    principal: Principal,
    context: BrowserContext,
    IdempotencyKey(key): IdempotencyKey,
    LargeJson(request): LargeJson<CreateBrowser, BODY_LIMIT>,
) -> ApiResult<Created<Browser>> {
    let new = NewBrowser::from(request);
    let creation = key.map(|key| creation(key, &new)).transpose()?;
    let row = browsers.create(&principal.project, new, creation).await?;
    Ok(Created {
        id: row.id.to_string(),
        body: context.to_browser(row, &principal),
    })
}

/// List browsers
///
/// Newest first. By default only active browsers are listed.
#[utoipa::path(
    get,
    path = "/browsers",
    operation_id = "list_browsers",
    tag = TAG,
    params(ListBrowsers, Page),
    responses((status = 200, body = Vec<Browser>, headers(
        ("X-Has-More" = bool, description = "Whether there are more entries"),
        ("X-Next-Offset" = u64, description = "The offset of the next page, 0 on the last one"),
    )))
)]
pub(crate) async fn list(
    State(browsers): State<Browsers>,
    principal: Principal,
    context: BrowserContext,
    Query(request): Query<ListBrowsers>,
) -> ApiResult<Paged<Browser>> {
    let listing = Listing {
        state: request.status.into(),
        query: request.query.map(Into::into),
        tags: request.tags,
        offset: request.page.offset.get().into(),
        limit: request.page.limit.get().into(),
    };
    let rows = browsers.list(&principal.project, &listing).await?;
    Ok(Paged::new(request.page, rows, |row| {
        context.to_browser(row, &principal)
    }))
}

/// Returns the idempotency key with a digest of the decoded request, so that requests that differ
/// only in field order or explicit defaults are the same.
pub(in crate::control::routes) fn creation(
    key: String,
    new: &impl Serialize,
) -> ApiResult<Creation> {
    let canonical = serde_json::to_vec(new).map_err(ApiError::internal)?;
    Ok(Creation {
        key,
        request_digest: Sha256::digest(canonical).into(),
    })
}

impl From<CreateBrowser> for NewBrowser {
    fn from(request: CreateBrowser) -> Self {
        let default = Viewport::default();
        NewBrowser {
            name: request.name.map(Into::into),
            headless: request.headless.unwrap_or(false),
            kiosk_mode: request.kiosk_mode.unwrap_or(false),
            timeout_seconds: request.timeout_seconds.unwrap_or_default().get(),
            viewport: request
                .viewport
                .map_or(default, |requested| requested.resolve(default.refresh_rate)),
            start_url: request.start_url.map(Into::into),
            tags: request.tags.unwrap_or_default().into_inner(),
            profile: request.profile,
        }
    }
}

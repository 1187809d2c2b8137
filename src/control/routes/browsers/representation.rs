//! The API representation of browsers.

use axum::extract::FromRequestParts;
use http::request::Parts;

use crate::{
    api::{
        browsers::{Browser, BrowserPool},
        profiles::BrowserProfile,
    },
    control::{
        Control,
        region::ServerRegion,
        routes::{authentication::Principal, public_base_url::PublicBaseUrl},
        session_token::{Scope, SessionTokens},
        store::BrowserRow,
    },
    http::ApiError,
};

/// The part of the representation of browsers that is not in their rows.
pub(in crate::control::routes) struct BrowserContext {
    tokens: SessionTokens,
    base_url: PublicBaseUrl,
    region: ServerRegion,
}

impl FromRequestParts<Control> for BrowserContext {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, control: &Control) -> Result<Self, ApiError> {
        Ok(BrowserContext {
            tokens: control.tokens.clone(),
            base_url: PublicBaseUrl::from_request_parts(parts, control).await?,
            region: control.region.clone(),
        })
    }
}

impl BrowserContext {
    /// Converts a row to its API representation, with URLs that contain session tokens.
    pub(in crate::control::routes) fn to_browser(
        &self,
        row: BrowserRow,
        principal: &Principal,
    ) -> Browser {
        let BrowserContext {
            tokens,
            base_url,
            region,
        } = self;
        let token = |scope| tokens.issue(&principal.issuer, &row.id, &row.project_id, &scope);
        // A headless or ended browser has no screen.
        let has_live_view = !row.headless && row.deleted_at.is_none();
        let live_view =
            |path, scope| has_live_view.then(|| base_url.page(&row.id, path, &token(scope)));
        Browser {
            cdp_ws_url: base_url.cdp(&row.id, &token(Scope::Session)),
            browser_live_view_url: live_view("/live", Scope::Live),
            browser_live_view_read_only_url: live_view("/live/view", Scope::LiveView),
            base_url: base_url.browser(&row.id),
            session_id: row.id,
            created_at: row.created_at.into(),
            headless: row.headless,
            stealth: false,
            kiosk_mode: row.kiosk_mode,
            timeout_seconds: row.timeout_seconds,
            name: row.name,
            tags: row.tags,
            viewport: row.viewport,
            start_url: row.start_url,
            profile: row.profile.map(|profile| BrowserProfile {
                id: profile.id,
                name: profile.name,
                save_changes: profile.save_changes,
            }),
            deleted_at: row.deleted_at.map(Into::into),
            pool: row.pool.map(|pool| BrowserPool {
                id: pool.id,
                name: pool.name,
            }),
            region: region.to_string(),
        }
    }
}

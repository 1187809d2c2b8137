//! Finds out in a browser whether a profile is logged in.

use std::time::Duration;

use tokio::time::timeout;

use super::{HealthChecks, schedule::CheckResult, verdict::verdict};
use crate::{
    api::{auth_flow::FlowErrorCode, ids::BrowserId, profiles::ProfileRef},
    control::{
        auth_connections::logins::{PageError, create_when_available, new_browser, profile_of},
        browsers::BrowserError,
        profiles::BrowserSave,
        store::AuthConnectionRow,
    },
};

/// The longest time until a browser runs.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// The longest time in which a page is opened and inspected.
const PAGE_TIMEOUT: Duration = Duration::from_secs(60);

/// The finding of a check.
pub(super) struct Finding {
    pub(super) result: CheckResult,
    /// The browser of the check, if it has started.
    pub(super) browser: Option<BrowserId>,
}

impl Finding {
    fn without_browser() -> Finding {
        Finding {
            result: CheckResult::Unknown(Some(FlowErrorCode::BrowserNotStarted)),
            browser: None,
        }
    }
}

impl HealthChecks {
    /// Opens a page for members with the profile, and saves the profile unless it is logged
    /// out: many sites replace the cookies of a session when it is used.
    pub(super) async fn check(&self, connection: &AuthConnectionRow) -> Finding {
        let Some(profile) = profile_of(connection) else {
            return Finding::without_browser();
        };
        let loaded = self.version_of(connection, &profile).await;
        let creating = create_when_available(|| self.create_browser(connection, &profile));
        let browser = match timeout(START_TIMEOUT, creating).await {
            Ok(Ok(browser)) => browser,
            Ok(Err(error)) => {
                tracing::warn!(connection = %connection.id, %error, "no browser for a health check");
                return Finding::without_browser();
            }
            Err(_) => return Finding::without_browser(),
        };
        let result = match timeout(PAGE_TIMEOUT, self.inspect(connection, &browser)).await {
            Ok(Ok(result)) => result,
            Ok(Err(PageError::BrowserLost)) => {
                CheckResult::Unknown(Some(FlowErrorCode::BrowserLost))
            }
            Err(_) => CheckResult::Unknown(Some(FlowErrorCode::SiteTimeout)),
        };
        // Also a page that shows neither may have replaced the cookies.
        let is_used = matches!(
            result,
            CheckResult::LoggedIn { .. } | CheckResult::Unknown(None)
        );
        // Otherwise another browser was saved meanwhile, whose changes are newer.
        if is_used && loaded == self.version_of(connection, &profile).await {
            self.save(connection, &browser, &profile).await;
        }
        let parts = self.parts();
        parts.end_browser(&connection.project_id, &browser).await;
        Finding {
            result,
            browser: Some(browser),
        }
    }

    async fn version_of(
        &self,
        connection: &AuthConnectionRow,
        profile: &ProfileRef,
    ) -> Option<u64> {
        let profiles = &self.parts().profiles;
        let found = profiles.find(&connection.project_id, profile).await;
        found.ok().map(|row| row.version)
    }

    async fn create_browser(
        &self,
        connection: &AuthConnectionRow,
        profile: &ProfileRef,
    ) -> Result<BrowserId, BrowserError> {
        let new = new_browser(connection, profile.clone());
        let browsers = &self.parts().browsers;
        let row = browsers.create(&connection.project_id, new, None).await?;
        Ok(row.id)
    }

    async fn inspect(
        &self,
        connection: &AuthConnectionRow,
        browser: &BrowserId,
    ) -> Result<CheckResult, PageError> {
        let parts = self.parts();
        let page = parts.page(connection, browser, None, Vec::new()).await?;
        let url = page_for_members(connection);
        page.open(&url).await?;
        let found = page.settled().await?;
        let findings = parts.findings(connection, &found, None, &[]);
        let known = (&*url, connection.health.expiry.as_ref());
        Ok(verdict(&found, &findings, known))
    }

    async fn save(
        &self,
        connection: &AuthConnectionRow,
        browser: &BrowserId,
        profile: &ProfileRef,
    ) {
        let browsers = &self.parts().browsers;
        let (project, kind) = (&connection.project_id, BrowserSave::HealthCheck);
        let saving = browsers.save_profile(project, browser.as_str(), profile, kind);
        if let Err(error) = saving.await {
            tracing::info!(connection = %connection.id, %error, "the profile of a health check is not saved");
        }
    }
}

/// Returns the page that only members see: that after the last login, or else the login page, which
/// most sites leave if there is a session.
fn page_for_members(connection: &AuthConnectionRow) -> String {
    let known = [&connection.post_login_url, &connection.settings.login_url];
    let known = known.into_iter().flatten().next().cloned();
    known.unwrap_or_else(|| format!("https://{}/", connection.domain))
}

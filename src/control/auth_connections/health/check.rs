//! Finds out in a browser whether a profile is logged in.

use std::{net::IpAddr, time::Duration};

use tokio::time::{sleep, timeout};

use super::{HealthChecks, schedule::CheckResult, verdict::verdict};
use crate::{
    api::{
        auth_flow::FlowErrorCode, ids::BrowserId, login_page::InspectedPage, profiles::ProfileRef,
    },
    control::{
        auth_connections::{
            flow::{InspectionContext, PageFailure, PageFindings},
            logins::{LoginPage, PageError, is_temporary, new_browser, profile_of},
            sites::ConnectionSites,
        },
        browsers::BrowserError,
        store::AuthConnectionRow,
    },
};

/// The longest time until a browser runs.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// The delay before a browser is requested again.
const START_RETRY_DELAY: Duration = Duration::from_secs(2);
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
        let browser = match timeout(START_TIMEOUT, self.start(connection, &profile)).await {
            Ok(Some(browser)) => browser,
            Ok(None) | Err(_) => return Finding::without_browser(),
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
        self.end(connection, &browser).await;
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

    /// Starts a browser with the profile, as soon as there is a host.
    async fn start(
        &self,
        connection: &AuthConnectionRow,
        profile: &ProfileRef,
    ) -> Option<BrowserId> {
        let browsers = &self.parts().browsers;
        loop {
            let new = new_browser(connection, profile.clone());
            match browsers.create(&connection.project_id, new, None).await {
                Ok(row) => return Some(row.id),
                Err(error) if is_temporary(&error) => {
                    tracing::debug!(connection = %connection.id, %error, "no browser for a health check yet");
                    sleep(START_RETRY_DELAY).await;
                }
                Err(error) => {
                    tracing::warn!(connection = %connection.id, %error, "no browser for a health check");
                    return None;
                }
            }
        }
    }

    async fn inspect(
        &self,
        connection: &AuthConnectionRow,
        browser: &BrowserId,
    ) -> Result<CheckResult, PageError> {
        let parts = self.parts();
        let project = &connection.project_id;
        let (browser, run) = loop {
            let browser = match parts.browsers.use_active(project, browser.as_str()).await {
                Ok(browser) => browser,
                Err(_) => return Err(PageError::BrowserLost),
            };
            if let Ok(run) = browser.lease().browser_run().await {
                break (browser, run);
            }
            sleep(START_RETRY_DELAY).await;
        };
        let page = LoginPage {
            browsers: &parts.browsers,
            project,
            browser,
            run,
            sites: ConnectionSites::of(connection),
            redacted: Vec::new(),
            allow_http: parts.filler.allows_http(),
        };
        let url = page_for_members(connection);
        page.open(&url).await?;
        let found = page.settled().await?;
        let known = (&*url, connection.health.expiry.as_ref());
        Ok(verdict(&found, &self.findings(connection, &found), known))
    }

    fn findings(
        &self,
        connection: &AuthConnectionRow,
        page: &InspectedPage,
    ) -> Result<PageFindings, PageFailure> {
        let sites = ConnectionSites::of(connection);
        let policy = &self.parts().policy;
        let context = InspectionContext {
            class_of: &|host| sites.origin_of(host),
            is_internal: &|address: IpAddr| !policy.permits(address),
            before: None,
            identifiers: &[],
        };
        PageFindings::from_inspection(page, context)
    }

    async fn save(
        &self,
        connection: &AuthConnectionRow,
        browser: &BrowserId,
        profile: &ProfileRef,
    ) {
        let browsers = &self.parts().browsers;
        let saving = browsers.close_and_save(&connection.project_id, browser, profile);
        if let Err(error) = saving.await {
            tracing::info!(connection = %connection.id, %error, "the profile of a health check is not saved");
        }
    }

    async fn end(&self, connection: &AuthConnectionRow, browser: &BrowserId) {
        let browsers = &self.parts().browsers;
        match browsers
            .delete(&connection.project_id, browser.as_str())
            .await
        {
            Ok(()) | Err(BrowserError::NotFound) => {}
            // It ends when it is idle.
            Err(error) => {
                tracing::warn!(%browser, %error, "cannot end the browser of a health check")
            }
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

//! The page in front of the browser of a login, through its agent.

use std::{
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use http::StatusCode;
use secrecy::SecretString;
use tokio::time::sleep;

use super::LoginParts;
use crate::{
    api::{
        ids::{BrowserId, ProjectId},
        login_page::{
            ElementPresence, InspectedChoice, InspectedPage, LoginActKind, PageState,
            RedactedValues,
        },
    },
    control::{
        auth_connections::{
            flow::{InspectionContext, PageFailure, PageFindings, PageMark, host_of},
            sites::ConnectionSites,
        },
        browsers::{BrowserError, BrowserHandle, Browsers},
        fleet::{AgentError, BrowserRun, LoginAct, LoginInspection},
        store::AuthConnectionRow,
    },
};

/// The wait of one inspection for the page to be at rest, in milliseconds.
const SETTLE_WAIT_MS: u32 = 3000;
/// The delay before a page is inspected again.
const POLL_INTERVAL: Duration = Duration::from_millis(150);
/// The delay before an agent is asked again that has not responded.
const RETRY_DELAY: Duration = Duration::from_millis(500);
/// The time in which a site shows a response. Then the page counts as it is.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(15);
/// The time after which a page that goes on changing counts as at rest.
const REST_TIMEOUT: Duration = Duration::from_secs(6);
/// The attempts to click an element. After them the page is inspected again.
const ACT_ATTEMPTS: usize = 3;

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
pub(in crate::control::auth_connections) enum PageError {
    #[error("the browser is lost")]
    BrowserLost,
}

/// The outcome of a click.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Click {
    /// The page may have got it.
    Clicked,
    /// The element is not there any more, or must not be clicked.
    Refused,
}

/// The page in front of a browser.
pub(in crate::control::auth_connections) struct LoginPage<'a> {
    pub(super) browsers: &'a Browsers,
    pub(super) project: &'a ProjectId,
    pub(super) browser: Arc<BrowserHandle>,
    /// The run of Chromium at the beginning of the login.
    pub(super) run: BrowserRun,
    pub(super) sites: ConnectionSites<'a>,
    /// Values that were entered. No text of a page contains them.
    pub(super) redacted: Vec<SecretString>,
    pub(super) allow_http: bool,
}

impl LoginParts {
    /// Returns the page in front of a connection's browser, once that responds. `run` is the run of
    /// Chromium at the beginning of the login, if it is known.
    pub(in crate::control::auth_connections) async fn page<'a>(
        &'a self,
        connection: &'a AuthConnectionRow,
        id: &BrowserId,
        run: Option<BrowserRun>,
        redacted: Vec<SecretString>,
    ) -> Result<LoginPage<'a>, PageError> {
        let project = &connection.project_id;
        let (browser, run) = loop {
            let browser = match self.browsers.use_active(project, id.as_str()).await {
                Ok(browser) => Some(browser),
                Err(BrowserError::NotFound) => return Err(PageError::BrowserLost),
                Err(_) => None,
            };
            if let Some(browser) = browser {
                let run = match run {
                    Some(run) => Some(run),
                    None => browser.lease().browser_run().await.ok(),
                };
                if let Some(run) = run {
                    break (browser, run);
                }
            }
            tracing::info!(browser = %id, "the browser of a login does not respond yet");
            sleep(RETRY_DELAY).await;
        };
        Ok(LoginPage {
            browsers: &self.browsers,
            project,
            browser,
            run,
            sites: ConnectionSites::of(connection),
            redacted,
            allow_http: self.filler.allows_http(),
        })
    }

    /// Returns the findings about a page of a connection's browser. `before` is the page with which
    /// it is compared, `identifiers` are the names of the account of the stored credential.
    pub(in crate::control::auth_connections) fn findings(
        &self,
        connection: &AuthConnectionRow,
        page: &InspectedPage,
        before: Option<&PageMark>,
        identifiers: &[&str],
    ) -> Result<PageFindings, PageFailure> {
        let sites = ConnectionSites::of(connection);
        PageFindings::from_inspection(
            page,
            InspectionContext {
                class_of: &|host| sites.origin_of(host),
                is_internal: &|address: IpAddr| !self.policy.permits(address),
                before,
                identifiers,
            },
        )
    }
}

impl LoginPage<'_> {
    /// Begins to open a page.
    pub(in crate::control::auth_connections) async fn open(
        &self,
        url: &str,
    ) -> Result<(), PageError> {
        let lease = self.browser.lease();
        self.repeat(|| lease.open_login(url)).await
    }

    /// Describes the page once it is at rest, or as it is after a while.
    pub(in crate::control::auth_connections) async fn settled(
        &self,
    ) -> Result<InspectedPage, PageError> {
        self.response_to(None).await
    }

    /// Describes the page once it is at rest and another than the one before. Returns it as it is
    /// if the site does not respond.
    pub(super) async fn response_to(
        &self,
        before: Option<&InspectedPage>,
    ) -> Result<InspectedPage, PageError> {
        let started = Instant::now();
        loop {
            let page = self.inspect(SETTLE_WAIT_MS).await?;
            let elapsed = started.elapsed();
            let is_at_rest = match page.state {
                PageState::Stable => true,
                PageState::Changing => elapsed >= REST_TIMEOUT,
                PageState::Navigating | PageState::Loading => false,
            };
            let has_responded = before.is_none_or(|before| !is_same_page(before, &page));
            if is_at_rest && (has_responded || elapsed >= RESPONSE_TIMEOUT) {
                return Ok(page);
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Describes the page.
    pub(super) async fn inspect(&self, wait_ms: u32) -> Result<InspectedPage, PageError> {
        let surplus = self.redacted.len().saturating_sub(RedactedValues::MAX);
        let inspection = LoginInspection {
            wait_ms,
            redact: self.redacted.get(surplus..).unwrap_or_default(),
        };
        let lease = self.browser.lease();
        let page = self.repeat(|| lease.inspect_login(&inspection)).await?;
        if !is_web_page(&page.url) {
            // After a crash Chromium shows an empty page.
            self.check_run().await?;
        }
        Ok(page)
    }

    /// Clicks an element of the page that was inspected last. `hosts` may be left for.
    pub(super) async fn click(
        &self,
        reference: &str,
        kind: LoginActKind,
        hosts: &[&str],
    ) -> Result<Click, PageError> {
        let mut allowed: Vec<String> = self.sites.allowed_domains.to_vec();
        for host in hosts {
            let is_new = !allowed.iter().any(|known| known == host);
            if is_new && self.sites.origin_of(host).is_permitted() {
                allowed.push((*host).to_owned());
            }
        }
        let act = LoginAct {
            reference,
            kind,
            domain: self.sites.domain,
            allowed_domains: &allowed,
            allow_http: self.allow_http,
        };
        for _ in 0..ACT_ATTEMPTS {
            match self.browser.lease().act_on_login(&act).await {
                Ok(_) => return Ok(Click::Clicked),
                Err(error) if error.may_follow_effects() => return Ok(Click::Clicked),
                Err(AgentError::Rejected {
                    status: StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT,
                    ..
                }) => {
                    self.check_active().await?;
                    sleep(RETRY_DELAY).await;
                }
                Err(error) => {
                    tracing::debug!(%error, "an element of a login page was not clicked");
                    return Ok(Click::Refused);
                }
            }
        }
        Ok(Click::Refused)
    }

    /// Returns the hosts of a choice's frame and of its target, if it is known.
    pub(super) fn hosts_of(choice: &InspectedChoice) -> Vec<String> {
        let origin = Some(host_of(&choice.origin));
        origin
            .into_iter()
            .chain(choice.target_host.clone())
            .collect()
    }

    /// Returns an error if Chromium was started again.
    pub(super) async fn check_run(&self) -> Result<(), PageError> {
        let lease = self.browser.lease();
        let run = self.repeat(|| lease.browser_run()).await?;
        match run.is_same(self.run) {
            true => Ok(()),
            false => Err(PageError::BrowserLost),
        }
    }

    /// Repeats a request to the agent that changes nothing until it responds.
    async fn repeat<T, F: Future<Output = Result<T, AgentError>>>(
        &self,
        request: impl Fn() -> F,
    ) -> Result<T, PageError> {
        loop {
            self.check_active().await?;
            match request().await {
                Ok(response) => return Ok(response),
                Err(error) => tracing::debug!(%error, "the browser of a login does not respond"),
            }
            sleep(RETRY_DELAY).await;
        }
    }

    /// Returns an error if the browser has ended. Otherwise the login is a use of it.
    async fn check_active(&self) -> Result<(), PageError> {
        let id = self.browser.id().as_str();
        match self.browsers.use_active(self.project, id).await {
            Err(BrowserError::NotFound) => Err(PageError::BrowserLost),
            _ => Ok(()),
        }
    }
}

/// Returns whether two descriptions are of a page that has not changed, but for the texts that a
/// person types.
pub(super) fn is_same_page(before: &InspectedPage, after: &InspectedPage) -> bool {
    comparable(before) == comparable(after)
}

/// Returns a page without what differs between two inspections of an unchanged one.
fn comparable(page: &InspectedPage) -> InspectedPage {
    let mut page = page.clone();
    page.state = PageState::Stable;
    page.addresses.clear();
    page.http_status = None;
    for field in &mut page.fields {
        field.has_value = false;
    }
    for choice in &mut page.choices {
        choice.reference.clear();
    }
    let elements = [
        &mut page.submit,
        &mut page.login_link,
        &mut page.consent,
        &mut page.skip,
    ];
    for element in elements.into_iter().flatten() {
        element.reference.clear();
    }
    if let Some(remember) = &mut page.remember {
        remember.reference.clear();
    }
    page
}

/// Returns whether a page has anything that a login is about.
pub(super) fn is_login_page(page: &InspectedPage) -> bool {
    let has_request = !page.fields.is_empty() || !page.choices.is_empty();
    let has_obstacle =
        page.captcha || page.passkey || page.push.is_some() || page.consent.is_some();
    has_request || has_obstacle || page.evidence.log_out == ElementPresence::Visible
}

fn is_web_page(url: &str) -> bool {
    url.starts_with("http:") || url.starts_with("https:")
}

/// Returns whether the page is one that values may be entered on.
pub(super) fn is_permitted(sites: &ConnectionSites<'_>, page: &InspectedPage) -> bool {
    sites.origin_of(&host_of(&page.url)).is_permitted()
}

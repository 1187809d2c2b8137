//! A connection to the tab in front, from one request to the next.

use std::{sync::LazyLock, time::Duration};

use futures::future::join_all;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout_at};
use url::Url;

use super::{
    FrontPage, LoginPageError, PermittedHosts,
    cookies::{describe, session_cookies},
    digest::DigestKey,
    displayed_url,
    merge::{FrameInspection, merge},
    redaction::redact,
};
use crate::{
    agent::credentials::{
        ascii::to_ascii,
        frames::{self, MAX_FRAMES},
        search::describe_origin,
    },
    api::login_page::{
        ActOnLoginRequest, InspectLoginRequest, InspectedPage, LoginActKind, LoginActOutcome,
        PageState,
    },
    system::cdp::{
        connection::{CdpError, CookieName},
        frame_scripts::{FrameScript, ScriptCallError, ScriptSource},
        main_document::MainDocument,
    },
};

/// The script, which has an object of calls as its value. It is kept in the global of its world, so
/// that a later inspection of the document finds the elements of the one before.
const SOURCE: &str = concat!(
    "Object.hasOwn(globalThis, 'berthLoginPage') || Object.defineProperty(globalThis, 'berthLoginPage', { value: (() => {\n",
    include_str!("../page/words.js"),
    include_str!("../page/login/words.js"),
    include_str!("../page/dom.js"),
    include_str!("../page/origin.js"),
    include_str!("../page/forms.js"),
    include_str!("../page/match.js"),
    include_str!("../page/login/tree.js"),
    include_str!("../page/login/texts.js"),
    include_str!("../page/login/controls.js"),
    include_str!("../page/login/survey.js"),
    include_str!("../page/login/groups.js"),
    include_str!("../page/login/selectors.js"),
    include_str!("../page/login/fields.js"),
    include_str!("../page/login/submit.js"),
    include_str!("../page/login/password_change.js"),
    include_str!("../page/login/code.js"),
    include_str!("../page/login/push.js"),
    include_str!("../page/login/email_link.js"),
    include_str!("../page/login/captcha.js"),
    include_str!("../page/login/passkey.js"),
    include_str!("../page/login/consent.js"),
    include_str!("../page/login/remember.js"),
    include_str!("../page/login/site_error.js"),
    include_str!("../page/login/signed_in.js"),
    include_str!("../page/login/accounts.js"),
    include_str!("../page/login/methods.js"),
    include_str!("../page/login/providers.js"),
    include_str!("../page/login/offer.js"),
    include_str!("../page/login/registry.js"),
    include_str!("../page/login/settle.js"),
    include_str!("../page/login/act.js"),
    include_str!("../page/login/inspector.js"),
    "\nreturn loginPage;\n})() });\nglobalThis.berthLoginPage"
);
/// The script as it is sent. A text with other characters would have two bytes for each.
static ASCII_SOURCE: LazyLock<String> = LazyLock::new(|| to_ascii(SOURCE));
/// The isolated world of the script: a page cannot change its globals.
const WORLD: &str = "berth-login-pages";
const DEFAULT_WAIT_MS: u32 = 3000;
const DEFAULT_QUIET_MS: u32 = 250;
/// The longest wait in a document before it is compared with the one that the tab shows.
const SETTLE_STEP: Duration = Duration::from_secs(2);
/// The interval at which the beginning and the end of a navigation are polled.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The attempts to inspect a page that navigates meanwhile.
const MAX_ATTEMPTS: usize = 3;

/// The frame of an element, and the policy for it.
pub(super) struct FoundFrame {
    index: usize,
    policy: PermittedHosts,
}

/// The result of the script's `settle`.
#[derive(Debug, Clone, Copy, Deserialize)]
struct Settled {
    loaded: bool,
    quiet: bool,
}

/// The findings in the frames of one document.
struct DocumentInspection {
    document: MainDocument,
    state: PageState,
    /// The findings of the frames that a user sees.
    findings: Vec<FrameInspection>,
    scripts: Vec<FrameScript>,
    tokens: Vec<String>,
}

fn source() -> ScriptSource<'static> {
    ScriptSource {
        text: &ASCII_SOURCE,
        // An element of the page with this id is no own property.
        earlier: Some("Object.hasOwn(globalThis, 'berthLoginPage') ? berthLoginPage : undefined"),
    }
}

pub(super) struct Watch {
    pub(super) page: FrontPage,
    /// The document of the last inspection.
    document: MainDocument,
    /// Its frames, the page's own first.
    scripts: Vec<FrameScript>,
    /// The starts of the references of their elements.
    tokens: Vec<String>,
}

impl Watch {
    /// Watches a page.
    pub(super) async fn start(page: FrontPage) -> Result<Self, LoginPageError> {
        page.session.observe_documents().await?;
        Ok(Self {
            page,
            document: MainDocument::default(),
            scripts: Vec::new(),
            tokens: Vec::new(),
        })
    }

    /// Waits for the page and describes it.
    pub(super) async fn inspect(
        &mut self,
        request: &InspectLoginRequest,
        digests: &DigestKey,
    ) -> Result<InspectedPage, LoginPageError> {
        self.scripts.clear();
        self.tokens.clear();
        let (state, findings) = match self.inspect_in_time(request).await? {
            None => (PageState::Navigating, Vec::new()),
            Some(found) => {
                self.document = found.document;
                (self.scripts, self.tokens) = (found.scripts, found.tokens);
                (found.state, found.findings)
            }
        };
        let cookies = self.page.session.cookie_names().await?;
        let url = &self.document.url;
        let mut page = merge(&self.document, state, findings);
        page.url_digest = digests.digest([&**url]);
        let own = session_cookies(cookies, &host_of(url));
        let parts = own.iter().flat_map(CookieName::parts);
        page.evidence.cookies = digests.digest(parts);
        page.evidence.session_cookies = describe(&own);
        if let Some(values) = &request.redact {
            redact(&mut page, values.as_slice());
        }
        Ok(page)
    }

    /// Inspects the document that the tab shows once it is at rest, or after the time of the
    /// request. Returns `None` if the tab is waiting for another one by then.
    async fn inspect_in_time(
        &self,
        request: &InspectLoginRequest,
    ) -> Result<Option<DocumentInspection>, LoginPageError> {
        let wait = request.wait_ms.map_or(DEFAULT_WAIT_MS, |wait| wait.get());
        let quiet = request
            .quiet_ms
            .map_or(DEFAULT_QUIET_MS, |quiet| quiet.get());
        let deadline = Instant::now() + Duration::from_millis(wait.into());
        let mut attempts = 1;
        loop {
            tokio::select! {
                biased;
                inspected = self.inspect_document(quiet, deadline) => match inspected {
                    Err(LoginPageError::PageChanged) if attempts < MAX_ATTEMPTS => attempts += 1,
                    result => return result.map(Some),
                },
                () = self.poll_navigation(true) => {
                    let ended = timeout_at(deadline, self.poll_navigation(false)).await;
                    if ended.is_err() || Instant::now() >= deadline {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Waits until the tab waits for another document, or does not.
    async fn poll_navigation(&self, is_navigating: bool) {
        while self.page.session.is_navigating() != is_navigating {
            sleep(POLL_INTERVAL).await;
        }
    }

    async fn inspect_document(
        &self,
        quiet: u32,
        deadline: Instant,
    ) -> Result<DocumentInspection, LoginPageError> {
        let state = self.settle(quiet, deadline).await?;
        self.inspect_frames(state).await
    }

    /// Waits until the document is loaded and does not change.
    async fn settle(&self, quiet: u32, deadline: Instant) -> Result<PageState, LoginPageError> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let state = self.settle_document(quiet, left.min(SETTLE_STEP)).await?;
            match state {
                Some(PageState::Stable) => return Ok(PageState::Stable),
                state if Instant::now() >= deadline => {
                    return Ok(state.unwrap_or(PageState::Loading));
                }
                Some(_) => {}
                None => sleep(POLL_INTERVAL).await,
            }
        }
    }

    /// Returns the state of the document, or `None` if it was replaced meanwhile.
    async fn settle_document(
        &self,
        quiet: u32,
        wait: Duration,
    ) -> Result<Option<PageState>, LoginPageError> {
        let session = &self.page.session;
        let before = session.main_document().await?;
        let scripts = session.frame_scripts(WORLD, source(), 1, &|_| true).await;
        let Ok(Some(script)) = scripts.map(|scripts| scripts.into_iter().next()) else {
            return Ok(None);
        };
        let wait = u32::try_from(wait.as_millis()).unwrap_or_default();
        let call = session.await_script(&script, "settle", [quiet, wait]);
        let settled = call.await.ok();
        let settled = settled.and_then(|settled| serde_json::from_value(settled).ok());
        let after = session.main_document().await?;
        let settled: Option<Settled> = settled.filter(|_| after.id == before.id);
        Ok(settled.map(|settled| match settled {
            Settled { loaded: false, .. } => PageState::Loading,
            Settled { quiet: false, .. } => PageState::Changing,
            Settled { .. } => PageState::Stable,
        }))
    }

    /// Inspects all frames of one document. Those that a user does not see have no findings.
    async fn inspect_frames(&self, state: PageState) -> Result<DocumentInspection, LoginPageError> {
        let session = &self.page.session;
        let document = session.main_document().await?;
        let scripts = session.frame_scripts(WORLD, source(), MAX_FRAMES, &|_| true);
        let scripts = scripts.await;
        let scripts = scripts.map_err(script_error)?;
        let mut inspections = self.inspect_all(&scripts).await?;
        let mut found = inspections.iter().flatten();
        if !found.any(FrameInspection::has_fields) {
            let adopted = scripts.iter();
            let adopted = adopted.map(|script| frames::adopt_closed_trees(&self.page, script));
            if join_all(adopted).await.contains(&true) {
                inspections = self.inspect_all(&scripts).await?;
            }
        }
        let (mut findings, mut tokens) = (Vec::new(), Vec::new());
        for (index, inspection) in inspections.into_iter().enumerate() {
            let token = inspection.as_ref().map(|one| one.token.clone());
            tokens.push(token.unwrap_or_default());
            let Some(found) = inspection.filter(|found| index == 0 || !found.is_empty()) else {
                continue;
            };
            if frames::is_drawn(&self.page, &scripts, index).await {
                findings.push(found);
            }
        }
        if session.main_document().await?.id != document.id {
            return Err(LoginPageError::PageChanged);
        }
        Ok(DocumentInspection {
            document,
            state,
            findings,
            scripts,
            tokens,
        })
    }

    /// Calls `inspect` in all frames. Frames other than the page's own come and go.
    async fn inspect_all(
        &self,
        scripts: &[FrameScript],
    ) -> Result<Vec<Option<FrameInspection>>, LoginPageError> {
        let session = &self.page.session;
        let calls = scripts
            .iter()
            .map(|script| script.in_time(session.call_script(script, "inspect", [(); 0])));
        let results = join_all(calls).await;
        let mut inspections = Vec::new();
        for (index, result) in results.into_iter().enumerate() {
            let inspection = result.map_err(script_error).and_then(to_inspection);
            inspections.push(match inspection {
                Ok(inspection) => Some(inspection),
                Err(error) if index == 0 => return Err(error),
                Err(_) => None,
            });
        }
        Ok(inspections)
    }

    /// Finds the frame of an element, if it may be clicked.
    pub(super) async fn find(
        &self,
        request: &ActOnLoginRequest,
    ) -> Result<FoundFrame, LoginPageError> {
        tokio::select! {
            biased;
            found = self.find_frame(request) => found,
            () = self.poll_navigation(true) => Err(LoginPageError::PageChanged),
        }
    }

    async fn find_frame(&self, request: &ActOnLoginRequest) -> Result<FoundFrame, LoginPageError> {
        let reference = request.reference.as_str();
        let token = reference.split_once('-').map_or("", |(token, _)| token);
        let mut tokens = self.tokens.iter();
        let index = tokens.position(|known| !token.is_empty() && known == token);
        let index = index.ok_or(LoginPageError::PageChanged)?;
        let policy = policy_of(request);
        // A banner may be of another site.
        let checked = match request.kind {
            LoginActKind::Dismiss => 0,
            LoginActKind::Click | LoginActKind::Check => index,
        };
        for script in [&self.scripts[0], &self.scripts[checked]] {
            if !policy.permits(&script.url) {
                return Err(LoginPageError::OriginRefused(describe_origin(&script.url)));
            }
        }
        let session = &self.page.session;
        if !session.is_current(&self.scripts[index]).await? {
            return Err(LoginPageError::PageChanged);
        }
        match frames::is_drawn(&self.page, &self.scripts, index).await {
            true => Ok(FoundFrame { index, policy }),
            false => Err(LoginPageError::NotClickable("in a frame that is not shown")),
        }
    }

    /// Clicks an element. An error is about one that was not clicked.
    pub(super) async fn act(
        &self,
        found: &FoundFrame,
        request: &ActOnLoginRequest,
    ) -> Result<LoginActOutcome, LoginPageError> {
        let session = &self.page.session;
        let script = &self.scripts[found.index];
        let arguments = (request.reference.as_str(), request.kind, &found.policy);
        let acted = match request.kind {
            // A banner opens no window.
            LoginActKind::Dismiss => session.call_script(script, "act", arguments).await,
            LoginActKind::Click | LoginActKind::Check => {
                session.call_script_as_user(script, "act", arguments).await
            }
        };
        match acted {
            Ok(outcome) => to_outcome(&outcome, &script.url),
            Err(ScriptCallError::Gone) => Err(LoginPageError::PageChanged),
            Err(ScriptCallError::Unknown(error)) => {
                tracing::warn!(%error, "the outcome of a click is unknown");
                Ok(LoginActOutcome::Unknown)
            }
        }
    }

    /// Returns the address of the page when it was inspected.
    pub(super) fn page_url(&self) -> String {
        let own = self.scripts.first();
        displayed_url(own.map_or("", |script| script.url.as_str()))
    }
}

/// Returns the host of an address. Empty for one without a host.
fn host_of(url: &str) -> String {
    let url = Url::parse(url).ok();
    let host = url.as_ref().and_then(Url::host_str);
    host.unwrap_or_default().to_owned()
}

/// Reads the result of the script's `inspect`.
fn to_inspection(value: Value) -> Result<FrameInspection, LoginPageError> {
    serde_json::from_value(value).map_err(|_| {
        // The cause may contain a text of the page.
        let error = CdpError::InvalidReply {
            method: "inspect".to_owned(),
            message: "invalid findings".to_owned(),
        };
        error.into()
    })
}

fn script_error(error: ScriptCallError) -> LoginPageError {
    match error {
        ScriptCallError::Gone => LoginPageError::PageChanged,
        ScriptCallError::Unknown(error) => navigation_error(error),
    }
}

/// Returns the error about a command that Chromium refused, which is that the document is gone. An
/// exception of the script is not.
fn navigation_error(error: CdpError) -> LoginPageError {
    match error {
        CdpError::Failed { method, .. } if method.contains('.') => LoginPageError::PageChanged,
        error => error.into(),
    }
}

fn policy_of(request: &ActOnLoginRequest) -> PermittedHosts {
    let allowed = request.allowed_domains.as_ref();
    let allowed = allowed.map_or(&[][..], |domains| domains.as_slice());
    let allow_http = request.allow_http.unwrap_or_default();
    PermittedHosts::new(&request.domain, allowed, allow_http)
}

/// Returns the outcome that the script has reported.
fn to_outcome(outcome: &Value, url: &str) -> Result<LoginActOutcome, LoginPageError> {
    Err(match outcome.as_str().unwrap_or_default() {
        "clicked" => return Ok(LoginActOutcome::Clicked),
        "unchanged" => return Ok(LoginActOutcome::Unchanged),
        "gone" => LoginPageError::PageChanged,
        "wrong_kind" => LoginPageError::WrongKind,
        "refused_origin" => LoginPageError::OriginRefused(describe_origin(url)),
        "refused_target" => LoginPageError::TargetRefused,
        "hidden" => LoginPageError::NotClickable("hidden"),
        "disabled" => LoginPageError::NotClickable("disabled"),
        "covered" => LoginPageError::NotClickable("covered by another element"),
        _ => return Ok(LoginActOutcome::Unknown),
    })
}

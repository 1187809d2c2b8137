//! Login pages: describes what the page in front asks for, and clicks its elements.
//!
//! ```text
//! LoginPages::inspect ──► Watch: settle ──► scripts in all frames ──inspect──► findings ─► merge
//! LoginPages::act     ──► Watch: frame of the reference ──act (one turn of JavaScript)──► click
//! ```
//!
//! A [`Watch`] is a connection to the tab in front that stays from one request to the next, so that
//! the network of its documents is observed, and their scripts keep the elements that they have
//! returned.
//!
//! | file | job |
//! |---|---|
//! | `watch` | the connection: waiting, inspecting, clicking |
//! | `merge` | one description of the findings in all frames |
//! | `cookies` | the cookies that show a login |
//! | `digest` | comparing texts that may be secret |
//! | `redaction` | removing values from texts |
//! | `../page/login/*.js` | the rules, each in a file, over one view of the page (`survey.js`) |

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use parking_lot::Mutex as SyncMutex;
use tokio::{
    sync::Mutex,
    time::{Instant, sleep, timeout_at},
};
use tokio_util::task::AbortOnDropHandle;

use super::{PermittedHosts, without_secrets};
use crate::{
    agent::chromium::{
        Chromium, NotReady,
        front::{FrontError, FrontPage},
    },
    api::login_page::{
        ActOnLoginRequest, InspectLoginRequest, InspectedPage, LoginActOutcome, LoginActResponse,
    },
    system::cdp::connection::CdpError,
};

mod cookies;
mod digest;
mod merge;
mod redaction;
mod watch;

use digest::DigestKey;
use watch::{FoundFrame, Watch};

/// The longest time of an inspection or a click.
pub const LOGIN_PAGE_TIMEOUT: Duration = Duration::from_secs(10);
/// The time without a request after which the page is not watched any more. A person may take ten
/// minutes to provide a code.
const WATCH_TIMEOUT: Duration = Duration::from_secs(15 * 60);

/// The most characters of the URL of a page that are returned.
const MAX_URL: usize = 2048;

/// Why a page was not inspected, or an element not clicked.
#[derive(Debug, thiserror::Error)]
pub enum LoginPageError {
    #[error("the page changed since it was inspected")]
    PageChanged,
    #[error("does not fit the element")]
    WrongKind,
    #[error("the origin of the page is not permitted: {0}")]
    OriginRefused(String),
    #[error("the element leads to an origin that is not permitted")]
    TargetRefused,
    #[error("the element cannot be clicked: it is {0}")]
    NotClickable(&'static str),
    #[error("the page did not respond in time; nothing was clicked")]
    Timeout,
    #[error(transparent)]
    Front(#[from] FrontError),
}

impl From<CdpError> for LoginPageError {
    fn from(error: CdpError) -> Self {
        match error {
            CdpError::Timeout { .. } => Self::Timeout,
            error => Self::Front(error.into()),
        }
    }
}

/// The watch between two requests, and the task that ends it.
struct Waiting {
    watch: Watch,
    _expiry: AbortOnDropHandle<()>,
}

/// Inspects the page in front and clicks its elements, one request at a time. Clones share the
/// queue and the watch.
#[derive(Clone)]
pub struct LoginPages {
    chromium: Chromium,
    queue: Arc<Mutex<()>>,
    waiting: Arc<SyncMutex<Option<Waiting>>>,
    digests: Arc<DigestKey>,
}

impl LoginPages {
    pub fn new(chromium: Chromium) -> Self {
        Self {
            chromium,
            queue: Arc::default(),
            waiting: Arc::default(),
            digests: Arc::new(DigestKey::random()),
        }
    }

    /// Describes the page in front.
    pub async fn inspect(
        &self,
        request: &InspectLoginRequest,
    ) -> Result<InspectedPage, LoginPageError> {
        let deadline = Instant::now() + LOGIN_PAGE_TIMEOUT;
        let start = async {
            let turn = self.queue.lock().await;
            Ok::<_, LoginPageError>((turn, self.watch_front().await?))
        };
        let started = timeout_at(deadline, start).await;
        let (_turn, mut watch) = started.map_err(|_| self.timeout_error())??;
        let inspected = timeout_at(deadline, watch.inspect(request, &self.digests)).await;
        // Also after a page that hangs, but not after the end of the connection.
        if !matches!(inspected, Ok(Err(LoginPageError::Front(_)))) {
            self.keep(watch);
        }
        inspected.map_err(|_| self.timeout_error())?
    }

    /// Begins to open a page in the tab in front.
    pub async fn open(&self, url: &str) -> Result<(), LoginPageError> {
        let deadline = Instant::now() + LOGIN_PAGE_TIMEOUT;
        let opened = timeout_at(deadline, async {
            let turn = self.queue.lock().await;
            let watch = self.watch_front().await?;
            let opened = watch.page.session.begin_navigation(url).await;
            self.keep(watch);
            drop(turn);
            Ok(opened?)
        });
        opened.await.map_err(|_| self.timeout_error())?
    }

    /// Clicks an element that the last inspection has returned.
    pub async fn act(
        &self,
        request: &ActOnLoginRequest,
    ) -> Result<LoginActResponse, LoginPageError> {
        let deadline = Instant::now() + LOGIN_PAGE_TIMEOUT;
        let turn = timeout_at(deadline, self.queue.lock()).await;
        let _turn = turn.map_err(|_| self.timeout_error())?;
        let waiting = self.waiting.lock().take();
        let Waiting { watch, .. } = waiting.ok_or(LoginPageError::PageChanged)?;
        let found = timeout_at(deadline, self.find(&watch, request)).await;
        let acted = match found {
            Err(_) => Err(self.timeout_error()),
            Ok(Err(error)) => Err(error),
            Ok(Ok(found)) => {
                let url = watch.page_url();
                // From here on the page may get the click.
                let outcome = timeout_at(deadline, watch.act(&found, request)).await;
                let outcome = outcome.unwrap_or(Ok(LoginActOutcome::Unknown));
                outcome.map(|outcome| LoginActResponse { outcome, url })
            }
        };
        self.keep(watch);
        acted
    }

    /// Finds the frame of an element of the page in front.
    async fn find(
        &self,
        watch: &Watch,
        request: &ActOnLoginRequest,
    ) -> Result<FoundFrame, LoginPageError> {
        match self.chromium.is_in_front(&watch.page).await? {
            true => watch.find(request).await,
            false => Err(LoginPageError::PageChanged),
        }
    }

    /// Returns the watch of the tab in front.
    async fn watch_front(&self) -> Result<Watch, LoginPageError> {
        let waiting = self.waiting.lock().take();
        if let Some(Waiting { watch, .. }) = waiting
            && self.chromium.is_in_front(&watch.page).await?
        {
            return Ok(watch);
        }
        Watch::start(self.chromium.front_page().await?).await
    }

    /// Keeps the watch for the next request, until it expires.
    fn keep(&self, watch: Watch) {
        let expiry = tokio::spawn(end_watch(Arc::downgrade(&self.waiting)));
        *self.waiting.lock() = Some(Waiting {
            watch,
            _expiry: AbortOnDropHandle::new(expiry),
        });
    }

    fn timeout_error(&self) -> LoginPageError {
        match self.chromium.current().devtools() {
            Some(_) => LoginPageError::Timeout,
            None => FrontError::NotReady(NotReady::Timeout(LOGIN_PAGE_TIMEOUT)).into(),
        }
    }
}

/// Returns a URL without its secret parts, and of a bounded length.
fn displayed_url(url: &str) -> String {
    without_secrets(url).chars().take(MAX_URL).collect()
}

/// Ends the watch, unless a request takes it before.
async fn end_watch(waiting: Weak<SyncMutex<Option<Waiting>>>) {
    sleep(WATCH_TIMEOUT).await;
    if let Some(waiting) = waiting.upgrade() {
        waiting.lock().take();
    }
}

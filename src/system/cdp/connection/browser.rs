//! The agent's commands to Chromium.

use std::{
    collections::BTreeSet,
    future::Future,
    iter,
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use chromiumoxide::cdp::{
    browser_protocol::{
        browser::{
            Bounds, CancelDownloadParams, CloseParams, GetVersionParams, GetWindowBoundsParams,
            GetWindowForTargetParams, SetDownloadBehaviorBehavior, SetDownloadBehaviorParams,
            SetWindowBoundsParams, WindowId, WindowState,
        },
        network::{CookieParam, LoaderId, TimeSinceEpoch},
        page::{
            BringToFrontParams, GetFrameTreeParams, NavigateParams, StartScreencastParams,
            StopScreencastParams,
        },
        storage::{GetCookiesParams, SetCookiesParams},
        system_info::GetProcessInfoParams,
        target::{
            ActivateTargetParams, AttachToTargetParams, CloseTargetParams,
            CreateBrowserContextParams, CreateTargetParams, DetachFromTargetParams,
            GetTargetsParams, SessionId, TargetId, TargetInfo,
        },
    },
    js_protocol::runtime::EvaluateParams,
};
use futures::future::join_all;
use serde_json::json;
use tokio::time;

use super::{Cdp, CdpError};
use crate::system::{
    cdp::tab::Tab,
    profile::{FLUSH_DOMAIN, database::CookieId},
};

/// Chromium's version.
#[derive(Clone, Debug)]
pub struct BrowserVersion {
    /// The product and version, such as `Chrome/156.0.8078.79`.
    pub product: String,
    pub protocol: String,
    /// The revision of Chromium, with an `@` before it.
    pub revision: String,
    pub user_agent: String,
    pub v8: String,
}

/// A tab, worker or other part of the browser that a client can attach to.
#[derive(Clone, Debug)]
pub struct Target {
    pub id: String,
    /// `page` for a tab.
    pub kind: String,
    pub title: String,
    pub url: String,
}

impl Target {
    /// Returns the tab, unless it is another kind of target.
    pub fn as_tab(&self) -> Option<Tab> {
        (self.kind == "page").then(|| Tab {
            id: self.id.clone(),
            url: self.url.clone(),
        })
    }
}

/// A cookie without its value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CookieName {
    /// With a dot before it if subdomains get the cookie too.
    pub domain: String,
    pub path: String,
    pub name: String,
    /// Whether scripts of the page cannot read it.
    pub is_http_only: bool,
    /// Milliseconds since 1970. `None` for one that ends with the browser.
    pub expires_at_ms: Option<i64>,
}

impl CookieName {
    /// Returns the parts that identify it.
    #[must_use]
    pub fn parts(&self) -> [&str; 3] {
        [&self.domain, &self.path, &self.name]
    }
}

/// The longest time for a window to get its size, and the interval at which it is set.
const RESIZE_TIMEOUT: Duration = Duration::from_secs(5);
const RESIZE_INTERVAL: Duration = Duration::from_millis(25);
/// The interval at which the state of a tab is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

impl Cdp {
    /// Closes Chromium, which writes the profile to disk.
    pub async fn close_browser(&self) -> Result<(), CdpError> {
        self.call(CloseParams::default(), None).await.map(drop)
    }

    /// Returns Chromium's version.
    pub async fn version(&self) -> Result<BrowserVersion, CdpError> {
        let version = self.call(GetVersionParams::default(), None).await?;
        Ok(BrowserVersion {
            product: version.product.clone(),
            protocol: version.protocol_version.clone(),
            revision: version.revision.clone(),
            user_agent: version.user_agent.clone(),
            v8: version.js_version.clone(),
        })
    }

    /// Returns the tabs and other targets, in no particular order.
    pub async fn targets(&self) -> Result<Vec<Target>, CdpError> {
        self.filtered_targets(GetTargetsParams::default()).await
    }

    async fn filtered_targets(&self, params: GetTargetsParams) -> Result<Vec<Target>, CdpError> {
        let targets = self.call(params, None).await?;
        let target = |target: TargetInfo| Target {
            id: target.target_id.inner().clone(),
            kind: target.r#type,
            title: target.title,
            url: target.url,
        };
        Ok(targets.target_infos.into_iter().map(target).collect())
    }

    /// Returns the tabs, in no particular order.
    pub async fn tabs(&self) -> Result<Vec<Tab>, CdpError> {
        // Frames can be many, with long addresses.
        let pages = json!({ "filter": [{ "type": "page" }] });
        let params = serde_json::from_value(pages).unwrap_or_default();
        let targets = self.filtered_targets(params).await?;
        Ok(targets.iter().filter_map(Target::as_tab).collect())
    }

    /// Returns for each tab whether it is visible: selected in its window. Chromium answers by
    /// itself, also for a tab that hangs. A tab that has been closed is not visible. The sessions
    /// with the tabs end with this connection.
    pub async fn are_visible(&self, tabs: &[Tab]) -> Vec<bool> {
        join_all(tabs.iter().map(|tab| self.is_visible(tab))).await
    }

    async fn is_visible(&self, tab: &Tab) -> bool {
        let Ok(session) = self.attach_session(tab).await else {
            return false;
        };
        // A screencast starts with an event about the visibility. It is stopped before its first
        // frame.
        let start = StartScreencastParams::builder()
            .max_width(1)
            .max_height(1)
            .every_nth_frame(i64::from(i32::MAX))
            .build();
        let started = self.send(start, Some(session.clone())).await;
        let stop = StopScreencastParams::default();
        let stopped = self.send(stop, Some(session.clone())).await;
        if let (Ok(_), Ok(mut stopped)) = (started, stopped) {
            let _ = stopped.reply().await;
        }
        let is_visible = self.observed.lock().visibility.remove(session.inner());
        is_visible.unwrap_or(false)
    }

    /// Opens a tab.
    pub async fn open_tab(&self, url: &str) -> Result<Tab, CdpError> {
        let created = self.call(CreateTargetParams::new(url), None).await?;
        Ok(Tab {
            id: created.target_id.inner().clone(),
            url: url.to_owned(),
        })
    }

    /// Closes a tab without asking its page.
    pub async fn close_tab(&self, tab: &Tab) -> Result<(), CdpError> {
        let params = CloseTargetParams::new(TargetId::new(tab.id.clone()));
        self.call(params, None).await.map(drop)
    }

    /// Returns the ids of the processes that run pages, or are about to.
    pub async fn renderer_processes(&self) -> Result<BTreeSet<i64>, CdpError> {
        let found = self.call(GetProcessInfoParams::default(), None).await?;
        let renderers = found.process_info.into_iter();
        let renderers = renderers.filter(|process| process.r#type == "renderer");
        Ok(renderers.map(|process| process.id).collect())
    }

    /// Brings a tab to the front.
    pub async fn activate(&self, tab: &Tab) -> Result<(), CdpError> {
        let params = ActivateTargetParams::new(TargetId::new(tab.id.clone()));
        self.call(params, None).await.map(drop)
    }

    /// Navigates a tab, and waits for the new document, at most for `max_wait`. A navigation that
    /// takes longer continues by itself. An error page of Chromium is no error.
    pub async fn navigate(&self, tab: &Tab, url: &str, max_wait: Duration) -> Result<(), CdpError> {
        let session = self.attach_session(tab).await?;
        let navigated = self.navigate_session(&session, url, max_wait).await;
        self.detach(session).await?;
        navigated
    }

    /// Brings a tab to the front, moves the focus from the address bar to the page, and waits until
    /// the page has the keyboard focus.
    pub async fn focus(&self, tab: &Tab) -> Result<(), CdpError> {
        let session = self.attach_session(tab).await?;
        let focused = self.focus_session(&session).await;
        self.detach(session).await?;
        focused
    }

    async fn focus_session(&self, session: &SessionId) -> Result<(), CdpError> {
        let bring = BringToFrontParams::default();
        self.call(bring, Some(session.clone())).await?;
        let has_focus = || {
            let evaluate = EvaluateParams::new("document.hasFocus()");
            self.call(evaluate, Some(session.clone()))
        };
        let focused = async {
            while has_focus().await?.result.value != Some(true.into()) {
                time::sleep(POLL_INTERVAL).await;
            }
            Ok(())
        };
        self.with_timeout(BringToFrontParams::IDENTIFIER, focused)
            .await
    }

    /// Applies the timeout of this connection to a sequence of calls.
    async fn with_timeout<T>(
        &self,
        method: &str,
        calls: impl Future<Output = Result<T, CdpError>>,
    ) -> Result<T, CdpError> {
        let result = time::timeout(self.call_timeout, calls).await;
        result.map_err(|_| CdpError::Timeout {
            method: method.into(),
            after: self.call_timeout,
        })?
    }

    /// Attaches to a tab.
    pub(in crate::system::cdp) async fn attach_session(
        &self,
        tab: &Tab,
    ) -> Result<SessionId, CdpError> {
        let attach = AttachToTargetParams {
            target_id: TargetId::new(tab.id.clone()),
            flatten: Some(true),
        };
        Ok(self.call(attach, None).await?.session_id.clone())
    }

    async fn detach(&self, session: SessionId) -> Result<(), CdpError> {
        let detach = DetachFromTargetParams::builder()
            .session_id(session)
            .build();
        self.call(detach, None).await.map(drop)
    }

    async fn navigate_session(
        &self,
        session: &SessionId,
        url: &str,
        max_wait: Duration,
    ) -> Result<(), CdpError> {
        // This fails if the page is busy, which does not prevent the navigation.
        let old = self.document(session).await.ok();
        let navigation = async {
            let navigate = NavigateParams::new(url);
            let navigated = self.call(navigate, Some(session.clone())).await?;
            let replaces = navigated.loader_id.is_some() && navigated.error_text.is_none();
            // Chromium replies when it has the head of the new page. The old document remains for
            // some milliseconds.
            while replaces && Some(self.document(session).await?) == old {
                time::sleep(POLL_INTERVAL).await;
            }
            Ok(())
        };
        let navigated = time::timeout(max_wait, navigation).await;
        navigated.unwrap_or(Ok(()))
    }

    /// Returns the id of the document that a tab shows.
    async fn document(&self, session: &SessionId) -> Result<LoaderId, CdpError> {
        let tree = self
            .call(GetFrameTreeParams::default(), Some(session.clone()))
            .await?;
        Ok(tree.frame_tree.frame.loader_id.clone())
    }

    /// Resizes the windows of all tabs to a screen of this size.
    pub async fn fill_screen(&self, width: u32, height: u32) -> Result<(), CdpError> {
        let mut resized: Vec<WindowId> = Vec::new();
        for tab in self.tabs().await? {
            let get_window = GetWindowForTargetParams::builder()
                .target_id(TargetId::new(tab.id))
                .build();
            // The tab may have been closed meanwhile.
            let Ok(window) = self.call(get_window, None).await else {
                continue;
            };
            if resized.contains(&window.window_id) {
                continue;
            }
            if window.bounds.window_state != Some(WindowState::Normal) {
                let normal = Bounds::builder().window_state(WindowState::Normal).build();
                self.call(SetWindowBoundsParams::new(window.window_id, normal), None)
                    .await?;
            }
            let bounds = Bounds::builder()
                .left(0)
                .top(0)
                .width(i64::from(width))
                .height(i64::from(height))
                .build();
            self.set_bounds(window.window_id, bounds).await?;
            resized.push(window.window_id);
        }
        Ok(())
    }

    /// Sets the bounds of a window until it is large enough: Chromium may still take the screen for
    /// smaller than it is. A larger window has its smallest size.
    async fn set_bounds(&self, window: WindowId, bounds: Bounds) -> Result<(), CdpError> {
        let deadline = time::Instant::now() + RESIZE_TIMEOUT;
        loop {
            let set = SetWindowBoundsParams::new(window, bounds.clone());
            self.call(set, None).await?;
            let current = self.call(GetWindowBoundsParams::new(window), None).await?;
            let is_large_enough =
                current.bounds.width >= bounds.width && current.bounds.height >= bounds.height;
            if is_large_enough || time::Instant::now() >= deadline {
                return Ok(());
            }
            time::sleep(RESIZE_INTERVAL).await;
        }
    }

    /// Makes Chromium save downloads in this directory, each under its guid, while this connection
    /// is open.
    pub async fn save_downloads_in(&self, directory: &Path) -> Result<(), CdpError> {
        let mut params = SetDownloadBehaviorParams::new(SetDownloadBehaviorBehavior::AllowAndName);
        params.download_path = Some(directory.to_string_lossy().into_owned());
        self.call(params, None).await.map(drop)
    }

    /// Cancels a download. Fails if it is complete.
    pub async fn cancel_download(&self, guid: &str) -> Result<(), CdpError> {
        let params = CancelDownloadParams::new(guid);
        self.call(params, None).await.map(drop)
    }

    /// Creates a browser context besides the default one, and returns its id.
    pub async fn create_context(&self) -> Result<String, CdpError> {
        let created = self
            .call(CreateBrowserContextParams::default(), None)
            .await?;
        Ok(String::from(created.browser_context_id))
    }

    /// Returns the cookies of the default browser context.
    pub async fn cookie_ids(&self) -> Result<BTreeSet<CookieId>, CdpError> {
        let found = self.call(GetCookiesParams::default(), None).await?;
        let cookies = found.cookies.iter();
        let keys = cookies
            .filter(|cookie| cookie.domain != FLUSH_DOMAIN)
            .map(|cookie| CookieId::new(&cookie.domain, &cookie.path, &cookie.name));
        Ok(keys.collect())
    }

    /// Returns the cookies of the default browser context without their values.
    pub(in crate::system::cdp) async fn cookie_names(&self) -> Result<Vec<CookieName>, CdpError> {
        let found = self.call(GetCookiesParams::default(), None).await?;
        let cookies = found.cookies.into_iter();
        let names = cookies.map(|cookie| CookieName {
            domain: cookie.domain,
            path: cookie.path,
            name: cookie.name,
            is_http_only: cookie.http_only,
            expires_at_ms: (!cookie.session).then_some((cookie.expires * 1000.0) as i64),
        });
        Ok(names.collect())
    }

    /// Makes Chromium write all cookies to disk. It does so every 30 s, and after 512 changes: this
    /// changes a cookie of an invalid domain more often than that. The last change expires it.
    ///
    /// Before that, it sets a cookie with the name `marker`, which is on the disk once all earlier
    /// changes are. It does not change that one: a write may come after the deletion of a previous
    /// value and before the new one.
    pub async fn flush_cookies(&self, marker: &str) -> Result<(), CdpError> {
        const CHANGES: usize = 600;
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let soon = now.unwrap_or_default().as_secs_f64() + 60.0;
        let changes = (1..=CHANGES).map(|change| {
            let expires = if change < CHANGES { soon } else { LONG_AGO };
            flush_cookie("berth-flush", change, expires)
        });
        let cookies = iter::once(flush_cookie(marker, 0, soon)).chain(changes);
        let params = SetCookiesParams::new(cookies.collect());
        self.call(params, None).await.map(drop)
    }

    /// Removes the marker of [`Self::flush_cookies`].
    pub async fn remove_flush_marker(&self, marker: &str) -> Result<(), CdpError> {
        let params = SetCookiesParams::new(vec![flush_cookie(marker, 0, LONG_AGO)]);
        self.call(params, None).await.map(drop)
    }
}

/// A time in seconds since 1970 that is over.
const LONG_AGO: f64 = 1.0;

fn flush_cookie(name: &str, value: usize, expires: f64) -> CookieParam {
    let mut cookie = CookieParam::new(name, value.to_string());
    cookie.domain = Some(FLUSH_DOMAIN.to_owned());
    cookie.path = Some("/".to_owned());
    cookie.expires = Some(TimeSinceEpoch::new(expires));
    cookie
}

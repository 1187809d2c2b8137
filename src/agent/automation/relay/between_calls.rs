//! The commands that the worker of an executor may send while no call runs: an allow-list.
//!
//! Code of an earlier call can still run then, in timers and event handlers. It may not act in
//! pages. The list contains what Playwright sends on its own, to keep up with the tabs of other
//! clients and to answer the requests that a call intercepts.

use std::{collections::HashSet, sync::LazyLock};

use serde::Deserialize;

use super::{
    Phase, Relay,
    message::params,
    policy::{contains, methods},
};

/// The permitted methods of each domain.
const ALLOWED: &[(&str, &str)] = &[
    (
        "Browser",
        "cancelDownload getVersion getWindowForTarget setDownloadBehavior setWindowBounds",
    ),
    ("CSS", "getStyleSheetText"),
    ("Debugger", "getScriptSource resume"),
    (
        "Emulation",
        "clearGeolocationOverride setDeviceMetricsOverride setEmulatedMedia \
         setFocusEmulationEnabled setGeolocationOverride setLocaleOverride \
         setScriptExecutionDisabled setTimezoneOverride setTouchEmulationEnabled \
         setUserAgentOverride",
    ),
    (
        "Fetch",
        "continueRequest continueResponse continueWithAuth disable enable failRequest \
         fulfillRequest getResponseBody takeResponseBodyAsStream",
    ),
    ("IO", "close read"),
    ("Inspector", "enable"),
    ("Log", "enable"),
    (
        "Network",
        "emulateNetworkConditions enable setBypassServiceWorker setCacheDisabled \
         setExtraHTTPHeaders",
    ),
    (
        "Page",
        "createIsolatedWorld enable getFrameTree handleJavaScriptDialog screencastFrameAck \
         setBypassCSP setFontFamilies setInterceptFileChooserDialog setLifecycleEventsEnabled",
    ),
    (
        "Runtime",
        "addBinding enable releaseObject releaseObjectGroup runIfWaitingForDebugger",
    ),
    ("Security", "setIgnoreCertificateErrors"),
    ("Target", "detachFromTarget getTargetInfo setAutoAttach"),
];

static METHODS: LazyLock<HashSet<(&str, &str)>> = LazyLock::new(|| methods(ALLOWED).collect());

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AddedScript {
    world_name: Option<String>,
    run_immediately: Option<bool>,
}

/// Whether the method acts in no page.
pub(super) fn is_allowed(method: &str) -> bool {
    contains(&METHODS, method)
}

impl Relay {
    /// Whether the worker may send the command in the present phase.
    pub(super) fn may_send_now(&self, method: &str, session: Option<&str>, text: &[u8]) -> bool {
        if self.phase != Phase::Between {
            return true;
        }
        if method == "Page.addScriptToEvaluateOnNewDocument" {
            return session.is_some_and(|session| self.sets_up_tab(session, text));
        }
        is_allowed(method)
    }

    /// Whether the command gives a tab, opened since the last call, the scripts that Playwright
    /// adds to each new tab. Scripts added by code of the call do not run immediately.
    fn sets_up_tab(&self, session: &str, text: &[u8]) -> bool {
        let is_new = |id| {
            let session = self.sessions.get(id);
            session.is_some_and(|session| session.sequence > self.sessions_at_rest)
        };
        let is_of_setup = |script: AddedScript| {
            script.world_name.is_some() || script.run_immediately == Some(true)
        };
        is_new(session) && params(text).is_some_and(is_of_setup)
    }
}

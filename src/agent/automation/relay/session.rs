//! The relay's state of one session: a tab, a frame or a worker.

use bytes::Bytes;
use tokio::time::Instant;

use super::{restrictions::is_privileged, worlds::Worlds};

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Kind {
    Page,
    Other,
}

/// Whether the script worker knows a session.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Visibility {
    Hidden,
    Announced,
}

#[derive(Debug)]
pub(super) struct Session {
    pub(super) target: String,
    kind: Kind,
    pub(super) visibility: Visibility,
    /// The `Target.attachedToTarget` that is sent when the session is announced.
    pub(super) announcement: Option<Bytes>,
    /// The position in the order of attaching.
    pub(super) sequence: u64,
    /// The URL of the main frame, from the last probe or navigation.
    pub(super) url: String,
    /// When the unanswered probe was sent.
    pub(super) probed_at: Option<Instant>,
    /// Whether the tab was reported as hung.
    pub(super) is_hung: bool,
    /// Whether the `Page` domain is enabled, so that the first navigation is reported.
    pub(super) page_enabled: bool,
    /// Whether the script has opened the session or acted in it.
    pub(super) is_driven: bool,
    /// When the relay lets the session run, unless Playwright does so first.
    pub(super) release_at: Option<Instant>,
    /// The worker's last `Target.setAutoAttach` for the session.
    pub(super) auto_attach_command: Option<Bytes>,
    /// Commands deferred until the next script.
    pub(super) deferred_commands: Vec<Bytes>,
    pub(super) worlds: Worlds,
    /// The `Page.javascriptDialogOpening` that the idle worker has not seen.
    pub(super) pending_dialog: Option<Bytes>,
}

impl Session {
    pub(super) fn new(target: String, kind: Kind, sequence: u64) -> Self {
        Session {
            target,
            kind,
            visibility: Visibility::Hidden,
            announcement: None,
            sequence,
            url: String::new(),
            probed_at: None,
            is_hung: false,
            page_enabled: false,
            is_driven: false,
            release_at: None,
            auto_attach_command: None,
            deferred_commands: Vec::new(),
            worlds: Worlds::default(),
            pending_dialog: None,
        }
    }

    pub(super) fn is_page(&self) -> bool {
        self.kind == Kind::Page
    }

    /// Whether scripts may see and use the tab. A tab whose first navigation was refused or has not
    /// started has no URL, and Playwright waits for it.
    pub(super) fn is_usable(&self) -> bool {
        !matches!(self.url.as_str(), "" | ":") && !self.is_privileged()
    }

    /// Whether the tab shows a page of Chromium's own: code in it can change settings of the
    /// browser, and go to URLs that end it.
    pub(super) fn is_privileged(&self) -> bool {
        is_privileged(&self.url)
    }
}

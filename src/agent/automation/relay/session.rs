//! What the relay knows of one session: a tab, a frame, a worker.

use bytes::Bytes;
use tokio::time::Instant;

use super::worlds::Worlds;

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    Page,
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Standing {
    /// The script worker has not been told of it.
    Hidden,
    Announced,
}

#[derive(Debug)]
pub struct Session {
    pub target: String,
    pub kind: Kind,
    pub standing: Standing,
    /// The held back `Target.attachedToTarget`.
    pub announcement: Option<Bytes>,
    /// The order of attaching.
    pub attached: u64,
    /// The main frame's, as of the last answer.
    pub url: String,
    /// When the probe went out that is not answered yet.
    pub probed_at: Option<Instant>,
    /// It was reported that it hangs.
    pub silent: bool,
    /// `Page` is enabled, so that its first navigation is seen.
    pub watched: bool,
    /// The script has opened it or acted in it.
    pub driven: bool,
    /// When it is let run, should Playwright not have done it.
    pub release_at: Option<Instant>,
    /// Commands put off until a script comes.
    pub deferred: Vec<Bytes>,
    pub worlds: Worlds,
    /// The `Page.javascriptDialogOpening` that an idle worker was not told of.
    pub dialog: Option<Bytes>,
}

impl Session {
    pub fn new(target: String, kind: Kind, attached: u64) -> Self {
        Session {
            target,
            kind,
            standing: Standing::Hidden,
            announcement: None,
            attached,
            url: String::new(),
            probed_at: None,
            silent: false,
            watched: false,
            driven: false,
            release_at: None,
            deferred: Vec::new(),
            worlds: Worlds::default(),
            dialog: None,
        }
    }

    /// A tab whose first navigation was refused or has not begun has no URL at all; Playwright waits for it.
    pub fn is_initialised(&self) -> bool {
        !matches!(self.url.as_str(), "" | ":")
    }

    /// Whether a script can use it as its `page`: not the New Tab page, whose content policy refuses most of what scripts do,
    /// and not DevTools itself.
    pub fn fits(&self) -> bool {
        self.is_initialised()
            && ![
                "chrome://newtab",
                "chrome://new-tab-page",
                "chrome-untrusted:",
                "devtools:",
            ]
            .iter()
            .any(|unfit| self.url.starts_with(unfit))
    }
}

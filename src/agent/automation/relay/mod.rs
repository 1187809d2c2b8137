//! The relay between one script worker and Chromium: messages in, actions out, no I/O.
//!
//! Playwright attaches to every tab and waits until each has answered. It attaches with "wait for
//! the debugger on start", which stops every new tab until the attached client lets it run. One tab
//! in an endless loop would thus keep every later script from starting, and one script in an
//! endless loop would stop every new tab of the browser. Therefore the relay:
//!
//! - announces a tab to the worker only after it has answered a probe of the relay;
//! - lets tabs that the worker did not open run at once, and the worker's own tabs after
//!   [`DEBUGGER_RELEASE_TIMEOUT`] at the latest; has none wait for a worker without a script;
//! - drops the events of pages while the worker is warm, so that traffic costs nothing then, and
//!   between calls if the worker does not keep up with them;
//! - lets all workers share one isolated world in each frame ([`worlds`]);
//! - keeps Chromium's download setting, and delays the event of a complete download until the
//!   script has the file ([`download`]);
//! - refuses methods that a script may not call ([`policy`](crate::system::cdp::policy)), and
//!   parameters that would reach beyond the script ([`restrictions`]).
//!
//! All other messages are forwarded unchanged.
//!
//! ```text
//!            from_worker                         ToBrowser
//! Playwright ----------->  Relay::dispatch_…  -------------> Chromium
//!            <-----------  (one fn per method) <------------
//!             ToWorker                           from_browser
//!
//! phase:    Warm --settle--> Settling --run--> Running --rest--> Between --settle--> Settling …
//! tab:      Hidden --probe answered with a URL--> Announced --detached--> (removed)
//! auto-attach: NotRequested --> Requested --reply--> Held --all tabs probed, or timeout--> Done
//! ```
//!
//! | file | job |
//! |---|---|
//! | `from_browser` | Chromium's replies and events |
//! | `from_worker` | Playwright's commands |
//! | `tabs` | attached sessions: probing, announcing, releasing, choosing the script's page |
//! | `waiting` | which new tabs wait for the worker |
//! | `lifecycle` | phases, timers, and waiting for the commands of a dead worker |
//! | `restrictions` | what a script may send |
//! | `between_calls` | what an executor's worker may send while no call runs |
//! | `command` | building messages |

#![allow(
    clippy::wrong_self_convention,
    reason = "`from_…` and `to_…` name the directions of messages"
)]

mod between_calls;
mod command;
mod download;
mod from_browser;
mod from_worker;
#[cfg(test)]
mod fuzz;
mod lifecycle;
mod message;
mod restrictions;
mod session;
mod tabs;
#[cfg(test)]
mod tests;
mod waiting;
mod worlds;

use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
    time::Duration,
};

use bytes::Bytes;
use tokio::time::Instant;

pub(super) use download::{CompletedDownload, DownloadSettings, canceled_download};
use session::Session;

use super::session_files::SessionFiles;

/// The longest time for which the reply to `Target.setAutoAttach` waits for tabs that have not
/// answered yet.
const AUTO_ATTACH_HOLD_TIMEOUT: Duration = Duration::from_millis(250);
/// The longest time for which a new tab of the script waits for Playwright to let it run.
const DEBUGGER_RELEASE_TIMEOUT: Duration = Duration::from_secs(1);
/// The delay after which a worker without a script lets a new target run, in case that no other
/// client does: Chromium has new tabs wait for any client that attaches to them automatically, also
/// if none has requested it. Longer than another client needs to set one up.
const IDLE_RELEASE_DELAY: Duration = Duration::from_millis(100);
/// The time without an answer after which a probed tab counts as hung.
const HUNG_TAB_TIMEOUT: Duration = Duration::from_secs(1);
/// The longest time for which a script waits at its start for the tabs that are not in front, so
/// that it finds them in their current state.
const SETTLE_TIMEOUT: Duration = Duration::from_millis(250);
/// The first id of the relay's own commands. Playwright counts from 1; Chromium's ids have 32 bits.
const FIRST_RELAY_ID: i64 = 0x4000_0000;
const LAST_RELAY_ID: i64 = 0x7fff_ffff;
/// The most pending commands, above what any script needs.
const MAX_PENDING_COMMANDS: usize = 65_536;
/// The most tabs, frames and workers, above what a browser can hold.
const MAX_SESSIONS: usize = 4_096;
/// The most downloads of one call, above what any script needs.
const MAX_DOWNLOADS: usize = 1_024;
/// The most browser contexts of one worker at once, above what any script needs.
const MAX_CONTEXTS: usize = 1_024;

/// A side effect that the caller of the relay performs.
#[derive(Debug, PartialEq)]
pub(super) enum RelayAction {
    ToWorker(Bytes),
    ToBrowser(Bytes),
    /// The tab with this target id has not answered for [`HUNG_TAB_TIMEOUT`].
    TabHung(String),
    /// The tab has answered.
    TabAnswered(String),
    TabClosed(String),
    /// The script enables download events: renews Chromium's download setting.
    RenewDownloadSetting,
    /// A download with this guid has started, and the script has its event.
    DownloadStarted(String),
    /// A download is complete. The script gets the file first, and then the event.
    DownloadCompleted(CompletedDownload),
}

/// A breach of the protocol or its bounds. The worker is killed for it.
#[derive(Debug, thiserror::Error, PartialEq)]
pub(super) enum Violation {
    #[error("the script worker sent a message that is not of the DevTools protocol")]
    NotCdp,
    #[error("the script worker used a command id reserved for the agent")]
    ReservedId,
    #[error("the script worker used the id of a pending command")]
    DuplicateId,
    #[error("limit of unanswered commands to the browser reached ({MAX_PENDING_COMMANDS})")]
    PendingCommands,
    #[error("limit of tabs, frames and workers reached ({MAX_SESSIONS})")]
    Sessions,
    #[error("limit of downloads in one call reached ({MAX_DOWNLOADS})")]
    Downloads,
}

/// The tab that a script gets as `page`.
#[derive(Debug, PartialEq)]
pub(super) enum PageChoice {
    /// Undecided until this instant or the next message.
    Wait(Instant),
    Tab(String),
    /// No tab is usable: a new one is opened.
    Fresh,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    /// Attaching or attached. No script has run.
    Warm,
    /// Waiting for the tabs to answer, right before a script.
    Settling {
        since: Instant,
    },
    Running,
    /// Between two scripts of an executor.
    Between,
}

/// A command that the relay sends on its own behalf.
#[derive(Debug)]
enum RelayCommand {
    /// Asks the tab of this session whether it answers.
    Probe(String),
    Other,
}

/// A command of the worker that the browser has not answered.
#[derive(Debug)]
struct PendingCommand {
    session: Option<String>,
    /// Whether it runs code in the page.
    runs_code: bool,
    /// Whether it creates a browser context.
    creates_context: bool,
}

/// The state of the worker's first `Target.setAutoAttach`.
#[derive(Debug)]
enum AutoAttach {
    NotRequested,
    /// Sent to Chromium under this id.
    Requested(i64),
    /// Answered. The reply is held until all tabs have answered their first probe, or `until`.
    Held {
        reply: Bytes,
        until: Instant,
    },
    Done,
}

/// The result of a message's handler.
#[derive(Debug)]
enum Verdict {
    Forward(Bytes),
    Consumed,
}

/// The state of one worker's connection to Chromium.
#[derive(Debug)]
pub(super) struct Relay {
    phase: Phase,
    auto_attach: AutoAttach,
    /// The worker's last `Target.setAutoAttach` for the browser.
    auto_attach_command: Option<Bytes>,
    sessions: HashMap<String, Session>,
    /// Probes under way, by command id.
    relay_commands: HashMap<i64, RelayCommand>,
    next_relay_id: i64,
    /// The worker's pending `Target.createTarget` commands. A new tab is attached before its
    /// command is answered.
    creating_targets: HashSet<i64>,
    pending_commands: HashMap<i64, PendingCommand>,
    /// The number of sessions attached so far: the order of tabs if Chromium gives none.
    attached_sessions: u64,
    /// The value of `attached_sessions` when the last script ended.
    sessions_at_rest: u64,
    /// The directory of the script, without symbolic links in its path.
    script_directory: PathBuf,
    session_files: SessionFiles,
    /// Whether many messages are queued for the worker.
    is_worker_behind: bool,
    /// The browser contexts that the worker has created.
    contexts: HashSet<String>,
    download_settings: DownloadSettings,
    /// The guids of the downloads that were announced to the script.
    downloads: HashSet<String>,
    actions: Vec<RelayAction>,
}

impl Relay {
    pub(super) fn new(
        script_directory: PathBuf,
        session_files: SessionFiles,
        download_settings: DownloadSettings,
    ) -> Self {
        Relay {
            phase: Phase::Warm,
            auto_attach: AutoAttach::NotRequested,
            auto_attach_command: None,
            sessions: HashMap::new(),
            relay_commands: HashMap::new(),
            next_relay_id: FIRST_RELAY_ID,
            creating_targets: HashSet::new(),
            pending_commands: HashMap::new(),
            attached_sessions: 0,
            sessions_at_rest: 0,
            script_directory,
            session_files,
            is_worker_behind: false,
            contexts: HashSet::new(),
            download_settings,
            downloads: HashSet::new(),
            actions: Vec::new(),
        }
    }

    /// Returns the actions since the last call, in order.
    pub(super) fn take_actions(&mut self) -> Vec<RelayAction> {
        std::mem::take(&mut self.actions)
    }

    /// Returns the number of tabs from which the script's page is chosen.
    pub(super) fn tab_count(&self) -> usize {
        self.pages().count()
    }

    /// Sets whether many messages are queued for the worker.
    pub(super) fn set_worker_behind(&mut self, is_behind: bool) {
        self.is_worker_behind = is_behind;
    }

    fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Warm | Phase::Between)
    }

    fn to_worker(&mut self, text: Bytes) {
        self.actions.push(RelayAction::ToWorker(text));
    }

    fn to_browser(&mut self, text: Bytes) {
        self.actions.push(RelayAction::ToBrowser(text));
    }
}

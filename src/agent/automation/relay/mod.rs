//! What stands between one script worker and Chromium: messages in, messages out, no I/O.
//!
//! Playwright attaches to every tab and waits until each has answered, and it attaches with "wait for the debugger on start", which
//! stops every new tab until the attached client lets it run. One tab in an endless loop would thus keep every later script
//! from starting, and one script in an endless loop would stop every new tab of the browser. So the relay:
//!
//! - announces a tab to the worker only once it has answered a probe of the relay's own;
//! - lets tabs that the worker did not open run at once, and the worker's own after [`RELEASE_AFTER`] at the latest;
//! - keeps an idle worker's sessions quiet, so that a page's traffic costs nothing while no script looks at it;
//! - lets all workers share one isolated world in each frame ([`worlds`]);
//! - leaves Chromium's setting for downloads as it is, and has each download given to the script before it hears that it is complete.
//!
//! Everything else passes through as it came.

#![allow(
    clippy::wrong_self_convention,
    reason = "`from_…` and `to_…` name the directions that messages take"
)]

mod download;
pub mod message;
mod session;
#[cfg(test)]
mod tests;
mod worlds;

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};
use tokio::time::Instant;

pub use download::{Downloaded, DownloadsPlace, refused};
use message::{Attached, Detached, Head, main_frame_url, params};
use session::{Kind, Session, Standing};
use worlds::WORLD;

/// How long the reply to `Target.setAutoAttach` waits for tabs that have not answered yet.
pub const HOLD_ATTACH: Duration = Duration::from_millis(250);
/// How long a script's own new tab waits for Playwright to let it run.
pub const RELEASE_AFTER: Duration = Duration::from_secs(1);
/// A tab that has not answered for this long hangs: it is skipped until it answers.
pub const SILENT_AFTER: Duration = Duration::from_secs(1);
/// How long a script waits, before it starts, for the tabs that are not in front, so that it finds them as they are now.
pub const SETTLE: Duration = Duration::from_millis(250);
/// Commands of the relay's own have ids from here on; Playwright counts from 1. Chromium's ids are 32-bit.
const FIRST_OWN_ID: i64 = 0x4000_0000;
const LAST_OWN_ID: i64 = 0x7fff_ffff;
/// More unanswered commands than any script can have a use for.
const MAX_UNANSWERED: usize = 65_536;
/// More tabs, frames and workers than a browser can hold.
const MAX_SESSIONS: usize = 4_096;

/// More downloads than a call can have a use for.
const MAX_DOWNLOADS: usize = 1_024;

/// What the relay wants done.
#[derive(Debug, PartialEq)]
pub enum Out {
    ToWorker(Bytes),
    ToBrowser(Bytes),
    /// The tab (a target id) has not answered for [`SILENT_AFTER`].
    Silent(String),
    /// The tab has answered.
    Alive(String),
    Gone(String),
    /// The script wants to hear of downloads: Chromium's setting for them is to hold.
    Downloads,
    /// A download has begun that the script has heard of.
    Download(String),
    /// It is complete: to be given to the script, which hears of it afterwards.
    Downloaded(Downloaded),
}

/// A worker that breaks the protocol or its bounds is killed.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum Violation {
    #[error("the script worker sent what is not a message of the DevTools protocol")]
    NotCdp,
    #[error("the script worker used an id of the agent's own range")]
    ReservedId,
    #[error("more than {MAX_UNANSWERED} commands to the browser without an answer")]
    Unanswered,
    #[error("more than {MAX_SESSIONS} tabs, frames and workers")]
    Sessions,
    #[error("more than {MAX_DOWNLOADS} downloads in one call")]
    Downloads,
}

/// Which tab a script gets as `page`.
#[derive(Debug, PartialEq)]
pub enum Front {
    /// Not known before this instant, or the next message.
    Wait(Instant),
    Tab(String),
    /// No tab fits: a fresh one.
    Fresh,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    /// Attached, or on the way to it; no script has run.
    Warm,
    /// Waiting for the tabs to answer, right before a script.
    Settling {
        since: Instant,
    },
    Running,
    /// Between two scripts of an executor.
    Between,
}

/// A command of the relay's own.
#[derive(Debug)]
enum Own {
    Probe(String),
    Other,
}

/// A command of the worker's that the browser has not answered.
#[derive(Debug)]
struct Unanswered {
    session: Option<String>,
    /// It runs code in the page.
    evaluates: bool,
}

#[derive(Debug)]
enum Attach {
    NotAsked,
    /// The id of the worker's `Target.setAutoAttach`.
    Asked(i64),
    /// The reply, held back until then.
    Held {
        reply: Bytes,
        until: Instant,
    },
    Done,
}

#[derive(Debug)]
pub struct Relay {
    phase: Phase,
    attach: Attach,
    sessions: HashMap<String, Session>,
    own: HashMap<i64, Own>,
    next_id: i64,
    /// The worker's `Target.createTarget`s under way: the tab is attached before the command is answered.
    creating: HashSet<i64>,
    unanswered: HashMap<i64, Unanswered>,
    /// Sequence of announcements, the order of last resort.
    attached: u64,
    place: DownloadsPlace,
    /// The guids of the downloads that the script has heard of.
    downloads: HashSet<String>,
    out: Vec<Out>,
}

impl Default for Relay {
    fn default() -> Self {
        Relay {
            phase: Phase::Warm,
            attach: Attach::NotAsked,
            sessions: HashMap::new(),
            own: HashMap::new(),
            next_id: FIRST_OWN_ID,
            creating: HashSet::new(),
            unanswered: HashMap::new(),
            attached: 0,
            place: DownloadsPlace::default(),
            downloads: HashSet::new(),
            out: Vec::new(),
        }
    }
}

impl Relay {
    pub fn new(place: DownloadsPlace) -> Self {
        Relay {
            place,
            ..Relay::default()
        }
    }

    /// What is to be done since the last time it was asked.
    pub fn take_out(&mut self) -> Vec<Out> {
        std::mem::take(&mut self.out)
    }

    /// A message of Chromium.
    pub fn from_browser(&mut self, text: Bytes, now: Instant) -> Result<(), Violation> {
        // Chromium's own words are passed on even where the relay cannot read them.
        let head = Head::of_browser(&text).unwrap_or_default();
        if let Some(id) = head.id {
            self.reply(id, head.session.as_deref(), &text, now);
            return Ok(());
        }
        let method = head.method.as_deref().unwrap_or_default();
        match method {
            "Target.attachedToTarget" => {
                let parent = head.session.as_deref().map(str::to_owned);
                return self.attached(parent, text, now);
            }
            "Target.detachedFromTarget" => {
                if let Some(event) = params::<Detached>(&text)
                    && self.detached(&event.session_id) == Standing::Hidden
                {
                    return Ok(());
                }
            }
            "Browser.downloadWillBegin" if head.session.is_none() => {
                return self.download_began(text);
            }
            "Browser.downloadProgress" if head.session.is_none() => {
                self.download_went_on(text);
                return Ok(());
            }
            _ => {
                let Some(session) = head.session.as_deref() else {
                    self.out.push(Out::ToWorker(text));
                    return Ok(());
                };
                let hidden = self
                    .sessions
                    .get(session)
                    .is_some_and(|known| known.standing == Standing::Hidden);
                if hidden {
                    // It has become a page at last; everything else about a tab that was never announced is unknown to Playwright.
                    if method == "Page.frameNavigated" {
                        let session = session.to_owned();
                        self.probe(&session, now);
                    }
                    return Ok(());
                }
                if self.phase == Phase::Warm && is_noise(method) {
                    return Ok(());
                }
                let idle = matches!(self.phase, Phase::Warm | Phase::Between);
                if let Some(known) = self.sessions.get_mut(session) {
                    match method {
                        // Playwright closes a dialog that nobody has asked for: not before the script that has.
                        "Page.javascriptDialogOpening" if idle => {
                            known.dialog = Some(text);
                            return Ok(());
                        }
                        "Page.javascriptDialogClosed" if known.dialog.take().is_some() => {
                            return Ok(());
                        }
                        "Runtime.executionContextCreated" => {
                            let told = known.worlds.created(text);
                            self.out.extend(told.map(Out::ToWorker));
                            return Ok(());
                        }
                        "Runtime.executionContextDestroyed" => known.worlds.destroyed(&text),
                        "Runtime.executionContextsCleared" => known.worlds.cleared(),
                        _ => {}
                    }
                }
            }
        }
        self.out.push(Out::ToWorker(text));
        Ok(())
    }

    /// A message of Playwright.
    pub fn from_worker(&mut self, mut text: Bytes) -> Result<(), Violation> {
        let original = text.clone();
        let head = Head::parse(&original).ok_or(Violation::NotCdp)?;
        let (Some(id), Some(method)) = (head.id, head.method.as_deref()) else {
            return Err(Violation::NotCdp);
        };
        if !(0..FIRST_OWN_ID).contains(&id) {
            return Err(Violation::ReservedId);
        }
        let session = head.session.as_deref();
        match (session, method) {
            (None, "Target.setAutoAttach") if matches!(self.attach, Attach::NotAsked) => {
                self.attach = Attach::Asked(id);
                self.out.push(Out::ToBrowser(auto_attach(id)));
                return Ok(());
            }
            (session, "Browser.setDownloadBehavior") => {
                text = self.download_behavior(id, session, &text);
            }
            (None, "Target.createTarget") => {
                self.creating.insert(id);
            }
            (Some(session), "Runtime.runIfWaitingForDebugger") => {
                if let Some(known) = self.sessions.get_mut(session) {
                    known.release_at = None;
                }
            }
            (Some(session), "Network.enable" | "Log.enable") if self.phase == Phase::Warm => {
                if let Some(known) = self.sessions.get_mut(session) {
                    // A page's traffic reported to every waiting worker would be work for nobody, and memory in the page's
                    // process for each of them: turned on when a script comes.
                    self.out.push(Out::ToWorker(reply(id, session, json!({}))));
                    known.deferred.push(text);
                    return Ok(());
                }
            }
            (
                Some(session),
                "Page.addScriptToEvaluateOnNewDocument" | "Page.createIsolatedWorld",
            ) => {
                let warm = self.phase == Phase::Warm;
                if let Some(known) = self.sessions.get_mut(session)
                    && let Some((shared, told)) = known.worlds.command(&text)
                {
                    self.out.extend(told.into_iter().map(Out::ToWorker));
                    if method == "Page.createIsolatedWorld" {
                        let existing = known.worlds.existing(&text);
                        if existing.is_some() || warm {
                            // Made when a script comes, should there be none by then. Playwright waits for the event alone.
                            let result = json!({ "executionContextId": existing.unwrap_or(0) });
                            self.out.push(Out::ToWorker(reply(id, session, result)));
                            return Ok(());
                        }
                    } else if warm {
                        // A waiting worker makes no worlds in the pages that others open.
                        known.deferred.push(shared);
                        let result = json!({ "identifier": "0" });
                        self.out.push(Out::ToWorker(reply(id, session, result)));
                        return Ok(());
                    }
                    text = shared;
                }
            }
            (Some(session), _) if drives(method) => {
                if self.phase == Phase::Between {
                    self.out.push(Out::ToWorker(refusal(id, session)));
                    return Ok(());
                }
                if let Some(known) = self.sessions.get_mut(session) {
                    known.driven = true;
                }
            }
            _ => {}
        }
        if self.unanswered.len() >= MAX_UNANSWERED {
            return Err(Violation::Unanswered);
        }
        self.unanswered.insert(
            id,
            Unanswered {
                session: session.map(str::to_owned),
                evaluates: runs_code(method),
            },
        );
        self.out.push(Out::ToBrowser(text));
        Ok(())
    }

    /// When [`Relay::tick`] has something to do, at the latest.
    pub fn deadline(&self) -> Option<Instant> {
        let held = match &self.attach {
            Attach::Held { until, .. } => Some(*until),
            _ => None,
        };
        let sessions = self.sessions.values().flat_map(|session| {
            let silent = session
                .probed_at
                .filter(|_| !session.silent)
                .map(|at| at + SILENT_AFTER);
            [session.release_at, silent].into_iter().flatten()
        });
        sessions.chain(held).min()
    }

    pub fn tick(&mut self, now: Instant) {
        let due: Vec<String> = self
            .sessions
            .iter()
            .filter(|(_, session)| session.release_at.is_some_and(|at| at <= now))
            .map(|(id, _)| id.clone())
            .collect();
        for session in due {
            self.release(&session);
        }
        for session in self.sessions.values_mut() {
            if !session.silent && session.probed_at.is_some_and(|at| at + SILENT_AFTER <= now) {
                session.silent = true;
                self.out.push(Out::Silent(session.target.clone()));
            }
        }
        if matches!(&self.attach, Attach::Held { until, .. } if *until <= now) {
            self.release_attach();
        }
    }

    /// A script is about to run: asks all tabs how they are, and turns on what was put off.
    pub fn settle(&mut self, now: Instant) {
        self.phase = Phase::Settling { since: now };
        let sessions: Vec<String> = self.sessions.keys().cloned().collect();
        for id in sessions {
            let Some(session) = self.sessions.get_mut(&id) else {
                continue;
            };
            session.driven = false;
            // One that was left open keeps the tab from answering, until Playwright closes it.
            self.out.extend(session.dialog.take().map(Out::ToWorker));
            for command in std::mem::take(&mut session.deferred) {
                let own = self.own_id(Own::Other);
                if let Some(text) = with_id(&command, own) {
                    self.out.push(Out::ToBrowser(text));
                }
            }
            self.make_worlds(&id);
            self.probe(&id, now);
        }
    }

    fn make_worlds(&mut self, session: &str) {
        let Some(known) = self.sessions.get(session) else {
            return;
        };
        for frame in known.worlds.missing() {
            let id = self.own_id(Own::Other);
            let command = json!({
                "id": id,
                "method": "Page.createIsolatedWorld",
                "params": { "frameId": frame, "worldName": WORLD, "grantUniveralAccess": true },
                "sessionId": session,
            });
            self.out.push(Out::ToBrowser(command.to_string().into()));
        }
    }

    /// How many tabs the front one is chosen from.
    pub fn tabs(&self) -> usize {
        self.pages().count()
    }

    /// Which tab is in front, given Chromium's order of activity (target ids; `None` where it is not known or does not matter)
    /// and whether a tab is known to hang. All tabs that still answer have answered, or had [`SETTLE`] to do so.
    pub fn front(
        &self,
        order: Option<&[String]>,
        hangs: impl Fn(&str) -> bool,
        now: Instant,
    ) -> Front {
        let since = match self.phase {
            Phase::Settling { since } => since,
            _ => now,
        };
        let open = |session: &Session| {
            session.probed_at.is_some() && !session.silent && !hangs(&session.target)
        };
        if now < since + SETTLE && self.pages().any(open) {
            return Front::Wait(since + SETTLE);
        }
        let mut pages: Vec<&Session> = self.pages().collect();
        // The latest one first; where Chromium has said its order, that one.
        pages.sort_by_key(|page| {
            let place = order.and_then(|order| order.iter().position(|id| *id == page.target));
            (
                place.unwrap_or(usize::MAX),
                std::cmp::Reverse(page.attached),
            )
        });
        for page in pages {
            if page.probed_at.is_some() {
                if open(page) && now < since + SILENT_AFTER {
                    return Front::Wait(since + SILENT_AFTER);
                }
                continue;
            }
            if page.standing == Standing::Announced && page.fits() {
                return Front::Tab(page.target.clone());
            }
        }
        Front::Fresh
    }

    /// The script starts.
    pub fn run(&mut self) {
        self.phase = Phase::Running;
    }

    /// The script of an executor has ended; the next may come.
    pub fn rest(&mut self) {
        self.phase = Phase::Between;
        self.downloads.clear();
        let waiting: Vec<String> = self
            .sessions
            .iter()
            .filter(|(_, session)| session.release_at.is_some())
            .map(|(id, _)| id.clone())
            .collect();
        for session in waiting {
            self.release(&session);
        }
    }

    /// The worker is dead. Asks each tab that still has its commands, so that they are through before the caller is answered.
    /// Returns whether there is any.
    pub fn quiesce(&mut self, now: Instant) -> bool {
        let busy: HashSet<String> = self
            .unanswered
            .values()
            .filter_map(|command| command.session.clone())
            .filter(|id| {
                self.sessions
                    .get(id)
                    .is_some_and(|session| session.standing == Standing::Announced)
            })
            .collect();
        for session in &busy {
            self.probe(session, now);
        }
        !self.is_quiet()
    }

    /// The browser has made the dead worker's last tabs, and its tabs have answered [`Relay::quiesce`].
    pub fn is_quiet(&self) -> bool {
        self.creating.is_empty()
            && !self.unanswered.values().any(|command| {
                command
                    .session
                    .as_ref()
                    .and_then(|id| self.sessions.get(id))
                    .is_some_and(|session| {
                        session.standing == Standing::Announced && session.probed_at.is_some()
                    })
            })
    }

    /// A command that was not sent after all: no answer to it will come.
    pub fn unsent(&mut self, text: &[u8]) {
        let Some(id) = Head::parse(text).and_then(|head| head.id) else {
            return;
        };
        self.unanswered.remove(&id);
        self.creating.remove(&id);
        if let Some(Own::Probe(session)) = self.own.remove(&id)
            && let Some(session) = self.sessions.get_mut(&session)
        {
            session.probed_at = None;
        }
    }

    /// Stops the code that the dead worker's script left running in tabs that do not answer.
    pub fn terminate(&mut self) {
        let stuck: HashSet<String> = self
            .unanswered
            .values()
            .filter(|command| command.evaluates)
            .filter_map(|command| command.session.clone())
            .filter(|id| {
                self.sessions
                    .get(id)
                    .is_some_and(|session| session.probed_at.is_some())
            })
            .collect();
        for session in stuck {
            self.command("Runtime.terminateExecution", &session, Own::Other);
        }
    }

    fn pages(&self) -> impl Iterator<Item = &Session> {
        self.sessions
            .values()
            .filter(|session| session.kind == Kind::Page)
    }

    fn reply(&mut self, id: i64, session: Option<&str>, text: &Bytes, now: Instant) {
        if (FIRST_OWN_ID..=LAST_OWN_ID).contains(&id) {
            if let Some(Own::Probe(session)) = self.own.remove(&id) {
                self.answered(&session, text, now);
            }
            return;
        }
        self.unanswered.remove(&id);
        self.creating.remove(&id);
        if session.is_none() && matches!(self.attach, Attach::Asked(asked) if asked == id) {
            self.attach = Attach::Held {
                reply: text.clone(),
                until: now + HOLD_ATTACH,
            };
            self.attach_if_known();
            return;
        }
        self.out.push(Out::ToWorker(text.clone()));
    }

    /// A tab has answered the relay's probe.
    fn answered(&mut self, id: &str, text: &[u8], now: Instant) {
        let Some(session) = self.sessions.get_mut(id) else {
            return;
        };
        session.probed_at = None;
        session.silent = false;
        self.out.push(Out::Alive(session.target.clone()));
        let Some(url) = main_frame_url(text) else {
            // A refusal: the session is about to end.
            self.attach_if_known();
            return;
        };
        session.url = url;
        if session.standing == Standing::Hidden {
            if session.is_initialised() {
                self.announce(id);
            } else if !session.watched {
                // Playwright would wait for its first navigation, which may never come: so does the relay instead.
                session.watched = true;
                self.command("Page.enable", id, Own::Other);
                // It may have come in between.
                self.probe(id, now);
                return;
            }
        }
        self.attach_if_known();
    }

    fn announce(&mut self, id: &str) {
        if let Some(session) = self.sessions.get_mut(id) {
            session.standing = Standing::Announced;
            if let Some(text) = session.announcement.take() {
                self.out.push(Out::ToWorker(text));
            }
        }
    }

    fn attached(
        &mut self,
        parent: Option<String>,
        text: Bytes,
        now: Instant,
    ) -> Result<(), Violation> {
        let Some(event) = params::<Attached>(&text) else {
            self.out.push(Out::ToWorker(text));
            return Ok(());
        };
        if self.sessions.len() >= MAX_SESSIONS {
            return Err(Violation::Sessions);
        }
        let page = parent.is_none() && event.target_info.kind == "page";
        let own = self.phase == Phase::Running
            && match (&parent, &event.target_info.opener_id) {
                (Some(parent), _) => self.is_driven(|id, _| id == parent),
                (None, Some(opener)) => self.is_driven(|_, session| session.target == *opener),
                (None, None) => page && !self.creating.is_empty(),
            };
        self.attached += 1;
        let mut session = Session::new(
            event.target_info.target_id,
            if page { Kind::Page } else { Kind::Other },
            self.attached,
        );
        let id = event.session_id;
        // What the worker opens itself is its own affair: Playwright wants to set it up before it runs.
        session.driven = own;
        if own || !page {
            session.standing = Standing::Announced;
            self.out.push(Out::ToWorker(text));
        } else {
            session.announcement = Some(text);
        }
        if event.waiting_for_debugger && own {
            session.release_at = Some(now + RELEASE_AFTER);
        }
        self.sessions.insert(id.clone(), session);
        if event.waiting_for_debugger && !own {
            self.release(&id);
        }
        if page && !own {
            self.probe(&id, now);
        }
        Ok(())
    }

    /// Whether the running script has acted in the session that `which` picks.
    fn is_driven(&self, which: impl Fn(&str, &Session) -> bool) -> bool {
        self.sessions
            .iter()
            .any(|(id, session)| session.driven && which(id, session))
    }

    /// Forgets a session; says whether the worker knew it.
    fn detached(&mut self, id: &str) -> Standing {
        let Some(session) = self.sessions.remove(id) else {
            return Standing::Announced;
        };
        self.own
            .retain(|_, own| !matches!(own, Own::Probe(of) if of == id));
        self.unanswered
            .retain(|_, command| command.session.as_deref() != Some(id));
        if session.kind == Kind::Page {
            self.out.push(Out::Gone(session.target));
            self.attach_if_known();
        }
        session.standing
    }

    fn probe(&mut self, id: &str, now: Instant) {
        match self.sessions.get_mut(id) {
            // One at a time: a tab that hangs would otherwise collect them.
            Some(session) if session.kind == Kind::Page && session.probed_at.is_none() => {
                session.probed_at = Some(now);
            }
            _ => return,
        }
        self.command("Page.getFrameTree", id, Own::Probe(id.to_owned()));
    }

    fn release(&mut self, id: &str) {
        if let Some(session) = self.sessions.get_mut(id) {
            session.release_at = None;
        }
        self.command("Runtime.runIfWaitingForDebugger", id, Own::Other);
    }

    fn command(&mut self, method: &str, session: &str, own: Own) {
        let id = self.own_id(own);
        let text =
            format!(r#"{{"id":{id},"method":"{method}","params":{{}},"sessionId":"{session}"}}"#);
        self.out.push(Out::ToBrowser(text.into()));
    }

    fn own_id(&mut self, own: Own) -> i64 {
        let id = self.next_id;
        self.next_id = if id == LAST_OWN_ID {
            FIRST_OWN_ID
        } else {
            id + 1
        };
        // Only a probe's reply is of interest.
        if let Own::Probe(_) = own {
            self.own.insert(id, own);
        }
        id
    }

    /// Lets the worker attach once no tab's first answer is outstanding.
    fn attach_if_known(&mut self) {
        if matches!(self.attach, Attach::Held { .. })
            && !self
                .pages()
                .any(|page| page.standing == Standing::Hidden && page.probed_at.is_some())
        {
            self.release_attach();
        }
    }

    fn release_attach(&mut self) {
        if let Attach::Held { reply, .. } = std::mem::replace(&mut self.attach, Attach::Done) {
            self.out.push(Out::ToWorker(reply));
        }
    }
}

/// Events that tell a script what a page does, and change nothing in Playwright's picture of it.
fn is_noise(method: &str) -> bool {
    method.starts_with("Network.")
        || matches!(
            method,
            "Runtime.consoleAPICalled" | "Runtime.exceptionThrown" | "Log.entryAdded"
        )
}

fn runs_code(method: &str) -> bool {
    matches!(method, "Runtime.evaluate" | "Runtime.callFunctionOn")
}

/// Commands by which a script acts in a page.
fn drives(method: &str) -> bool {
    runs_code(method)
        || method.starts_with("Input.")
        || matches!(
            method,
            "Page.navigate" | "Page.reload" | "Page.navigateToHistoryEntry"
        )
}

/// Playwright's root `Target.setAutoAttach`, without the targets that it would detach from again: parts of Chromium's own windows.
fn auto_attach(id: i64) -> Bytes {
    format!(
        concat!(
            r#"{{"id":{},"method":"Target.setAutoAttach","params":{{"autoAttach":true,"waitForDebuggerOnStart":true,"#,
            r#""flatten":true,"filter":[{{"type":"browser","exclude":true}},{{"type":"tab","exclude":true}},"#,
            r#"{{"type":"browser_ui","exclude":true}},{{}}]}}}}"#
        ),
        id
    )
    .into()
}

fn reply(id: i64, session: &str, result: Value) -> Bytes {
    json!({ "id": id, "result": result, "sessionId": session })
        .to_string()
        .into()
}

fn refusal(id: i64, session: &str) -> Bytes {
    let message = "no call is running in this executor: nothing it left behind may act in a page";
    json!({ "id": id, "error": { "code": -32000, "message": message }, "sessionId": session })
        .to_string()
        .into()
}

/// The same command under another id.
fn with_id(text: &[u8], id: i64) -> Option<Bytes> {
    #[derive(Deserialize, serde::Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Command<'a> {
        id: i64,
        method: String,
        #[serde(borrow, skip_serializing_if = "Option::is_none")]
        params: Option<&'a RawValue>,
        #[serde(skip_serializing_if = "Option::is_none")]
        session_id: Option<String>,
    }
    let mut command: Command = serde_json::from_slice(text).ok()?;
    command.id = id;
    serde_json::to_vec(&command).ok().map(Bytes::from)
}

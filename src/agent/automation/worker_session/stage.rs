//! The stages of a session and their transitions: attaching, settling and running a script.

use std::mem;

use tokio::{sync::oneshot, task::JoinHandle, time::Instant};

use super::{
    WorkerSession,
    exit::ExitReason,
    job::{JobRequest, Outcome, Run},
};
use crate::{
    agent::automation::{front::activity_order, relay::PageChoice},
    system::script::worker::{Page, RunOutcome, ToWorker},
};

pub(super) enum Stage {
    /// The sender receives whether Playwright has attached, or the reason why not.
    Attaching(Option<oneshot::Sender<Result<(), String>>>),
    Idle,
    /// The tabs are being probed, and Chromium is asked which one is in front.
    Settling {
        run: Box<Run>,
        order: TabOrder,
    },
    Running {
        run: Box<Run>,
        deadline: Instant,
    },
}

/// Chromium's order of its tabs by activity.
pub(super) enum TabOrder {
    /// Chromium did not answer, or was not asked because it has one tab at most.
    Unknown,
    Pending(JoinHandle<Option<Vec<String>>>),
    Known(Vec<String>),
}

impl Stage {
    pub(super) fn accepts_jobs(&self) -> bool {
        matches!(self, Stage::Attaching(_) | Stage::Idle)
    }
}

impl WorkerSession {
    pub(super) fn stage_deadline(&self) -> Option<Instant> {
        match &self.stage {
            Stage::Running { deadline, .. } => Some(*deadline),
            Stage::Settling { order, .. } => match self.choose_page(order) {
                PageChoice::Wait(until) => Some(until),
                _ => None,
            },
            _ => None,
        }
    }

    fn choose_page(&self, order: &TabOrder) -> PageChoice {
        let order = match order {
            TabOrder::Known(list) => Some(list.as_slice()),
            _ => None,
        };
        let is_hung = |target: &str| self.context.hung_tabs.contains(target);
        self.relay.choose_page(order, is_hung, Instant::now())
    }

    /// Prepares a script, and starts it unless it has to wait for the tabs.
    pub(super) fn accept_job(&mut self, request: JobRequest) {
        let run = Box::new(Run::new(request));
        let script = run.script();
        let size = script.code.len();
        self.to_worker.push(ToWorker::Prepare(script), size);
        self.relay.settle(Instant::now());
        // With one tab there is nothing to choose from.
        let order = if self.relay.tab_count() > 1 {
            let devtools = self.context.devtools.clone();
            let order = async move { activity_order(&devtools).await };
            TabOrder::Pending(tokio::spawn(order))
        } else {
            TabOrder::Unknown
        };
        self.stage = Stage::Settling { run, order };
    }

    pub(super) fn set_tab_order(&mut self, list: Option<Vec<String>>) {
        if let Stage::Settling { order, .. } = &mut self.stage {
            *order = list.map_or(TabOrder::Unknown, TabOrder::Known);
        }
    }

    /// Starts the script that is settling once its page is known.
    pub(super) fn start_if_settled(&mut self) -> Result<(), ExitReason> {
        let Stage::Settling { order, .. } = &self.stage else {
            return Ok(());
        };
        let page = match (order, self.choose_page(order)) {
            (TabOrder::Pending(_), _) | (_, PageChoice::Wait(_)) => return Ok(()),
            (_, PageChoice::Tab(target)) => Page::Tab(target),
            (_, PageChoice::Fresh) => Page::Fresh,
        };
        let Stage::Settling { run, .. } = mem::replace(&mut self.stage, Stage::Idle) else {
            return Ok(());
        };
        self.perform_actions()?;
        self.relay.run();
        self.start_script(run, page);
        Ok(())
    }

    fn start_script(&mut self, mut run: Box<Run>, page: Page) {
        let (request, deadline) = run.start(page);
        self.to_worker.push(ToWorker::Run(request), 0);
        self.stage = Stage::Running { run, deadline };
    }

    /// Handles that Playwright has attached.
    pub(super) fn on_attached(&mut self) -> Result<(), ExitReason> {
        let Stage::Attaching(sender) = &mut self.stage else {
            return Ok(());
        };
        let sender = sender.take();
        self.stage = Stage::Idle;
        match sender.map(|sender| sender.send(Ok(()))) {
            Some(Ok(())) => Ok(()),
            _ => Err(ExitReason::Unneeded),
        }
    }

    /// Handles the result of a script: an executor's worker becomes idle, any other one ends.
    pub(super) fn on_done(&mut self, result: RunOutcome) -> Result<(), ExitReason> {
        match mem::replace(&mut self.stage, Stage::Idle) {
            Stage::Running { run, .. } if run.job.keep_worker && result.reusable => {
                self.relay.rest();
                self.download_refs.clear();
                self.end_requests();
                run.report(Outcome::from(result), true);
                Ok(())
            }
            stage @ Stage::Running { .. } => {
                self.stage = stage;
                Err(ExitReason::Finished(result))
            }
            stage => {
                self.stage = stage;
                Err(ExitReason::Killed(
                    "the script worker sent a result although no script was running".into(),
                ))
            }
        }
    }
}

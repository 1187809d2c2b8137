//! Kills random processes of an installation.

use std::{collections::VecDeque, time::Duration};

use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::{
    checker::Rules,
    history::{ProcessKind, Recorder},
    installation::{Installation, kill_process},
};
use crate::support::random::Random;

/// The interval at which a process is killed, if there is one of the kind.
const KILL_INTERVAL: Duration = Duration::from_millis(700);
/// Each round kills so many processes of each kind, in random order.
const ROUND: [(ProcessKind, usize); 8] = [
    (ProcessKind::Control, 1),
    (ProcessKind::Agent, 2),
    (ProcessKind::Chromium, 2),
    (ProcessKind::Display, 1),
    (ProcessKind::Renderer, 1),
    (ProcessKind::ChromiumHelper, 1),
    (ProcessKind::ScriptWorker, 1),
    (ProcessKind::ClientProcess, 1),
];
/// Control is killed in the first of so many rounds, if all sessions end with it.
const ROUNDS_PER_CONTROL: usize = 4;

pub struct Killer {
    random: Random,
    recorder: Recorder,
    rules: Rules,
}

impl Killer {
    pub fn new(random: Random, recorder: Recorder, rules: Rules) -> Killer {
        Killer {
            random,
            recorder,
            rules,
        }
    }

    /// Kills processes until `time_is_over`, but at least those of one round.
    pub async fn run(
        mut self,
        installation: &mut impl Installation,
        time_is_over: &CancellationToken,
    ) {
        let mut ticks = interval(KILL_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for number in 0.. {
            let mut round = self.round(number, installation.has_displays());
            while let Some(kind) = round.pop_front() {
                if number > 0 && time_is_over.is_cancelled() {
                    return;
                }
                ticks.tick().await;
                let Some(process) = self.random.choose(installation.processes(kind)) else {
                    // Put off until there is one.
                    round.push_back(kind);
                    continue;
                };
                match kind {
                    ProcessKind::Control => {
                        let random = &mut self.random;
                        installation.kill_control(random, &self.recorder).await;
                    }
                    _ => kill_process(kind, &process, &self.recorder).await,
                }
            }
        }
    }

    fn round(&mut self, number: usize, has_displays: bool) -> VecDeque<ProcessKind> {
        let kinds = ROUND.into_iter();
        let kinds = kinds.filter(|(kind, _)| match kind {
            ProcessKind::Control if self.rules.sessions_end_with_control => {
                number.is_multiple_of(ROUNDS_PER_CONTROL)
            }
            ProcessKind::Display => has_displays,
            _ => true,
        });
        let mut round: Vec<ProcessKind> = kinds
            .flat_map(|(kind, count)| std::iter::repeat_n(kind, count))
            .collect();
        self.random.shuffle(&mut round);
        round.into()
    }
}

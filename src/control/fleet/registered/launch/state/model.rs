//! A model of an engine: random sequences of commands, joining hosts and failing control processes,
//! against the state machine.
//!
//! The rows of the launches are the truth. A command belongs to the process that runs it. When that
//! is killed, programs which the command has started may run on, until the deadline of the command.
//! A process that was stopped beyond that deadline records the end of its command when it runs on.

use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};

use proptest::{collection::vec, prelude::*, sample::Index};

use super::*;

const MAX_LAUNCHES: usize = 3;

/// A step of a sequence. An index selects one of the launches or commands that there are.
#[derive(Debug, Clone)]
enum Step {
    Request,
    Withdraw(Index),
    Start(Index),
    /// A launch command, or what is left of it, creates its machine.
    Create(Index),
    Exit {
        command: Index,
        is_success: bool,
    },
    Join(Index),
    /// A process that does not run the command of a launch gives it up. Another one may run it.
    Interrupt(Index),
    TimeOutJoin(Index),
    EndHost(Index),
    /// The destroy command removes the machine. The process may be killed before it records that.
    Destroy {
        launch: Index,
        is_recorded: bool,
    },
    ControlFails,
}

fn step() -> impl Strategy<Value = Step> {
    let index = any::<Index>;
    prop_oneof![
        3 => Just(Step::Request),
        1 => index().prop_map(Step::Withdraw),
        4 => index().prop_map(Step::Start),
        4 => index().prop_map(Step::Create),
        4 => (index(), prop::bool::weighted(0.7))
            .prop_map(|(command, is_success)| Step::Exit { command, is_success }),
        3 => index().prop_map(Step::Join),
        1 => index().prop_map(Step::Interrupt),
        1 => index().prop_map(Step::TimeOutJoin),
        2 => index().prop_map(Step::EndHost),
        4 => (index(), any::<bool>())
            .prop_map(|(launch, is_recorded)| Step::Destroy { launch, is_recorded }),
        1 => Just(Step::ControlFails),
    ]
}

#[derive(Default)]
struct Engine {
    /// The number of launches that there ever were, and the id of the next one.
    requested: usize,
    rows: BTreeMap<usize, LaunchLife>,
    /// The launches whose command is run by a process.
    commands: BTreeSet<usize>,
    /// The launches whose command has lost its process.
    orphans: BTreeSet<usize>,
    machines: BTreeSet<usize>,
    started: BTreeSet<usize>,
    /// The launches whose command has passed its deadline.
    interrupted: BTreeSet<usize>,
    /// The launches whose row was stored again.
    restored: BTreeSet<usize>,
}

impl Engine {
    fn take(&mut self, step: Step) {
        match step {
            Step::Request if self.rows.len() < MAX_LAUNCHES => {
                self.rows.insert(self.requested, LaunchLife::requested());
                self.requested += 1;
            }
            Step::Request => {}
            Step::Withdraw(index) => self.apply_to_one(&index, Event::Withdrawn),
            Step::Start(index) => {
                if let Some(launch) = self.in_state(State::Requested, &index) {
                    self.apply(launch, Event::Started);
                    assert!(self.started.insert(launch), "launched twice");
                    self.commands.insert(launch);
                }
            }
            Step::Create(index) => {
                let running: Vec<usize> = self.commands.union(&self.orphans).copied().collect();
                if !running.is_empty() {
                    self.machines.insert(*index.get(&running));
                }
            }
            Step::Exit {
                command,
                is_success,
            } => {
                let running: Vec<usize> = self.commands.iter().copied().collect();
                if !running.is_empty() {
                    self.exit(*command.get(&running), is_success);
                }
            }
            Step::Join(index) => {
                let machines: Vec<usize> = self.machines.iter().copied().collect();
                if !machines.is_empty() {
                    self.apply(*index.get(&machines), Event::Joined(HostId::generate()));
                }
            }
            Step::Interrupt(index) => {
                if let Some(launch) = self.in_state(State::Launching, &index) {
                    self.interrupt(launch);
                }
            }
            Step::TimeOutJoin(index) => self.apply_to_one(&index, Event::JoinTimedOut),
            Step::EndHost(index) => self.apply_to_one(&index, Event::HostEnded),
            Step::Destroy {
                launch,
                is_recorded,
            } => {
                if let Some(launch) = self.in_state(State::Destroying, &launch) {
                    self.machines.remove(&launch);
                    if is_recorded {
                        self.apply(launch, Event::Destroyed);
                    }
                }
            }
            Step::ControlFails => self.fail_control(),
        }
    }

    /// Kills the processes, except for those that are stopped.
    fn fail_control(&mut self) {
        let (late, in_time) = std::mem::take(&mut self.commands)
            .into_iter()
            .partition(|launch| self.interrupted.contains(launch));
        self.commands = late;
        self.orphans.extend::<BTreeSet<usize>>(in_time);
    }

    /// Ends a launch command. Its process records the end, even if another one has destroyed the
    /// launch meanwhile.
    fn exit(&mut self, launch: usize, is_success: bool) {
        self.commands.remove(&launch);
        let engine_id: EngineId = launch.to_string().parse().unwrap();
        if is_success {
            self.machines.insert(launch);
        }
        if let Entry::Vacant(restored) = self.rows.entry(launch) {
            let engine_id = is_success.then_some(engine_id);
            restored.insert(LaunchLife::destroying(engine_id));
            self.restored.insert(launch);
            return;
        }
        let event = match is_success {
            true => Event::Created(engine_id),
            false => Event::Failed,
        };
        self.apply(launch, event);
    }

    /// Gives up a launch after the deadline of its command, when no orphan of it runs any more.
    fn interrupt(&mut self, launch: usize) {
        self.orphans.remove(&launch);
        self.interrupted.insert(launch);
        self.apply(launch, Event::Failed);
    }

    fn apply_to_one(&mut self, index: &Index, event: Event) {
        let launches: Vec<usize> = self.rows.keys().copied().collect();
        if !launches.is_empty() {
            self.apply(*index.get(&launches), event);
        }
    }

    fn apply(&mut self, launch: usize, event: Event) {
        let Some(Ok(after)) = self.rows.get(&launch).map(|life| life.apply(event)) else {
            return;
        };
        match after.state {
            State::Gone => self.rows.remove(&launch),
            _ => self.rows.insert(launch, after),
        };
    }

    fn in_state(&self, state: State, index: &Index) -> Option<usize> {
        let rows = self.rows.iter();
        let found: Vec<usize> = rows
            .filter(|(_, life)| life.state == state)
            .map(|(launch, _)| *launch)
            .collect();
        (!found.is_empty()).then(|| *index.get(&found))
    }

    /// Checks that each machine has a row that leads to its destruction, or a command that writes
    /// one.
    fn check(&self) {
        for machine in &self.machines {
            let has_row = self
                .rows
                .get(machine)
                .is_some_and(|life| life.state != State::Requested);
            assert!(has_row || self.commands.contains(machine), "{machine}");
        }
        let rows = self.rows.keys();
        let in_slots = rows.filter(|launch| !self.restored.contains(launch));
        assert!(in_slots.count() <= MAX_LAUNCHES);
    }

    /// Ends everything, as processes do that run long enough.
    fn finish(&mut self) {
        for launch in self.commands.clone() {
            self.exit(launch, false);
        }
        for launch in self.rows.keys().copied().collect::<Vec<_>>() {
            match self.rows[&launch].state {
                State::Requested => self.apply(launch, Event::Withdrawn),
                State::Launching => self.interrupt(launch),
                _ => {}
            }
            self.apply(launch, Event::JoinTimedOut);
            self.apply(launch, Event::HostEnded);
            self.machines.remove(&launch);
            self.apply(launch, Event::Destroyed);
        }
    }
}

proptest! {
    /// No machine is ever unaccounted for, no launch command runs twice, and nothing remains when
    /// all have ended.
    #[test]
    fn every_machine_is_destroyed_after_any_failure(steps in vec(step(), 0..80)) {
        let mut engine = Engine::default();
        for step in steps {
            engine.take(step);
            engine.check();
        }
        engine.finish();
        prop_assert!(engine.machines.is_empty(), "{:?}", engine.machines);
        prop_assert!(engine.rows.is_empty(), "{:?}", engine.rows);
    }
}

//! A model of a fleet: random sequences of what clients, hosts and control processes do, against
//! the state machine.
//!
//! The rows of the hosts are the truth. Agents know only their own generation. Actions wait until
//! they are run, and are lost when their control process fails; the next process derives them from
//! the rows.

use std::collections::{BTreeMap, HashMap};

use proptest::{collection::vec, prelude::*, sample::Index};

use super::*;

/// A step of a sequence. An index selects one of the hosts, sessions or actions that there are.
#[derive(Debug, Clone)]
enum Step {
    Create,
    End(Index),
    Use(Index),
    /// The agent of a starting host responds.
    Start(Index),
    /// An agent is to be started again.
    RequestRestart(Index),
    Run {
        action: Index,
        is_clean: bool,
    },
    /// The agent is given up.
    Crash(Index),
    /// The machine is started again: it has lost its session, and keeps its generation.
    Reboot(Index),
    Miss(Index),
    Return(Index),
    Drain(Index),
    SetLimit(usize),
    ControlFails,
}

fn step() -> impl Strategy<Value = Step> {
    let index = any::<Index>;
    prop_oneof![
        4 => Just(Step::Create),
        3 => index().prop_map(Step::End),
        3 => index().prop_map(Step::Use),
        4 => index().prop_map(Step::Start),
        2 => index().prop_map(Step::RequestRestart),
        6 => (index(), prop::bool::weighted(0.8))
            .prop_map(|(action, is_clean)| Step::Run { action, is_clean }),
        1 => index().prop_map(Step::Crash),
        1 => index().prop_map(Step::Reboot),
        1 => index().prop_map(Step::Miss),
        1 => index().prop_map(Step::Return),
        1 => index().prop_map(Step::Drain),
        1 => (0..5_usize).prop_map(Step::SetLimit),
        1 => Just(Step::ControlFails),
    ]
}

/// A session that has not ended, and its right to a host.
struct Session {
    host: usize,
    /// The generation that its requests name.
    generation: u64,
}

struct Fleet {
    /// The number of hosts that were ever started, and the id of the next one.
    started: usize,
    hosts: BTreeMap<usize, HostLife>,
    /// The generation of each agent that runs.
    agents: BTreeMap<usize, u64>,
    sessions: BTreeMap<BrowserId, Session>,
    actions: Vec<(usize, Action)>,
    limit: usize,
    /// Which session has used each generation of each host.
    uses: HashMap<(usize, u64), BrowserId>,
}

impl Fleet {
    fn new() -> Fleet {
        Fleet {
            started: 0,
            hosts: BTreeMap::new(),
            agents: BTreeMap::new(),
            sessions: BTreeMap::new(),
            actions: Vec::new(),
            limit: 3,
            uses: HashMap::new(),
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Create => self.create(),
            Step::End(index) => {
                if let Some(session) = pick(&self.sessions, &index) {
                    self.end(&session);
                }
            }
            Step::Use(index) => {
                if let Some(session) = pick(&self.sessions, &index) {
                    self.use_host(session);
                }
            }
            Step::Start(index) => {
                if let Some(host) = self.in_state(State::Starting, &index) {
                    self.start(host);
                }
            }
            Step::RequestRestart(index) => self.apply_to_one(&index, Event::RestartBegins),
            Step::Run { action, is_clean } => {
                if !self.actions.is_empty() {
                    let action = self.actions.remove(action.index(self.actions.len()));
                    self.run(action, is_clean);
                }
            }
            Step::Crash(index) => {
                if let Some(host) = pick(&self.hosts, &index) {
                    self.agents.remove(&host);
                    self.apply(host, Event::Stopped);
                }
            }
            Step::Reboot(index) => {
                if let Some(host) = pick(&self.hosts, &index) {
                    self.apply(host, Event::Missed);
                    self.apply(host, Event::Returned);
                }
            }
            Step::Miss(index) => self.apply_to_one(&index, Event::Missed),
            Step::Return(index) => self.apply_to_one(&index, Event::Returned),
            Step::Drain(index) => self.apply_to_one(&index, Event::Drain),
            Step::SetLimit(limit) => self.limit = limit,
            Step::ControlFails => self.take_over(),
        }
    }

    fn create(&mut self) {
        if self.sessions.len() >= self.limit {
            return;
        }
        let session = BrowserId::generate();
        let ready = self
            .hosts
            .iter()
            .find(|(_, life)| life.state == State::Ready);
        let host = match ready.map(|(host, _)| *host) {
            Some(host) => {
                self.apply(host, Event::Claim(session.clone()));
                host
            }
            None => {
                let host = self.started;
                self.started += 1;
                let life = HostLife::starting(Some(session.clone()));
                self.hosts.insert(host, life);
                host
            }
        };
        // A new agent has the generation 1.
        let generation = self.hosts[&host].generation.max(1);
        self.sessions.insert(session, Session { host, generation });
    }

    fn end(&mut self, session: &BrowserId) {
        if let Some(ended) = self.sessions.remove(session) {
            self.apply(ended.host, Event::Release(session.clone()));
        }
    }

    /// Sends a request of a session to its host, whose agent verifies the generation.
    fn use_host(&mut self, session: BrowserId) {
        let Session { host, generation } = self.sessions[&session];
        if self.agents.get(&host) == Some(&generation) {
            let user = self
                .uses
                .entry((host, generation))
                .or_insert(session.clone());
            assert_eq!(*user, session, "two sessions have used one generation");
        }
    }

    /// An agent that starts again continues with its generation.
    fn start(&mut self, host: usize) {
        let life = &self.hosts[&host];
        if life.is_restarting && life.session.is_none() {
            let mut sessions = self.sessions.values();
            let uses =
                |session: &Session| (session.host, session.generation) == (host, life.generation);
            assert!(!sessions.any(uses), "an agent has ended under a session");
        }
        let generation = *self.agents.entry(host).or_insert(1);
        self.apply(host, Event::RestartEnds);
        self.apply(host, Event::Started { generation });
    }

    fn run(&mut self, (host, action): (usize, Action), is_clean: bool) {
        match action {
            Action::EndSession(session) => {
                self.sessions.remove(&session);
            }
            Action::Recycle { generation } => {
                let agent = self.agents.get_mut(&host);
                let event = match agent.filter(|_| is_clean) {
                    Some(current) => {
                        // An earlier attempt may have ended the session already.
                        *current = (*current).max(generation + 1);
                        let generation = *current;
                        Event::Recycled { generation }
                    }
                    None => Event::NotRecycled { generation },
                };
                self.apply(host, event);
            }
            Action::Stop => {
                self.agents.remove(&host);
                self.apply(host, Event::Stopped);
            }
        }
    }

    /// Another control process takes over: what the one before was about to do follows from the
    /// rows.
    fn take_over(&mut self) {
        self.actions.clear();
        for (host, life) in &self.hosts {
            let action = match life.state {
                State::Recycling => Action::Recycle {
                    generation: life.generation,
                },
                State::Retiring => Action::Stop,
                _ => continue,
            };
            self.actions.push((*host, action));
        }
        let hosts = &self.hosts;
        self.sessions.retain(|id, session| {
            let host = hosts.get(&session.host);
            host.is_some_and(|life| life.session.as_ref() == Some(id))
        });
    }

    fn apply_to_one(&mut self, index: &Index, event: Event) {
        if let Some(host) = pick(&self.hosts, index) {
            self.apply(host, event);
        }
    }

    /// Applies an event to the row of a host, if it is possible.
    fn apply(&mut self, host: usize, event: Event) {
        let Some(life) = self.hosts.get_mut(&host) else {
            return;
        };
        if let Ok((after, actions)) = life.apply(event) {
            *life = after;
            let actions = actions.into_iter().map(|action| (host, action));
            self.actions.extend(actions);
        }
        if self.hosts[&host].state == State::Gone {
            self.hosts.remove(&host);
        }
    }

    fn in_state(&self, state: State, index: &Index) -> Option<usize> {
        let hosts = self.hosts.iter().filter(|(_, life)| life.state == state);
        let hosts: Vec<usize> = hosts.map(|(host, _)| *host).collect();
        (!hosts.is_empty()).then(|| hosts[index.index(hosts.len())])
    }

    /// Checks that each session has one host, and each host the session that has it.
    fn check(&self) {
        for (id, session) in &self.sessions {
            let holders = self.hosts.iter();
            let holders = holders.filter(|(_, life)| life.session.as_ref() == Some(id));
            let holders: Vec<usize> = holders.map(|(host, _)| *host).collect();
            let is_ending = self
                .actions
                .contains(&(session.host, Action::EndSession(id.clone())));
            match is_ending {
                true => assert!(holders.is_empty(), "an ended session has a host"),
                false => assert_eq!(holders, [session.host], "the host of a session"),
            }
        }
        for life in self.hosts.values() {
            if let Some(session) = &life.session {
                assert!(self.sessions.contains_key(session), "a session is lost");
            }
        }
    }

    /// Ends everything, and runs all actions.
    fn settle(&mut self) {
        for session in self.sessions.keys().cloned().collect::<Vec<_>>() {
            self.end(&session);
        }
        for host in self.hosts.keys().copied().collect::<Vec<_>>() {
            self.apply(host, Event::Drain);
            // Without a session, it waits for its agent.
            if self
                .hosts
                .get(&host)
                .is_some_and(|life| life.state == State::Starting)
            {
                self.start(host);
            }
        }
        while let Some(action) = self.actions.pop() {
            self.run(action, true);
        }
    }
}

fn pick<K: Clone, V>(map: &BTreeMap<K, V>, index: &Index) -> Option<K> {
    let keys: Vec<&K> = map.keys().collect();
    (!keys.is_empty()).then(|| keys[index.index(keys.len())].clone())
}

proptest! {
    /// No generation of a host has two sessions, no session two hosts, no session is lost or begins
    /// beyond the limit, and in the end nothing is left.
    #[test]
    fn no_host_has_two_sessions_and_nothing_is_lost(steps in vec(step(), 0..200)) {
        let mut fleet = Fleet::new();
        for step in steps {
            let before = fleet.sessions.len();
            fleet.take(step);
            fleet.check();
            // A lower limit ends no session, and no session begins beyond it.
            prop_assert!(fleet.sessions.len() <= before.max(fleet.limit));
        }
        fleet.settle();
        prop_assert!(fleet.sessions.is_empty() && fleet.hosts.is_empty());
    }
}

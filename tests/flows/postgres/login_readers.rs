//! Many readers of the streams of many logins at three control processes. The hosts are simulated.

use std::{
    env,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use futures::future::join_all;
use nix::sys::signal::Signal;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::{sync::watch, task::JoinHandle};

use super::several_processes::start_three;
use crate::support::{
    auth_events::{AuthEvent, AuthEvents},
    dev::Dev,
    processes,
    simulated_agent::SimulatedAgent,
    simulated_login::{DOMAIN, LAST_PASSWORD, LOGIN_URL},
    state::private_directory,
    wait::{in_time, until},
};

/// The number of logins, unless there are more than ten readers of each.
const MIN_FLOWS: usize = 8;
/// The answers of the person of a login before the last one.
const ANSWERS: usize = 4;
/// The process that is killed.
const LEADER: usize = 0;
/// The number of times that all readers join and leave to compare the memory.
const ROUNDS: usize = 10;
/// The memory that a process may hold after these rounds beyond that after one of them.
const MAX_GROWTH_KIB: u64 = 4 << 10;
/// The keys of a state with URLs for its reader.
const URL_KEYS: [&str; 2] = ["hosted_url", "live_view_url"];

/// Returns the number of readers: `BERTH_TEST_FLOW_READERS`, or 40.
fn readers() -> usize {
    let count = env::var("BERTH_TEST_FLOW_READERS");
    count.map_or(40, |count| count.parse().unwrap())
}

/// The control processes.
struct Servers {
    devs: [Dev; 3],
    is_leader_killed: AtomicBool,
}

impl Servers {
    fn is_killed(&self, place: usize) -> bool {
        place == LEADER && self.is_leader_killed.load(Ordering::SeqCst)
    }

    fn survivors(&self) -> impl Iterator<Item = &Dev> {
        self.devs.iter().skip(LEADER + 1)
    }

    /// Returns a process that is not killed.
    fn survivor(&self, index: usize) -> &Dev {
        self.survivors().nth(index % 2).unwrap()
    }

    fn kill_leader(&self) {
        self.is_leader_killed.store(true, Ordering::SeqCst);
        let pid = self.devs[LEADER].pid().as_raw().cast_unsigned();
        processes::signal(pid, Signal::SIGKILL);
    }
}

/// A login, and what its person has done.
struct Login {
    path: String,
    /// The number of its first request.
    waiting: u64,
    /// The number of requests to the person.
    requests: watch::Sender<usize>,
    /// The number of answers that were accepted.
    answers: AtomicUsize,
}

impl Login {
    /// Begins a login, and waits for its first request.
    async fn begin(dev: &Dev, index: usize) -> Login {
        let request = json!({
            "domain": DOMAIN, "profile_name": format!("profile-{index}"), "login_url": LOGIN_URL,
        });
        let created = dev.post("/auth/connections", request).await;
        assert_eq!(created.status, StatusCode::CREATED, "{}", created.body);
        let path = format!("/auth/connections/{}", created.body["id"].as_str().unwrap());
        let begun = dev.post(&format!("{path}/login"), json!({})).await;
        assert_eq!(begun.status, StatusCode::OK, "{}", begun.body);
        let request = dev.request(Method::GET, &format!("{path}/events"));
        let mut events = AuthEvents::open(request).await;
        let waiting = loop {
            let event = events.next().await.unwrap();
            if event.data["who"] == "user" {
                break number(&event);
            }
        };
        Login {
            path,
            waiting,
            requests: watch::Sender::new(0),
            answers: AtomicUsize::new(0),
        }
    }

    /// Waits until the person has had so many requests.
    async fn requests_are(&self, count: usize) {
        let mut requests = self.requests.subscribe();
        let reached = requests.wait_for(|requests| *requests >= count);
        in_time("a request to the person", reached).await.unwrap();
    }

    /// Answers a request at a process, or ends the login: every second one by a cancellation, the
    /// others by a site that does not respond any more.
    async fn answer(&self, dev: &Dev, index: usize, request: &Value) {
        let count = *self.requests.borrow() + 1;
        let is_last = count > ANSWERS;
        if is_last && index.is_multiple_of(2) {
            let canceled = dev.post(&format!("{}/cancel", self.path), json!({})).await;
            assert_eq!(canceled.status, StatusCode::OK, "{}", canceled.body);
        } else {
            let password = if is_last { LAST_PASSWORD } else { "wrong" };
            let answer = json!({
                "fields": {"username": "ada", "password": password},
                "interaction_id": request["interaction_id"],
            });
            let submitted = dev.post(&format!("{}/submit", self.path), answer).await;
            match submitted.status {
                StatusCode::ACCEPTED => self.answers.fetch_add(1, Ordering::Relaxed),
                // Another driver has made a new request.
                _ => {
                    submitted.assert_error(409, "stale_interaction");
                    return;
                }
            };
        }
        self.requests.send_replace(count);
    }
}

fn number(event: &AuthEvent) -> u64 {
    let id = event.id.as_ref().expect("no reset and no error");
    id.split_once(':').unwrap().1.parse().unwrap()
}

/// A reader of the stream of a login.
struct Reader {
    servers: Arc<Servers>,
    login: Arc<Login>,
    /// The process that it reads from.
    place: usize,
    kind: ReaderKind,
    seen: Vec<AuthEvent>,
    /// The number of times that it has lost its process.
    losses: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ReaderKind {
    /// Reads on while it can.
    Staying,
    /// Continues at another process after each event.
    Moving,
    /// Reads on while it can, and answers requests as the person of the login with this index.
    Person(usize),
}

impl Reader {
    fn new(servers: &Arc<Servers>, login: &Arc<Login>, place: usize, kind: ReaderKind) -> Reader {
        Reader {
            servers: servers.clone(),
            login: login.clone(),
            place: place % servers.devs.len(),
            kind,
            seen: Vec::new(),
            losses: 0,
        }
    }

    /// Opens the stream, from the last event that was seen.
    async fn open(&mut self) -> AuthEvents {
        let path = format!("{}/events", self.login.path);
        loop {
            if self.servers.is_killed(self.place) {
                self.leave();
            }
            let mut request = self.servers.devs[self.place].request(Method::GET, &path);
            if let Some(last) = self.seen.last() {
                request = request.header("Last-Event-ID", last.id.as_ref().unwrap());
            }
            match in_time("a stream", request.send()).await {
                Ok(response) => return AuthEvents::of(response),
                Err(error) => assert!(self.servers.is_killed(self.place), "{error}"),
            }
        }
    }

    fn leave(&mut self) {
        self.place = (self.place + 1) % self.servers.devs.len();
    }

    /// Reads to the end of the login, whatever happens to the processes.
    async fn read(mut self, mut events: AuthEvents) -> Reader {
        loop {
            while let Some(event) = events.next().await {
                if let ReaderKind::Person(index) = self.kind
                    && event.data["who"] == "user"
                {
                    let dev = self.servers.survivor(index);
                    self.login.answer(dev, index, &event.data).await;
                }
                let has_ended = event.data["flow_status"] != "IN_PROGRESS";
                self.seen.push(event);
                if has_ended {
                    assert_eq!(events.next().await, None);
                    return self;
                }
                if self.kind == ReaderKind::Moving {
                    break;
                }
            }
            if self.kind != ReaderKind::Moving {
                let is_killed = self.servers.is_killed(self.place);
                assert!(is_killed, "an end of the stream after {:?}", self.seen);
                self.losses += 1;
            }
            self.leave();
            events = self.open().await;
        }
    }
}

/// Returns the number of open streams of a process.
async fn streams(dev: &Dev) -> u64 {
    let request = dev.request(Method::GET, "/metrics");
    let metrics = request.send().await.unwrap().text().await.unwrap();
    let mut lines = metrics.lines();
    let count = lines.find_map(|line| line.strip_prefix("berth_streams_open "));
    count.map_or(0, |count| count.parse().unwrap())
}

fn memory_of(dev: &Dev) -> u64 {
    processes::anonymous_kib(dev.pid().as_raw().cast_unsigned())
}

/// Has all readers join a process at once, read the present state and leave.
async fn join_and_leave(dev: &Dev, logins: &[Arc<Login>]) {
    let joining = (0..readers()).map(async |index| {
        let login = &logins[index % logins.len()];
        let path = format!("{}/events", login.path);
        let mut events = AuthEvents::open(dev.request(Method::GET, &path)).await;
        let first = events.next().await.unwrap();
        assert_eq!(number(&first), login.waiting);
    });
    join_all(joining).await;
    until("the end of the streams", async || {
        (streams(dev).await == 0).then_some(())
    })
    .await;
}

/// Asserts that the memory of the processes that are not killed is the same after any number of
/// readers. The first ones make the process grow: its connections to the database, and the free
/// memory of the allocator.
async fn assert_flat_memory(servers: &Servers, logins: &[Arc<Login>]) {
    for dev in servers.survivors() {
        let before = memory_of(dev);
        join_and_leave(dev, logins).await;
        let after_first = memory_of(dev);
        for _ in 0..ROUNDS {
            join_and_leave(dev, logins).await;
        }
        println!(
            "{before} KiB before the readers, {after_first} after {} of them, {} after {ROUNDS} \
             times as many more",
            readers(),
            memory_of(dev)
        );
        until("the memory to be returned", async || {
            (memory_of(dev) <= after_first + MAX_GROWTH_KIB).then_some(())
        })
        .await;
    }
}

/// Returns an event without the URLs for its reader.
fn without_urls(event: &AuthEvent) -> AuthEvent {
    let mut event = event.clone();
    let state = event.data.as_object_mut().unwrap();
    state.retain(|key, _| !URL_KEYS.contains(&key.as_str()));
    event
}

/// Asserts that readers have seen each state of a login since their first one, once.
async fn assert_complete(dev: &Dev, index: usize, login: &Login, readers: &[Reader]) {
    let first = readers[0].seen[0].id.as_ref().unwrap();
    let (flow, _) = first.split_once(':').unwrap();
    let request = dev.request(Method::GET, &format!("{}/events", login.path));
    let request = request.header("Last-Event-ID", format!("{flow}:0"));
    let all = AuthEvents::open(request).await.rest().await;
    let all: Vec<AuthEvent> = all.iter().map(without_urls).collect();
    let numbers: Vec<u64> = all.iter().map(number).collect();
    let consecutive: Vec<u64> = (1..).take(all.len()).collect();
    assert_eq!(numbers, consecutive);
    assert!(all.len() > 3 * ANSWERS, "{all:#?}");
    let end = &all.last().unwrap().data;
    let (status, code) = match index % 2 {
        0 => ("CANCELED", "canceled"),
        _ => ("FAILED", "site_unavailable"),
    };
    assert_eq!(
        (&end["flow_status"], &end["error_code"]),
        (&status.into(), &code.into())
    );
    // The present state is the first one, for the person and the readers that join before answers.
    let firsts = readers.iter().map(|reader| number(&reader.seen[0]));
    let early = firsts.filter(|first| *first == login.waiting).count();
    assert_eq!(early, 1 + (readers.len() - 1).div_ceil(ANSWERS));
    for reader in readers {
        let seen: Vec<AuthEvent> = reader.seen.iter().map(without_urls).collect();
        let first = usize::try_from(number(&seen[0])).unwrap() - 1;
        assert!(all[first..] == seen, "{seen:#?}\ninstead of\n{all:#?}");
    }
}

/// Asserts that another process has continued logins, and that it has entered no answer again.
fn assert_continued(servers: &Servers, logins: &[Arc<Login>], agents: &[SimulatedAgent]) {
    let mut logs = servers.survivors().map(Dev::log);
    assert!(logs.any(|log| log.contains("continues the login of another process")));
    let accepted = logins.iter();
    let accepted = accepted.map(|login| login.answers.load(Ordering::Relaxed));
    let submitted = agents.iter().map(|agent| agent.login().submitted());
    let (accepted, submitted) = (accepted.sum::<usize>(), submitted.sum::<usize>());
    println!("{accepted} answers, {submitted} forms");
    assert!(submitted <= accepted && submitted > 0);
}

/// Starts the readers of a login. Some join before its person answers, and others later.
async fn start_readers(
    servers: &Arc<Servers>,
    login: &Arc<Login>,
    count: usize,
) -> Vec<JoinHandle<Reader>> {
    let mut reading = Vec::new();
    for number in 0..count {
        let after = number % ANSWERS;
        let kind = match number % (ANSWERS + 1) {
            ANSWERS => ReaderKind::Moving,
            _ => ReaderKind::Staying,
        };
        let mut reader = Reader::new(servers, login, number, kind);
        if after == 0 {
            let events = reader.open().await;
            reading.push(tokio::spawn(reader.read(events)));
        } else {
            reading.push(tokio::spawn(async move {
                reader.login.requests_are(after).await;
                let events = reader.open().await;
                reader.read(events).await
            }));
        }
    }
    reading
}

#[tokio::test]
async fn readers_see_each_state_once_when_a_process_is_killed() {
    let blobs = private_directory();
    let servers = Arc::new(Servers {
        devs: start_three(blobs.path()).await,
        is_leader_killed: AtomicBool::new(false),
    });
    let flows = MIN_FLOWS.max(readers() / 10);
    let joining = (0..flows).map(|_| SimulatedAgent::join(&servers.devs[LEADER]));
    let agents = join_all(joining).await;
    let beginning = (0..flows).map(|index| Login::begin(&servers.devs[index % 3], index));
    let logins = join_all(beginning).await.into_iter().map(Arc::new);
    let logins: Vec<Arc<Login>> = logins.collect();
    assert_flat_memory(&servers, &logins).await;

    let mut reading = Vec::new();
    for login in &logins {
        reading.push(start_readers(&servers, login, readers() / flows).await);
    }
    for (index, login) in logins.iter().enumerate() {
        let mut person = Reader::new(&servers, login, index, ReaderKind::Person(index));
        let events = person.open().await;
        reading[index].push(tokio::spawn(person.read(events)));
    }
    // The leader drives this login.
    logins[0].requests_are(ANSWERS / 2).await;
    servers.kill_leader();
    let mut losses = 0;
    for (index, (login, reading)) in logins.iter().zip(reading).enumerate() {
        let readers = join_all(reading).await.into_iter().map(Result::unwrap);
        let readers: Vec<Reader> = readers.collect();
        assert_complete(servers.survivor(index), index, login, &readers).await;
        losses += readers.iter().map(|reader| reader.losses).sum::<usize>();
    }
    assert!(losses > 0, "no reader has lost its process");
    assert_continued(&servers, &logins, &agents);
    for dev in servers.survivors() {
        println!("{} KiB at the end", memory_of(dev));
    }
    println!(
        "{flows} logins, {} readers, {losses} losses of a process",
        readers()
    );
    let [leader, second, third] = Arc::into_inner(servers).unwrap().devs;
    leader.kill().await;
    second.finish().await;
    third.finish().await;
}

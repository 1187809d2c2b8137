//! A client that creates, uses and ends sessions at random, and sometimes leaves in the middle of a
//! request.

mod fill;
mod pool;

use std::{collections::BTreeSet, time::Duration};

use reqwest::{
    Method, RequestBuilder, StatusCode,
    header::{HeaderMap, HeaderName, HeaderValue},
};
use serde_json::{Value, json};
use tokio::{
    sync::watch,
    time::{MissedTickBehavior, interval, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    history::{Operation, Outcome, Recorder, TestProject},
    installation::{CLIENT_PROCESS_VARIABLE, Installation, Server},
    logins::{Login, LoginPages},
    observe::{Markers, observe},
};
use crate::support::random::Random;

pub use pool::POOL;

/// The header that selects the project of a request by its name.
pub const PROJECT_HEADER: HeaderName = HeaderName::from_static("x-kernel-project");
/// The longest time of a call. Longer than a host may take to start.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(150);
/// The interval between two calls of a client.
const CALL_INTERVAL: Duration = Duration::from_millis(150);
/// The most intervals that a client waits after it got no session, so that those that have one are
/// not slowed down by those that have none.
const MAX_PAUSE: usize = 12;
/// The longest time after which a client leaves before the response.
const MAX_PATIENCE_MILLIS: usize = 2000;
/// The idle timeout of sessions that their client deletes, and the shortest possible one, of those
/// that it leaves.
const LONG_IDLE_TIMEOUT: Duration = Duration::from_secs(900);
const SHORT_IDLE_TIMEOUT: Duration = Duration::from_secs(10);

pub struct Client {
    number: usize,
    project: TestProject,
    random: Random,
    recorder: Recorder,
    servers: watch::Receiver<Vec<Server>>,
    has_displays: bool,
    can_fill: bool,
    /// Names the project in each request.
    http: reqwest::Client,
    logins: LoginPages,
    /// The logins that the project certainly has.
    known_logins: BTreeSet<Login>,
    session: Option<Session>,
    /// The last session that this client has ended.
    ended: Option<Session>,
    created: usize,
    fills: usize,
    /// The intervals that remain until the next call.
    pause: usize,
}

/// A session that the client knows.
#[derive(Clone)]
pub struct Session {
    pub id: String,
    /// The path and query of its DevTools.
    pub devtools: String,
    pub markers: Markers,
    /// Whether the client deletes it, instead of leaving it to its idle timeout.
    is_deleted: bool,
    /// Whether it was acquired from the pool.
    is_pooled: bool,
}

/// Why a request has no usable response.
pub enum Failure {
    /// The request may have had an effect.
    Unknown,
    NoResponse,
}

impl From<reqwest::Error> for Failure {
    fn from(error: reqwest::Error) -> Self {
        match error.is_timeout() {
            true => Failure::NoResponse,
            false => Failure::Unknown,
        }
    }
}

impl From<Failure> for Outcome {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Unknown => Outcome::Unknown,
            Failure::NoResponse => Outcome::NoResponse,
        }
    }
}

/// Returns the outcome of a response about a session, unless it is a success.
pub fn failed(status: StatusCode, body: &Value) -> Option<Outcome> {
    match status.as_u16() {
        200..=299 => None,
        404 | 410 => Some(Outcome::NotFound),
        429 => Some(Outcome::Refused(429)),
        500.. => Some(Outcome::Unknown),
        _ => panic!("unexpected response {status}: {body}"),
    }
}

impl Client {
    pub fn new(
        (number, project): (usize, TestProject),
        random: Random,
        recorder: Recorder,
        installation: &impl Installation,
        logins: LoginPages,
    ) -> Client {
        let project_header = HeaderValue::from_static(project.name());
        let headers = HeaderMap::from_iter([(PROJECT_HEADER, project_header)]);
        let http = reqwest::Client::builder().timeout(CALL_TIMEOUT);
        let http = http.default_headers(headers);
        Client {
            number,
            project,
            random,
            recorder,
            servers: installation.servers(),
            has_displays: installation.has_displays(),
            can_fill: installation.can_fill(),
            http: http.build().expect("a client"),
            logins,
            known_logins: BTreeSet::new(),
            session: None,
            ended: None,
            created: 0,
            fills: 0,
            pause: 0,
        }
    }

    /// Runs until `stop`. A session that remains is deleted, or left to the end of the run.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut ticks = interval(CALL_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !stop.is_cancelled() {
            ticks.tick().await;
            if self.pause > 0 {
                self.pause -= 1;
                continue;
            }
            match self.session.take() {
                None if self.random.one_in(4) => self.look_around().await,
                None if self.project == TestProject::Other => self.create().await,
                None if self.random.one_in(8) => self.disturb_pool().await,
                None if self.random.one_in(2) => self.acquire().await,
                None => self.create().await,
                Some(session) => self.use_session(session).await,
            }
        }
        if self.random.one_in(2)
            && let Some(session) = self.session.take()
        {
            self.delete(session).await;
        }
    }

    /// Creates a session.
    async fn create(&mut self) {
        let name = self.new_name();
        // Each fourth session of a client is on a screen if there are any, and each fourth runs a
        // program: so the processes of both exist soon.
        let variant = (self.number + self.created) % 4;
        let is_deleted = !self.random.one_in(8);
        let idle_timeout = match is_deleted {
            true => LONG_IDLE_TIMEOUT,
            false => SHORT_IDLE_TIMEOUT,
        };
        let properties = json!({
            "name": name,
            "headless": variant != 0 || !self.has_displays,
            "timeout_seconds": idle_timeout.as_secs(),
        });
        let request = self.request(Method::POST, "/browsers").await;
        let operation = Operation::Create {
            name: name.clone(),
            idle_timeout,
        };
        let mut found = None;
        let patience = self.patience();
        let outcome = self
            .call(operation, request.json(&properties), patience, |browser| {
                let session = Session::of(&browser, is_deleted);
                let id = session.id.clone();
                found = Some(session);
                Outcome::Session(id)
            })
            .await;
        if variant == 1
            && let Some(session) = &found
        {
            self.run_program(session).await;
        }
        self.session = found;
        if outcome == Outcome::Unknown {
            self.find(name).await;
        }
        if self.session.is_none() {
            self.pause = self.random.below(MAX_PAUSE);
        }
    }

    /// Returns the name of the next session.
    fn new_name(&mut self) -> String {
        self.created += 1;
        format!("client-{}-{}", self.number, self.created)
    }

    /// Looks up the session of a creation without a definite outcome. Its end may be under way.
    async fn find(&mut self, name: String) {
        let request = self
            .request(Method::GET, &format!("/browsers/{name}"))
            .await;
        let mut found = None;
        self.call(Operation::Find { name }, request, None, |browser| {
            let session = Session::of(&browser, true);
            let id = session.id.clone();
            found = Some(session);
            Outcome::Session(id)
        })
        .await;
        self.session = found;
    }

    /// Lists the sessions, or uses one that has ended.
    async fn look_around(&mut self) {
        match self.ended.clone() {
            Some(ended) if self.random.one_in(2) => {
                self.use_once(&ended).await;
            }
            _ => {
                self.list().await;
            }
        }
    }

    /// Lists the sessions. Returns their names.
    pub async fn list(&mut self) -> Vec<String> {
        let request = self.request(Method::GET, "/browsers?limit=100").await;
        let mut names = Vec::new();
        self.call(Operation::List, request, None, |browsers| {
            let browsers = browsers.as_array().expect("a list");
            names.extend(browsers.iter().map(|browser| text(&browser["name"])));
            let ids = browsers.iter().map(|browser| text(&browser["session_id"]));
            Outcome::Listed(ids.collect::<BTreeSet<String>>())
        })
        .await;
        names
    }

    /// Ends all sessions, also those that no client knows.
    pub async fn end_all(&mut self) {
        loop {
            let names = self.list().await;
            if names.is_empty() {
                return;
            }
            for name in names {
                self.find(name).await;
                if let Some(session) = self.session.take() {
                    self.delete(session).await;
                }
            }
        }
    }

    /// Uses or ends the session. Keeps it unless it has ended.
    async fn use_session(&mut self, mut session: Session) {
        let outcome = match self.random.below(16) {
            4..=7 if self.can_fill => self.fill(&session).await,
            0..=7 => self.observe(&mut session).await,
            8..=11 => self.use_once(&session).await,
            12 => {
                self.list().await;
                Outcome::Done
            }
            // It stays in the list until its idle timeout.
            _ if !session.is_deleted => return,
            14 | 15 if session.is_pooled => return self.release(session).await,
            _ => return self.delete(session).await,
        };
        match outcome {
            Outcome::NotFound => self.ended = Some(session),
            _ => self.session = Some(session),
        }
    }

    async fn observe(&mut self, session: &mut Session) -> Outcome {
        let server = self.server().await;
        let operation = Operation::Observe {
            session: session.id.clone(),
        };
        let observing = observe(&self.http, &server, session);
        let limited = async {
            let observed = timeout(CALL_TIMEOUT, observing).await;
            observed.unwrap_or(Outcome::NoResponse)
        };
        let client = (self.number, self.project);
        self.recorder.call(client, operation, limited).await
    }

    /// Sends a random request of a session.
    async fn use_once(&mut self, session: &Session) -> Outcome {
        match self.random.below(10) {
            0 | 1 => self.send(session, Method::GET, "", Value::Null).await,
            2..=4 => {
                let change = json!({"tags": {"used-by": "a client"}});
                self.send(session, Method::PATCH, "", change).await
            }
            5 => self.run_program(session).await,
            6..=8 => {
                let script = json!({"code": "return (await context.cookies()).length"});
                let route = "/automation/execute";
                self.send(session, Method::POST, route, script).await
            }
            _ => {
                let route = "/json/list";
                self.send(session, Method::GET, route, Value::Null).await
            }
        }
    }

    /// Runs a program beside the browser, which ends with the session.
    async fn run_program(&mut self, session: &Session) -> Outcome {
        let program = json!({
            "command": "sleep", "args": ["600"],
            "env": {CLIENT_PROCESS_VARIABLE: self.server().await.directory},
        });
        self.send(session, Method::POST, "/process/spawn", program)
            .await
    }

    async fn send(
        &mut self,
        session: &Session,
        method: Method,
        route: &str,
        body: Value,
    ) -> Outcome {
        let path = format!("/browsers/{}{route}", session.id);
        let request = self.request(method, &path).await;
        let request = match body {
            Value::Null => request,
            body => request.json(&body),
        };
        let operation = Operation::Use {
            session: session.id.clone(),
        };
        let patience = self.patience();
        self.call(operation, request, patience, |_| Outcome::Done)
            .await
    }

    /// Ends a session. Without a definite outcome, the client uses it further.
    async fn delete(&mut self, session: Session) {
        let path = format!("/browsers/{}", session.id);
        let request = self.request(Method::DELETE, &path).await;
        let operation = Operation::Delete {
            session: session.id.clone(),
        };
        let patience = self.patience();
        let deleted = self.call(operation, request, patience, |_| Outcome::Done);
        match deleted.await {
            Outcome::Done | Outcome::NotFound => self.ended = Some(session),
            _ => self.session = Some(session),
        }
    }

    /// Returns how long the client waits for its next response before it leaves, if it leaves.
    fn patience(&mut self) -> Option<Duration> {
        let millis = self.random.below(MAX_PATIENCE_MILLIS) as u64;
        self.random.one_in(8).then(|| Duration::from_millis(millis))
    }

    /// Returns a request to a random control process.
    async fn request(&mut self, method: Method, path: &str) -> RequestBuilder {
        let server = self.server().await;
        self.request_to(&server, method, path)
    }

    fn request_to(&self, server: &Server, method: Method, path: &str) -> RequestBuilder {
        self.http
            .request(method, format!("{}{path}", server.base_url))
            .bearer_auth(&server.api_key)
    }

    /// Returns a random control process, once there is one.
    async fn server(&mut self) -> Server {
        let servers = self.servers.wait_for(|servers| !servers.is_empty()).await;
        let servers = servers.expect("the installation is there").clone();
        self.random.choose(servers).expect("a server")
    }

    /// Sends a request, waits for its response, at most for `patience`, and records the outcome.
    /// `success` returns that of a successful response.
    async fn call(
        &self,
        operation: Operation,
        request: RequestBuilder,
        patience: Option<Duration>,
        success: impl FnOnce(Value) -> Outcome,
    ) -> Outcome {
        let response = async {
            match send(request).await {
                Ok((status, body)) => failed(status, &body).unwrap_or_else(|| success(body)),
                Err(failure) => failure.into(),
            }
        };
        let client = (self.number, self.project);
        let call = self.recorder.call(client, operation, response);
        match patience {
            Some(limit) => timeout(limit, call).await.unwrap_or(Outcome::Unknown),
            None => call.await,
        }
    }
}

impl Session {
    fn of(browser: &Value, is_deleted: bool) -> Session {
        let id = text(&browser["session_id"]);
        let devtools = text(&browser["cdp_ws_url"]);
        let path = devtools.find("/browsers/").expect("a path");
        Session {
            devtools: devtools[path..].to_owned(),
            markers: Markers::default(),
            is_deleted,
            is_pooled: false,
            id,
        }
    }
}

/// Sends a request and reads the response.
pub async fn send(request: RequestBuilder) -> Result<(StatusCode, Value), Failure> {
    let response = request.send().await?;
    let status = response.status();
    let body = response.bytes().await?;
    Ok((status, serde_json::from_slice(&body).unwrap_or_default()))
}

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}

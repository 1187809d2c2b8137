//! Processes spawned through an agent.

use base64::{Engine, engine::general_purpose::STANDARD};
use reqwest::StatusCode;
use serde_json::{Value, json};

use super::{agent::TestAgent, events::Events, wait::until};

/// A process that was spawned through an agent.
pub struct Spawned<'a> {
    pub agent: &'a TestAgent,
    pub id: String,
    pub pid: u32,
}

/// The complete output of a process and its exit code.
#[derive(Debug, PartialEq, Eq)]
pub struct Output {
    pub stdout: String,
    pub stderr: String,
    pub exit_code: i64,
}

pub fn decode(event: &Value) -> Vec<u8> {
    let data = event["data_b64"].as_str().expect("data");
    STANDARD.decode(data).expect("base64")
}

/// Spawns a process and asserts success.
pub async fn spawn(agent: &TestAgent, body: Value) -> Spawned<'_> {
    let request = agent.post("/process/spawn").json(&body);
    let (status, answer) = agent.answer(request).await;
    assert_eq!(status, StatusCode::CREATED, "{answer}\n{}", agent.log());
    Spawned {
        agent,
        id: answer["process_id"].as_str().expect("an id").to_owned(),
        pid: answer["pid"].as_u64().expect("a number") as u32,
    }
}

/// Spawns a shell that runs the line.
pub async fn shell<'a>(agent: &'a TestAgent, line: &str) -> Spawned<'a> {
    spawn(agent, json!({"command": "sh", "args": ["-c", line]})).await
}

/// Runs a program with `exec`; returns the status and the body.
pub async fn exec(agent: &TestAgent, body: Value) -> (StatusCode, Value) {
    agent.answer(agent.post("/process/exec").json(&body)).await
}

/// Runs a line of shell with `exec` and asserts status 200.
pub async fn exec_shell(agent: &TestAgent, line: &str) -> Output {
    let (status, answer) = exec(agent, json!({"command": "sh", "args": ["-c", line]})).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    executed(&answer)
}

/// Decodes a response of `exec`.
pub fn executed(answer: &Value) -> Output {
    let text = |field: &str| {
        let data = answer[field].as_str().expect("base64");
        String::from_utf8_lossy(&STANDARD.decode(data).expect("base64")).into_owned()
    };
    Output {
        stdout: text("stdout_b64"),
        stderr: text("stderr_b64"),
        exit_code: answer["exit_code"].as_i64().expect("a code"),
    }
}

impl Spawned<'_> {
    fn route(&self, action: &str) -> String {
        format!("/process/{}/{action}", self.id)
    }

    /// Sends a `POST` request to a route of the process.
    pub async fn post(&self, action: &str, body: Value) -> (StatusCode, Value) {
        let request = self.agent.post(&self.route(action)).json(&body);
        self.agent.answer(request).await
    }

    pub async fn status(&self) -> Value {
        self.agent.ok(self.agent.get(&self.route("status"))).await
    }

    /// Sends a signal and asserts success.
    pub async fn kill(&self, signal: &str) {
        let (status, answer) = self.post("kill", json!({"signal": signal})).await;
        assert_eq!((status, answer), (StatusCode::OK, json!({"ok": true})));
    }

    /// Writes to standard input; returns the number of bytes written.
    pub async fn write(&self, data: impl AsRef<[u8]>, end: bool) -> u64 {
        let body = json!({"data_b64": STANDARD.encode(data), "end": end});
        let (status, answer) = self.post("stdin", body).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        answer["written_bytes"].as_u64().expect("a number")
    }

    pub async fn resize(&self, rows: u16, cols: u16) {
        let (status, answer) = self
            .post("resize", json!({"rows": rows, "cols": cols}))
            .await;
        assert_eq!((status, answer), (StatusCode::OK, json!({"ok": true})));
    }

    /// Reads the output from the oldest retained event.
    pub async fn events(&self) -> Events {
        Events::open(self.agent.get(&self.route("stdout/stream"))).await
    }

    /// Reads the output after an event.
    pub async fn events_after(&self, id: u64) -> Events {
        let request = self.agent.get(&self.route("stdout/stream"));
        Events::open(request.header("Last-Event-ID", id)).await
    }

    /// Reads the complete output until the exit.
    pub async fn output(&self) -> Output {
        rest_of(&mut self.events().await).await
    }

    /// Waits for the exit and returns the exit code.
    pub async fn exited(&self) -> i64 {
        until("an exit", async || {
            let status = self.status().await;
            (status["state"] == "exited").then(|| status["exit_code"].as_i64().expect("a code"))
        })
        .await
    }

    /// Returns the URL of the process's terminal.
    pub fn attach_url(&self) -> String {
        self.agent.ws_url(&self.route("attach"))
    }
}

/// Reads until the exit; asserts that the stream ends there.
pub async fn rest_of(events: &mut Events) -> Output {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    loop {
        let (_, event) = events.next().await.expect("an exit before the end");
        match event["stream"].as_str() {
            Some("stdout") => stdout.extend(decode(&event)),
            Some("stderr") => stderr.extend(decode(&event)),
            _ => {
                assert_eq!(event["event"], "exit", "{event}");
                assert_eq!(events.next().await, None);
                return Output {
                    stdout: String::from_utf8_lossy(&stdout).into_owned(),
                    stderr: String::from_utf8_lossy(&stderr).into_owned(),
                    exit_code: event["exit_code"].as_i64().expect("a code"),
                };
            }
        }
    }
}

/// Reads until standard output contains this line.
pub async fn until_line(events: &mut Events, line: &str) {
    let mut text = String::new();
    while !text.lines().any(|found| found == line) {
        let (_, event) = events.next().await.expect("more output");
        text.push_str(&String::from_utf8_lossy(&decode(&event)));
    }
}

//! Records the outputs of the system under test.

use std::{fs, path::Path};

use nix::unistd::Pid;
use parking_lot::Mutex;
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::Value;

use super::search::OutputKind;
use crate::support::{dev::Dev, processes::Process, url_log::UrlLog};

/// An output, and the request, the process or the file that has it.
pub(super) struct Output {
    pub(super) kind: OutputKind,
    pub(super) source: String,
    pub(super) bytes: Vec<u8>,
}

/// The outputs so far.
#[derive(Default)]
pub(super) struct Outputs(Mutex<Vec<Output>>);

impl Outputs {
    pub(super) fn add(
        &self,
        kind: OutputKind,
        source: impl Into<String>,
        output: impl Into<Vec<u8>>,
    ) {
        let (source, bytes) = (source.into(), output.into());
        let output = Output {
            kind,
            source,
            bytes,
        };
        self.0.lock().push(output);
    }

    /// Removes and returns the outputs.
    pub(super) fn taken(&self) -> Vec<Output> {
        std::mem::take(&mut self.0.lock())
    }

    /// Sends a request, and records the head and the body of its response. `None` stands for the
    /// kind of its status.
    pub(super) async fn fetch(
        &self,
        kind: Option<OutputKind>,
        request: RequestBuilder,
    ) -> (StatusCode, Vec<u8>) {
        let (client, request) = request.build_split();
        let request = request.unwrap();
        let source = format!("{} {}", request.method(), request.url().path());
        let response = client.execute(request).await.unwrap();
        let status = response.status();
        let by_status = match status.is_client_error() || status.is_server_error() {
            true => OutputKind::ErrorResponse,
            false => OutputKind::Response,
        };
        let kind = kind.unwrap_or(by_status);
        for (name, value) in response.headers() {
            self.add(kind, format!("{name} of {source}"), value.as_bytes());
        }
        let body = response.bytes().await.unwrap().to_vec();
        self.add(kind, source, body.clone());
        (status, body)
    }

    /// Records the arguments and the environment of a process.
    pub(super) fn add_process(&self, process: &Process) {
        for (kind, file) in [
            (OutputKind::Argument, "cmdline"),
            (OutputKind::Environment, "environ"),
        ] {
            // It may have ended, or be unreadable for its user, too, and so for others.
            let content = fs::read(format!("/proc/{}/{file}", process.pid)).unwrap_or_default();
            self.add(kind, format!("{file} of {}", process.command), content);
        }
    }

    /// Records a log in JSON, in which a panic is one line.
    pub(super) fn add_log(&self, path: &Path) {
        for line in fs::read_to_string(path).unwrap().lines() {
            let kind = match line.contains("thread panicked") {
                true => OutputKind::PanicMessage,
                false => OutputKind::Log,
            };
            self.add(kind, "log", line);
        }
    }

    pub(super) fn add_urls(&self, server: &str, urls: &UrlLog) {
        for url in urls.all() {
            self.add(OutputKind::Url, server, url);
        }
    }
}

/// A client of the server under test that records what it receives.
pub(super) struct ObservedClient<'a> {
    pub(super) dev: &'a Dev,
    pub(super) outputs: &'a Outputs,
}

impl ObservedClient<'_> {
    /// Sends a request, asserts the status, and returns the JSON of the response.
    pub(super) async fn send(&self, request: RequestBuilder, expected: u16) -> Value {
        let (status, body) = self.outputs.fetch(None, request).await;
        let text = String::from_utf8_lossy(&body);
        assert_eq!(status, expected, "{text}");
        serde_json::from_slice(&body).unwrap_or_default()
    }

    pub(super) async fn get(&self, path: &str) -> Value {
        self.send(self.dev.request(Method::GET, path), 200).await
    }

    pub(super) async fn post(&self, path: &str, body: Value, expected: u16) -> Value {
        let request = self.dev.request(Method::POST, path);
        self.send(request.json(&body), expected).await
    }

    pub(super) async fn patch(&self, path: &str, body: Value, expected: u16) -> Value {
        let request = self.dev.request(Method::PATCH, path);
        self.send(request.json(&body), expected).await
    }

    pub(super) async fn delete(&self, path: &str) {
        let request = self.dev.request(Method::DELETE, path);
        self.send(request, 204).await;
    }

    /// Runs a script, which must succeed.
    pub(super) async fn execute(&self, browser: &str, code: &str) -> Value {
        let path = format!("/browsers/{browser}/automation/execute");
        let request = serde_json::json!({ "code": code });
        let mut run = self.post(&path, request, 200).await;
        assert_eq!(run["success"], true, "{run}");
        run["result"].take()
    }

    /// Reads something else than a response of the API.
    pub(super) async fn read(&self, kind: OutputKind, path: &str) -> Vec<u8> {
        let request = self.dev.request(Method::GET, path);
        let (status, body) = self.outputs.fetch(Some(kind), request).await;
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&body));
        body
    }

    /// Records control and all its processes. Returns their command lines.
    pub(super) fn add_processes(&self) -> Vec<String> {
        let own = Process {
            pid: self.dev.pid().as_raw().cast_unsigned(),
            command: "control".to_owned(),
        };
        let others = self.dev.descendants().into_iter();
        let others = others.map(|(pid, command): (Pid, String)| Process {
            pid: pid.as_raw().cast_unsigned(),
            command,
        });
        let processes: Vec<Process> = others.chain([own]).collect();
        for process in &processes {
            self.outputs.add_process(process);
            // It may have ended.
            let limit = core_limit(process.pid).unwrap_or_else(|| "0".to_owned());
            assert_eq!(limit, "0", "{}", process.command);
        }
        processes.into_iter().map(|it| it.command).collect()
    }
}

/// Returns the most bytes of a core file that the kernel writes of a process, if it has not ended.
pub(super) fn core_limit(pid: u32) -> Option<String> {
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
    let mut lines = limits.lines();
    let core = lines.find(|line| line.starts_with("Max core file size"))?;
    core.split_whitespace().nth(4).map(str::to_owned)
}

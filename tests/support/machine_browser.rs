//! Machines of the VM image that join control, and their browsers.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::{
    dev::Dev,
    machine::{Machine, Start, free_port, from_inside},
    spawned::executed,
};

impl Machine {
    /// Starts a machine whose agent joins control, with settings that the firmware passes.
    pub async fn join(dev: &Dev, token: &str) -> Machine {
        Machine::join_with(dev, token, Start::default()).await
    }

    /// Starts such a machine with further properties.
    pub async fn join_with(dev: &Dev, token: &str, mut start: Start) -> Machine {
        let port = free_port();
        let settings = [
            ("control_url", from_inside(&dev.base_url)),
            ("allow_plain_http", "true".to_owned()),
            ("join_token", token.to_owned()),
            ("advertise", format!("127.0.0.1:{port}")),
        ];
        start.credentials.extend(settings);
        Machine::start_at(start, port).await
    }
}

/// A browser of a machine.
pub struct MachineBrowser<'a> {
    pub dev: &'a Dev,
    pub path: String,
}

impl<'a> MachineBrowser<'a> {
    pub async fn create(dev: &'a Dev) -> Self {
        let created = dev.post("/browsers", json!({})).await;
        assert_eq!(created.status, 201, "{}", created.body);
        let id = created.body["session_id"].as_str().unwrap();
        MachineBrowser {
            dev,
            path: format!("/browsers/{id}"),
        }
    }

    /// Sends a request with a body to a route of the browser, which must succeed.
    pub async fn post(&self, route: &str, body: Value) -> Value {
        let answer = self.dev.post(&format!("{}{route}", self.path), body).await;
        assert!(answer.status.is_success(), "{route}: {}", answer.body);
        answer.body
    }

    /// Returns the body of a response.
    pub async fn download(&self, route: &str) -> Vec<u8> {
        let path = format!("{}{route}", self.path);
        let response = self.dev.request(Method::GET, &path).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK, "{route}");
        response.bytes().await.unwrap().to_vec()
    }

    /// Runs TypeScript and returns its result.
    pub async fn run(&self, code: &str) -> Value {
        let answer = self
            .post("/automation/execute", json!({ "code": code }))
            .await;
        assert_eq!(answer["success"], true, "{answer}");
        answer["result"].clone()
    }

    /// Runs a shell script in the machine, which must succeed, and returns its output.
    pub async fn shell(&self, script: &str, as_root: bool) -> String {
        let body = json!({"command": "sh", "args": ["-c", script], "as_root": as_root});
        let answer = self.post("/process/exec", body).await;
        let output = executed(&answer);
        assert_eq!(output.exit_code, 0, "{script}: {output:?}");
        output.stdout.trim().to_owned()
    }
}

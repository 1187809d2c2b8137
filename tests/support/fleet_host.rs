//! A host that registers itself, without an agent: its key, and the requests that its agent sends.

use berth::system::identity::{HostKey, TokenAudience};
use reqwest::Method;
use serde_json::{Value, json};

use super::dev::{Answer, Dev};

pub struct FleetHost {
    pub key: HostKey,
    pub id: String,
    pub boot_id: String,
}

impl FleetHost {
    /// Registers a host with a new join token.
    pub async fn register(dev: &Dev) -> FleetHost {
        let token = join_token(dev, json!({})).await;
        let key = HostKey::generate().unwrap();
        let answer = register(dev, &token, &registration(&key)).await;
        assert_eq!(answer.status, 201, "{}", answer.body);
        FleetHost {
            key,
            id: answer.body["host_id"].as_str().unwrap().to_owned(),
            boot_id: "first-boot".to_owned(),
        }
    }

    pub fn path(&self) -> String {
        format!("/fleet/hosts/{}", self.id)
    }

    /// Registers the host again with its own key.
    pub async fn register_again(&self, dev: &Dev) -> Answer {
        let token = self.key.token(TokenAudience::Registration).unwrap();
        let mut request = registration(&self.key);
        request["boot_id"] = self.boot_id.as_str().into();
        register(dev, &token, &request).await
    }

    /// Sends a heartbeat.
    pub async fn report(&self, dev: &Dev, generation: u64, ready: bool) -> Answer {
        let report = json!({
            "boot_id": self.boot_id, "generation": generation, "ready": ready,
        });
        let token = self.key.token(TokenAudience::Heartbeat).unwrap();
        heartbeat(dev, &self.path(), &token, &report).await
    }

    /// Returns the host's entry in the list, or null.
    pub async fn record(&self, dev: &Dev) -> Value {
        let listed = dev.get("/fleet/hosts?limit=100").await.body;
        let mut entries = listed.as_array().unwrap().iter();
        let found = entries.find(|entry| entry["id"] == self.id.as_str());
        found.cloned().unwrap_or_default()
    }
}

/// Creates a join token and returns its secret.
pub async fn join_token(dev: &Dev, properties: Value) -> String {
    let created = dev.post("/fleet/join_tokens", properties).await;
    assert_eq!(created.status, 201, "{}", created.body);
    created.body["token"].as_str().unwrap().to_owned()
}

/// Returns the registration of a host with that key.
pub fn registration(key: &HostKey) -> Value {
    json!({
        "address": "10.0.0.7:10001",
        "boot_id": "first-boot",
        "certificate_request": key.certificate_request().unwrap(),
        "capabilities": {
            "display": true,
            "max_viewport": {"width": 3840, "height": 2160},
            "engine": "chromium",
            "memory_bytes": 4_294_967_296_u64,
        },
        "version": "0.1.0",
    })
}

pub async fn register(dev: &Dev, token: &str, request: &Value) -> Answer {
    let sent = dev.anonymous(Method::POST, "/fleet/hosts").json(request);
    Answer::of(sent.bearer_auth(token)).await
}

pub async fn heartbeat(dev: &Dev, host: &str, token: &str, report: &Value) -> Answer {
    let sent = dev.anonymous(Method::POST, &format!("{host}/heartbeat"));
    Answer::of(sent.json(report).bearer_auth(token)).await
}

//! `/auth/connections`.

use serde_json::{Value, json};

use crate::support::dev::Dev;

mod bad_input;
mod collection;
mod item;
mod names;

const PATH: &str = "/auth/connections";

/// Creates a connection with further fields, and returns it.
async fn create(dev: &Dev, domain: &str, profile: &str, fields: Value) -> Value {
    let mut request = json!({"domain": domain, "profile_name": profile});
    let fields = fields.as_object().unwrap().clone();
    request.as_object_mut().unwrap().extend(fields);
    let created = dev.post(PATH, request).await;
    assert_eq!(created.status, 201, "{}", created.body);
    created.body
}

fn path(connection: &Value) -> String {
    format!("{PATH}/{}", connection["id"].as_str().unwrap())
}

/// Creates a credential with a password.
async fn credential(dev: &Dev, name: &str, domain: &str) -> Value {
    let request = json!({"name": name, "domain": domain, "values": {"password": "secret"}});
    let created = dev.post("/credentials", request).await;
    assert_eq!(created.status, 201, "{}", created.body);
    created.body
}

/// Creates a credential provider, which receives no request.
async fn provider(dev: &Dev, name: &str) -> Value {
    let request = json!({
        "name": name,
        "provider_type": "kv",
        "token": "a-token",
        "base_url": "https://vault.example.com",
    });
    let created = dev.post("/org/credential_providers", request).await;
    assert_eq!(created.status, 201, "{}", created.body);
    created.body
}

/// Returns whether a connection can be logged in again, and why.
fn reauth(connection: &Value) -> (bool, &str) {
    let reason = connection["can_reauth_reason"].as_str().unwrap();
    (connection["can_reauth"].as_bool().unwrap(), reason)
}

//! `/credentials`.

use serde_json::{Value, json};

use crate::support::dev::Dev;

mod bad_input;
mod collection;
mod item;
mod totp_code;

/// The Base32 form of the secret in the appendix of RFC 6238.
const TOTP_SECRET: &str = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ";

/// Creates a credential with a user name and a password, and returns it.
async fn create(dev: &Dev, name: &str) -> Value {
    let request = json!({
        "name": name,
        "domain": "example.com",
        "values": {"username": "admin", "password": "a secret"},
    });
    let created = dev.post("/credentials", request).await;
    assert_eq!(created.status, 201, "{}", created.body);
    created.body
}

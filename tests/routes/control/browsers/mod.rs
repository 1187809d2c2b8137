//! `/browsers`.

mod bad_input;
mod change;
mod create;
mod credentials;
mod delete;
mod json;
mod list;
mod replays;
mod session;

use serde_json::Value;

/// Returns a browser's id.
fn id(browser: &Value) -> &str {
    browser["session_id"].as_str().unwrap()
}

//! The codes of the hosted login page. The logins have no host, and wait for one.

use reqwest::{Method, StatusCode, header::DATE};
use serde_json::{Value, json};

use crate::flows::pool_queue::OPTIONS as NO_HOSTS;
use crate::support::dev::{Answer, Dev};

/// The attempts at once of an address and a connection (docs/limits.md).
const ATTEMPTS: usize = 10;
const GUESSES: usize = 1000;
const UNKNOWN: &str = "/auth/connections/conn_00000000000000000000000000";

/// A login that waits for its person.
struct Handoff {
    path: String,
    code: String,
}

impl Handoff {
    async fn begin(dev: &Dev, domain: &str) -> Handoff {
        let request = json!({"domain": domain, "profile_name": "shop"});
        let created = dev.post("/auth/connections", request).await;
        assert_eq!(created.status, StatusCode::CREATED, "{}", created.body);
        let path = format!("/auth/connections/{}", created.body["id"].as_str().unwrap());
        let begun = dev.post(&format!("{path}/login"), json!({})).await;
        assert_eq!(begun.status, StatusCode::OK, "{}", begun.body);
        let code = begun.body["handoff_code"].as_str().unwrap().to_owned();
        Handoff { path, code }
    }

    async fn cancel(&self, dev: &Dev) {
        let canceled = dev.post(&format!("{}/cancel", self.path), json!({})).await;
        assert_eq!(canceled.status, StatusCode::OK, "{}", canceled.body);
    }
}

/// Starts a server whose clients have the address that they name.
async fn start() -> Dev {
    Dev::with(&[&NO_HOSTS[..], &["--trusted-proxies", "127.0.0.1"]].concat()).await
}

/// Exchanges a code from an address, without an API key.
async fn exchange(dev: &Dev, address: &str, path: &str, body: &Value) -> Answer {
    let request = dev.anonymous(Method::POST, &format!("{path}/exchange"));
    let request = request.header("x-forwarded-for", address);
    Answer::of(request.json(body)).await
}

async fn exchange_code(dev: &Dev, address: &str, path: &str, code: &str) -> Answer {
    exchange(dev, address, path, &json!({ "code": code })).await
}

/// Asserts that responses differ in nothing but their time and the id of their request.
fn assert_alike<'a>(answers: impl IntoIterator<Item = &'a Answer>) {
    let mut answers = answers.into_iter().map(|answer| {
        let mut headers = answer.headers.clone();
        headers.remove(DATE);
        headers.remove("x-request-id");
        (answer.status, headers, &answer.body)
    });
    let first = answers.next().unwrap();
    for answer in answers {
        assert_eq!(answer, first);
    }
}

/// Returns different codes of the right form.
fn guesses() -> impl Iterator<Item = String> {
    (0..GUESSES).map(|number| format!("handoff_{number:064x}"))
}

#[tokio::test]
async fn code_that_is_used_wrong_or_of_another_connection_is_refused_alike() {
    let dev = start().await;
    let first = Handoff::begin(&dev, "example.com").await;
    let second = Handoff::begin(&dev, "example.org").await;
    let expired = Handoff::begin(&dev, "example.net").await;
    let id = expired.path.rsplit_once('/').unwrap().1;
    let expire = "UPDATE auth_flows SET handoff_expires_at = created_at WHERE connection_id";
    dev.sql(&format!("{expire} = '{id}'")).await;
    let canceled = Handoff::begin(&dev, "example.edu").await;
    canceled.cancel(&dev).await;
    let used = exchange_code(&dev, "192.0.2.1", &first.path, &first.code).await;
    assert_eq!(used.status, StatusCode::OK, "{}", used.body);
    let mut answers = Vec::new();
    for (path, code) in [
        (first.path.as_str(), first.code.as_str()),
        (&first.path, &second.code),
        (&first.path, "handoff_0000"),
        (&first.path, "x"),
        (&expired.path, &expired.code),
        (&canceled.path, &canceled.code),
        (UNKNOWN, &second.code),
        ("/auth/connections/x", &second.code),
    ] {
        let refused = exchange_code(&dev, "192.0.2.1", path, code).await;
        refused.assert_error(401, "invalid_handoff_code");
        answers.push(refused);
    }
    assert_alike(&answers);
    for body in [
        json!({}),
        json!({"code": ""}),
        json!({"code": "x".repeat(257)}),
    ] {
        let refused = exchange(&dev, "192.0.2.1", &first.path, &body).await;
        refused.assert_error(400, "bad_request");
    }
    dev.finish().await;
}

#[tokio::test]
async fn thousand_guesses_of_many_addresses_are_refused_alike() {
    let dev = start().await;
    let login = Handoff::begin(&dev, "example.com").await;
    let mut refused = Vec::new();
    for (number, guess) in guesses().enumerate() {
        let address = format!("192.0.2.{}", number / ATTEMPTS);
        refused.push(exchange_code(&dev, &address, &login.path, &guess).await);
    }
    refused[0].assert_error(401, "invalid_handoff_code");
    assert_alike(&refused);
    let right = exchange_code(&dev, "198.51.100.1", &login.path, &login.code).await;
    assert_eq!(right.status, StatusCode::OK, "{}", right.body);
    login.cancel(&dev).await;
    dev.finish().await;
}

#[tokio::test]
async fn guesses_of_one_address_are_limited_and_lock_out_nobody_else() {
    let dev = start().await;
    let login = Handoff::begin(&dev, "example.com").await;
    let mut answers = Vec::new();
    for guess in guesses() {
        answers.push(exchange_code(&dev, "192.0.2.1", &login.path, &guess).await);
    }
    let (limited, refused): (Vec<&Answer>, Vec<&Answer>) = answers
        .iter()
        .partition(|answer| answer.status == StatusCode::TOO_MANY_REQUESTS);
    // One more may be permitted in the time that the guesses take.
    assert!(limited.len() > GUESSES / 2, "{} are limited", limited.len());
    assert!(refused.len() >= ATTEMPTS, "{} are refused", refused.len());
    refused[0].assert_error(401, "invalid_handoff_code");
    limited[0].assert_error(429, "limit_exceeded");
    assert_ne!(limited[0].header("retry-after"), "");
    assert_alike(refused);
    assert_alike(limited);
    let right = exchange_code(&dev, "192.0.2.2", &login.path, &login.code).await;
    assert_eq!(right.status, StatusCode::OK, "{}", right.body);
    login.cancel(&dev).await;
    dev.finish().await;
}

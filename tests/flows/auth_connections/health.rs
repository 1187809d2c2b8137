//! Connections that are kept logged in.

use serde_json::{Value, json};

use crate::support::{
    auth_login::{TestConnection, credential, dev_with},
    dev::Dev,
    login_sites::LoginSites,
    wait::until,
    webhook_receiver::WebhookReceiver,
};

const SECRET: &str = "a secret of at least 16 bytes";
const SITE: &str = "expiry.test";

/// A connection that is logged in, and the endpoint that gets its events.
struct Kept<'a> {
    connection: TestConnection<'a>,
    hooks: WebhookReceiver,
}

impl<'a> Kept<'a> {
    /// Logs a connection in by a stored credential, and keeps or removes that.
    async fn log_in(dev: &'a Dev, sites: &LoginSites, fields: Value) -> Kept<'a> {
        let hooks = WebhookReceiver::start(SECRET).await;
        let events = [
            "auth_connection.login_succeeded",
            "auth_connection.login_failed",
            "auth_connection.needs_auth",
            "auth_connection.recovered",
            "auth_connection.reauth_stopped",
            "auth_connection.expires_soon",
        ];
        let webhook = json!({"url": hooks.url, "events": events, "secret": SECRET});
        let created = dev.post("/org/webhooks", webhook).await;
        assert_eq!(created.status, 201, "{}", created.body);
        let name = credential(dev, SITE, &sites.ada, json!({})).await;
        let mut request = json!({"credential": {"name": name}});
        for (key, value) in fields.as_object().unwrap() {
            request[key] = value.clone();
        }
        let connection = TestConnection::create(dev, sites, SITE, request).await;
        let events = connection.login().await.rest().await;
        let last = &events.last().unwrap().data;
        assert_eq!(last["flow_status"], "SUCCESS", "{last:#}");
        Kept { connection, hooks }
    }

    /// Makes the next of what is scheduled be due, and waits for the health check.
    async fn check(&self) -> Value {
        let before = self.checks().await.len();
        self.make_due("check_at").await;
        until("a health check", async || {
            let mut checks = self.checks().await;
            (checks.len() > before).then(|| checks.remove(0))
        })
        .await
    }

    async fn make_due(&self, column: &str) {
        let id = self.connection.path.rsplit('/').next().unwrap();
        let now = chrono::Utc::now().timestamp_millis();
        // As if a login or a check was longer ago.
        let change = format!(
            "UPDATE auth_connections SET {column} = {now}, health_revision = health_revision + 1 \
             WHERE id = '{id}'"
        );
        self.connection.dev.rows(&change).await;
    }

    /// Returns the entries of health checks, newest first.
    async fn checks(&self) -> Vec<Value> {
        self.entries("health_check").await
    }

    async fn entries(&self, event_type: &str) -> Vec<Value> {
        let path = format!("{}/timeline?type={event_type}", self.connection.path);
        let listed = self.connection.dev.get(&path).await.body;
        listed.as_array().unwrap().clone()
    }

    /// Waits until the record has a value.
    async fn has(&self, key: &str, value: Value) -> Value {
        until(key, async || {
            let found = self.connection.get().await;
            (found[key] == value).then_some(found)
        })
        .await
    }

    /// Returns the events about the status, in the order of their creation.
    async fn events(&self) -> Vec<String> {
        let received = self.hooks.received();
        let mut events: Vec<(String, String)> = received
            .iter()
            .map(|it| {
                let text = |key: &str| it.body[key].as_str().unwrap().to_owned();
                (
                    text("created_at"),
                    text("type").replace("auth_connection.", ""),
                )
            })
            .collect();
        events.sort();
        events.into_iter().map(|(_, event)| event).collect()
    }
}

fn outcome(check: &Value) -> (&str, &str, Option<&str>) {
    let text = |key: &str| check[key].as_str();
    (
        text("previous_status").unwrap(),
        text("status").unwrap(),
        text("error_code"),
    )
}

const STILL_LOGGED_IN: (&str, &str, Option<&str>) = ("AUTHENTICATED", "AUTHENTICATED", None);

#[tokio::test]
async fn session_that_has_ended_is_found_by_two_checks_and_renewed() {
    let sites = LoginSites::serve().await;
    let dev = dev_with(&sites, &[]).await;
    let kept = Kept::log_in(&dev, &sites, json!({})).await;
    let profile = format!("/profiles/profile-{SITE}");
    let version = dev.get(&profile).await.body["version"].clone();
    let check = kept.check().await;
    assert_eq!(outcome(&check), STILL_LOGGED_IN, "{check:#}");
    assert!(check["browser_session_id"].is_string(), "{check:#}");
    let found = kept.connection.get().await;
    assert!(found["last_auth_check_at"].as_str() > found["last_auth_at"].as_str());
    // A site may have replaced the cookies.
    assert_ne!(dev.get(&profile).await.body["version"], version);

    sites.expire_sessions_of(SITE);
    let check = kept.check().await;
    let once = ("AUTHENTICATED", "AUTHENTICATED", Some("logged_out"));
    assert_eq!(outcome(&check), once, "{check:#}");
    assert_eq!(kept.connection.get().await["status"], "AUTHENTICATED");
    let check = kept.check().await;
    let twice = ("AUTHENTICATED", "NEEDS_AUTH", Some("logged_out"));
    assert_eq!(outcome(&check), twice, "{check:#}");
    let found = kept.has("status", json!("AUTHENTICATED")).await;
    assert_eq!(found["flow_type"], "REAUTH", "{found:#}");
    assert_eq!(found["flow_status"], "SUCCESS", "{found:#}");
    kept.connection
        .assert_logged_in(&sites, SITE, &sites.ada)
        .await;
    kept.hooks.event("auth_connection.recovered").await;
    let expected = [
        "login_succeeded",
        "needs_auth",
        "login_succeeded",
        "recovered",
    ];
    let mut events = kept.events().await;
    // Both are of one transaction.
    events[2..].sort();
    assert_eq!(events, expected);
    assert_eq!(sites.received_by(SITE).len(), 2);
    assert_eq!(dev.get("/browsers").await.body, json!([]));
    dev.finish().await;
}

#[tokio::test]
async fn rejected_credential_is_given_up_until_it_changes() {
    let sites = LoginSites::serve().await;
    let dev = dev_with(&sites, &[]).await;
    let kept = Kept::log_in(&dev, &sites, json!({})).await;
    sites.set_password(SITE, &sites.ada, "another-password");
    sites.expire_sessions_of(SITE);
    kept.check().await;
    kept.check().await;
    let stopped = kept.hooks.event("auth_connection.reauth_stopped").await;
    assert_eq!(stopped.body["data"]["error_code"], "credential_rejected");
    let found = kept.has("can_reauth", json!(false)).await;
    assert_eq!(found["can_reauth_reason"], "requires_customer_input");
    assert_eq!(found["status"], "NEEDS_AUTH");
    assert_eq!(found["next_reauth_at"], Value::Null);
    // The account is not locked: the stored password was entered once.
    assert_eq!(sites.received_by(SITE).len(), 2);
    let check = kept.check().await;
    assert_eq!(
        outcome(&check),
        ("NEEDS_AUTH", "NEEDS_AUTH", Some("logged_out"))
    );
    assert_eq!(sites.received_by(SITE).len(), 2);

    let values = json!({"values": {"password": "another-password"}});
    let changed = dev.patch(&format!("/credentials/{SITE}"), values).await;
    assert_eq!(changed.status, 200, "{}", changed.body);
    let found = kept.has("status", json!("AUTHENTICATED")).await;
    assert_eq!(found["can_reauth"], true, "{found:#}");
    dev.finish().await;
}

#[tokio::test]
async fn site_that_is_down_is_no_end_of_a_session() {
    let sites = LoginSites::serve().await;
    let dev = dev_with(&sites, &[]).await;
    let kept = Kept::log_in(&dev, &sites, json!({"auto_reauth": false})).await;
    sites.set_down(SITE, true);
    for _ in 0..2 {
        let check = kept.check().await;
        let down = ("AUTHENTICATED", "AUTHENTICATED", Some("site_unavailable"));
        assert_eq!(outcome(&check), down, "{check:#}");
    }
    sites.set_down(SITE, false);
    assert_eq!(outcome(&kept.check().await), STILL_LOGGED_IN);
    // Without automatic logins a check finds that the site knows the session again.
    sites.suspend_sessions(SITE, true);
    kept.check().await;
    kept.check().await;
    assert_eq!(kept.connection.get().await["status"], "NEEDS_AUTH");
    sites.suspend_sessions(SITE, false);
    let check = kept.check().await;
    assert_eq!(outcome(&check), ("NEEDS_AUTH", "AUTHENTICATED", None));
    kept.hooks.event("auth_connection.recovered").await;
    assert_eq!(
        kept.events().await,
        ["login_succeeded", "needs_auth", "recovered"]
    );
    assert_eq!(kept.entries("reauth").await, [Value::Null; 0]);
    dev.finish().await;
}

#[tokio::test]
async fn expiry_of_the_session_is_known_and_announced() {
    let sites = LoginSites::serve().await;
    let dev = dev_with(&sites, &[]).await;
    let kept = Kept::log_in(&dev, &sites, json!({"health_checks": false})).await;
    let found = kept.connection.get().await;
    let expires_at = found["session_expires_at"].as_str().unwrap().to_owned();
    assert!(expires_at.as_str() > found["last_auth_at"].as_str().unwrap());
    assert_eq!(found["next_auth_check_at"], Value::Null, "{found:#}");
    kept.make_due("warn_at").await;
    let warning = kept.hooks.event("auth_connection.expires_soon").await;
    let data = &warning.body["data"];
    assert_eq!(data["session_expires_at"], expires_at, "{data:#}");
    assert_eq!(data["status"], "AUTHENTICATED");
    let patched = json!({"health_checks": true});
    let changed = dev.patch(&kept.connection.path, patched).await;
    assert!(
        changed.body["next_auth_check_at"].is_string(),
        "{}",
        changed.body
    );
    assert_eq!(outcome(&kept.check().await), STILL_LOGGED_IN);
    assert_eq!(kept.events().await, ["login_succeeded", "expires_soon"]);
    dev.finish().await;
}

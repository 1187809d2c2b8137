//! Auth connections to the login sites of the tests.

use reqwest::Method;
use serde_json::{Value, json};

use super::{
    auth_events::AuthEvents,
    dev::Dev,
    login_sites::{LoginSites, Member},
};

/// A connection, and the server that has it.
pub struct TestConnection<'a> {
    pub dev: &'a Dev,
    pub path: String,
}

/// Starts a server whose browsers find the sites.
pub async fn dev_with(sites: &LoginSites, options: &[&str]) -> Dev {
    let flags = [sites.resolver_flag(), sites.certificate_flag()];
    let mut all: Vec<&str> = flags.iter().map(String::as_str).collect();
    all.extend(options);
    Dev::with(&all).await
}

/// Stores a member's user name and password for a site, and more values. Returns its name.
pub async fn credential(dev: &Dev, site: &str, member: &Member, more: Value) -> String {
    let mut request = json!({
        "name": site,
        "domain": site,
        "values": {"username": member.user, "password": member.password},
    });
    let more = more.as_object().unwrap().clone();
    for (key, value) in more {
        match (request.get_mut(&key), value) {
            (Some(Value::Object(known)), Value::Object(values)) => known.extend(values),
            (_, value) => request[key] = value,
        }
    }
    let created = dev.post("/credentials", request).await;
    assert_eq!(created.status, 201, "{}", created.body);
    site.to_owned()
}

impl<'a> TestConnection<'a> {
    /// Creates a connection to the login page of a site, with further fields.
    pub async fn create(dev: &'a Dev, sites: &LoginSites, site: &str, fields: Value) -> Self {
        let mut request = json!({
            "domain": site,
            "profile_name": format!("profile-{site}"),
            "login_url": sites.secure_url(site, "/login"),
        });
        for (key, value) in fields.as_object().unwrap() {
            request[key] = value.clone();
        }
        let created = dev.post("/auth/connections", request).await;
        assert_eq!(created.status, 201, "{}", created.body);
        let id = created.body["id"].as_str().unwrap();
        TestConnection {
            dev,
            path: format!("/auth/connections/{id}"),
        }
    }

    pub async fn get(&self) -> Value {
        self.dev.get(&self.path).await.body
    }

    /// Begins a login, and returns its events.
    pub async fn login(&self) -> AuthEvents {
        self.begin().await;
        self.events().await
    }

    /// Begins a login, and returns the response.
    pub async fn begin(&self) -> Value {
        let path = format!("{}/login", self.path);
        let begun = self.dev.post(&path, json!({})).await;
        assert_eq!(begun.status, 200, "{}", begun.body);
        begun.body
    }

    pub async fn events(&self) -> AuthEvents {
        let path = format!("{}/events", self.path);
        AuthEvents::open(self.dev.request(Method::GET, &path)).await
    }

    pub async fn submit(&self, answer: Value) {
        let path = format!("{}/submit", self.path);
        let submitted = self.dev.post(&path, answer).await;
        assert_eq!(submitted.status, 202, "{}", submitted.body);
    }

    /// Returns the timeline, oldest first.
    pub async fn timeline(&self) -> Vec<Value> {
        let listed = self
            .dev
            .get(&format!("{}/timeline?limit=100", self.path))
            .await;
        let mut entries = listed.body.as_array().unwrap().clone();
        entries.reverse();
        entries
    }

    /// Asserts that the site knows a browser with the saved profile as a member.
    pub async fn assert_logged_in(&self, sites: &LoginSites, site: &str, member: &Member) {
        let profile = json!({"name": format!("profile-{site}")});
        let request = json!({"headless": true, "profile": profile});
        let browser = self.dev.post("/browsers", request).await;
        assert_eq!(browser.status, 201, "{}", browser.body);
        let id = browser.body["session_id"].as_str().unwrap();
        let url = sites.secure_url(site, "/whoami");
        let code =
            format!("await page.goto('{url}'); return JSON.parse(await page.innerText('body'))");
        let path = format!("/browsers/{id}/automation/execute");
        let found = self.dev.post(&path, json!({"code": code})).await;
        assert_eq!(found.body["result"]["user"], member.user, "{}", found.body);
        self.dev.delete(&format!("/browsers/{id}")).await;
    }
}

/// Returns the steps of events or of timeline entries, with their statuses.
pub fn steps<'v>(entries: impl IntoIterator<Item = &'v Value>) -> Vec<String> {
    let text = |entry: &Value, key: &str| entry[key].as_str().unwrap_or_default().to_owned();
    let steps = entries.into_iter().map(|entry| {
        let event = text(entry, "flow_step") + &text(entry, "step");
        let status = text(entry, "flow_status") + &text(entry, "status");
        format!("{event} {status}")
    });
    let mut steps: Vec<String> = steps.collect();
    steps.dedup();
    steps
}

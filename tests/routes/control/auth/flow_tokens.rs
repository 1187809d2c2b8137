//! Tokens of login flows, and the routes that they are valid for.

use chrono::{TimeDelta, Utc};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use crate::support::{
    dev::{Answer, Dev},
    flow_tokens::issue_flow_token,
    wait::until,
};

/// The operations that a token is valid for.
const ALLOWED: [&str; 4] = [
    "GET /auth/connections/{id}",
    "GET /auth/connections/{id}/events",
    "POST /auth/connections/{id}/submit",
    "POST /auth/connections/{id}/cancel",
];

/// A server with a connection.
struct Fixture {
    dev: Dev,
    connection: Value,
    project: String,
}

impl Fixture {
    async fn start() -> Fixture {
        let dev = Dev::start().await;
        let context = dev.get("/auth/context").await.body;
        let connection = create(&dev, "example.com").await;
        Fixture {
            dev,
            connection,
            project: context["project_id"].as_str().unwrap().to_owned(),
        }
    }

    fn path(&self) -> String {
        path(&self.connection)
    }

    /// Issues a token for the connection and an API key.
    async fn token_for(&self, api_key: &str) -> String {
        let (dev, now) = (&self.dev, Utc::now());
        issue_flow_token(dev, &self.connection, &self.project, api_key, now).await
    }

    async fn token(&self) -> String {
        self.token_for(&self.dev.api_key).await
    }

    /// Returns a request with a token in its header, and one with the token in its URL.
    fn requests(&self, method: &Method, path: &str, token: &str) -> [RequestBuilder; 2] {
        let in_url = format!("{path}?jwt={token}");
        [
            self.dev.anonymous(method.clone(), path).bearer_auth(token),
            self.dev.anonymous(method.clone(), &in_url),
        ]
    }

    async fn assert_rejected(&self, method: Method, path: &str, token: &str) {
        for request in self.requests(&method, path, token) {
            let response = Answer::of(request).await;
            response.assert_error(401, "unauthorized");
        }
    }

    async fn get(&self, path: &str, token: &str) -> [Answer; 2] {
        let [header, url] = self.requests(&Method::GET, path, token);
        [Answer::of(header).await, Answer::of(url).await]
    }
}

async fn create(dev: &Dev, domain: &str) -> Value {
    let request = json!({"domain": domain, "profile_name": "shop"});
    let created = dev.post("/auth/connections", request).await;
    assert_eq!(created.status, 201, "{}", created.body);
    created.body
}

fn path(connection: &Value) -> String {
    format!("/auth/connections/{}", connection["id"].as_str().unwrap())
}

#[tokio::test]
async fn flow_token_reads_its_connection() {
    let fixture = Fixture::start().await;
    let token = fixture.token().await;
    let [in_header, in_url] = fixture.get(&fixture.path(), &token).await;
    for response in [&in_header, &in_url] {
        assert_eq!(response.status, 200, "{}", response.body);
        assert_eq!(response.body, fixture.connection);
    }
    assert_eq!(in_header.header("referrer-policy"), "");
    assert_eq!(in_url.header("referrer-policy"), "no-referrer");
    for request in fixture.requests(&Method::HEAD, &fixture.path(), &token) {
        assert_eq!(request.send().await.unwrap().status(), 200);
    }
    // An API key in the header takes precedence.
    let url = format!("{}?jwt={token}", fixture.path());
    let with_key = fixture.dev.get(&url).await;
    assert_eq!(with_key.status, 200, "{}", with_key.body);
    let wrong = fixture.dev.anonymous(Method::GET, &url).bearer_auth("x");
    Answer::of(wrong).await.assert_error(401, "unauthorized");
    // Headers do not select another project.
    let other = json!({"name": "other"});
    let other = fixture.dev.post("/org/projects", other).await.body;
    let other = other["id"].as_str().unwrap();
    for request in fixture.requests(&Method::GET, &fixture.path(), &token) {
        let response = Answer::of(request.header("x-project-id", other)).await;
        assert_eq!(response.status, 200, "{}", response.body);
    }
    assert!(!fixture.dev.log().contains(&token));
    fixture.dev.finish().await;
}

#[tokio::test]
async fn flow_token_opens_nothing_else() {
    let fixture = Fixture::start().await;
    let token = fixture.token().await;
    let id = fixture.connection["id"].as_str().unwrap();
    let document = fixture.dev.anonymous(Method::GET, "/openapi.json");
    let document = Answer::of(document).await.body;
    let mut checked = 0;
    for (template, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let Some(security) = operation["security"].as_array() else {
                continue;
            };
            assert!(!security.is_empty());
            let method = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
            let name = format!("{method} {template}");
            if ALLOWED.contains(&name.as_str()) {
                continue;
            }
            let path = match template.starts_with("/fleet/hosts/{id}") {
                true => template.replace("{id}", "host_01kgc3v7e8r9t0w1x2y3z4a5b6"),
                false => template.replace("{id}", id),
            };
            let methods = match method {
                Method::GET => vec![Method::GET, Method::HEAD],
                other => vec![other],
            };
            for method in methods {
                for request in fixture.requests(&method, &path, &token) {
                    let request = request.json(&json!({}));
                    let status = request.send().await.unwrap().status();
                    assert_eq!(status, 401, "{method} {path}");
                }
            }
            checked += 1;
        }
    }
    assert!(checked > 100, "{checked}");
    fixture
        .assert_rejected(Method::GET, "/metrics", &token)
        .await;
    let unchanged = fixture.dev.get(&fixture.path()).await;
    assert_eq!(unchanged.body, fixture.connection);
    fixture.dev.finish().await;
}

#[tokio::test]
async fn flow_token_is_valid_for_its_connection_only() {
    let fixture = Fixture::start().await;
    let token = fixture.token().await;
    let other = create(&fixture.dev, "example.org").await;
    for operation in ALLOWED {
        let (method, template) = operation.split_once(' ').unwrap();
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let of_other = template.replace("{id}", other["id"].as_str().unwrap());
        fixture.assert_rejected(method, &of_other, &token).await;
    }
    for method in [Method::PATCH, Method::DELETE, Method::PUT, Method::POST] {
        fixture
            .assert_rejected(method, &fixture.path(), &token)
            .await;
    }
    let upper = fixture.path().replace("conn_", "CONN_");
    fixture.assert_rejected(Method::GET, &upper, &token).await;
    let encoded = fixture.path().replace("conn_", "conn%5F");
    fixture.assert_rejected(Method::GET, &encoded, &token).await;
    // A token of a connection in another project finds nothing.
    let project = json!({"name": "other"});
    let project = fixture.dev.post("/org/projects", project).await.body;
    let project = project["id"].as_str().unwrap();
    let (dev, now) = (&fixture.dev, Utc::now());
    let foreign = issue_flow_token(dev, &fixture.connection, project, &dev.api_key, now).await;
    for response in fixture.get(&fixture.path(), &foreign).await {
        response.assert_error(404, "not_found");
    }
    let deleted = fixture.dev.delete(&fixture.path()).await;
    assert_eq!(deleted.status, 204, "{}", deleted.body);
    for response in fixture.get(&fixture.path(), &token).await {
        response.assert_error(404, "not_found");
    }
    fixture.dev.finish().await;
}

#[tokio::test]
async fn invalid_flow_token_is_401() {
    let fixture = Fixture::start().await;
    let token = fixture.token().await;
    let (dev, past) = (&fixture.dev, Utc::now() - TimeDelta::minutes(31));
    let key = &dev.api_key;
    let expired = issue_flow_token(dev, &fixture.connection, &fixture.project, key, past).await;
    let (content, signature) = token.rsplit_once('.').unwrap();
    let (_, foreign) = expired.rsplit_once('.').unwrap();
    assert_ne!(signature, foreign);
    for invalid in [
        expired.clone(),
        format!("{content}.{foreign}"),
        format!("{content}."),
        format!("{token}.{signature}"),
        "eyJ..".to_owned(),
        "x.y.z".to_owned(),
    ] {
        fixture
            .assert_rejected(Method::GET, &fixture.path(), &invalid)
            .await;
    }
    // The audit log names the kind of the credential, and has no part of it.
    let window = "start=2020-01-01T00:00:00Z&end=2100-01-01T00:00:00Z";
    let query = format!("/audit-logs?{window}&auth_strategy=flow_token");
    let entries = until("the failed requests", async || {
        let entries = dev.get(&query).await.body;
        // Each with the token in the URL, and all with the form of a token in the header.
        (entries.as_array().unwrap().len() == 10).then_some(entries)
    })
    .await;
    for entry in entries.as_array().unwrap() {
        assert_eq!(entry["status"], 401);
        assert_eq!(entry["route"], "/auth/connections/{id}");
    }
    for text in [entries.to_string(), dev.log()] {
        assert!(!text.contains(signature) && !text.contains(foreign));
    }
    fixture.dev.finish().await;
}

#[tokio::test]
async fn flow_token_ends_with_the_key_of_its_flow() {
    let fixture = Fixture::start().await;
    let dev = &fixture.dev;
    let key = json!({"name": "of a flow"});
    let key = dev.post("/org/api_keys", key).await;
    assert_eq!(key.status, 201, "{}", key.body);
    let token = fixture.token_for(key.body["key"].as_str().unwrap()).await;
    for response in fixture.get(&fixture.path(), &token).await {
        assert_eq!(response.status, 200, "{}", response.body);
    }
    let id = key.body["id"].as_str().unwrap();
    let deleted = dev.delete(&format!("/org/api_keys/{id}")).await;
    assert_eq!(deleted.status, 204, "{}", deleted.body);
    fixture
        .assert_rejected(Method::GET, &fixture.path(), &token)
        .await;
    fixture.dev.finish().await;
}

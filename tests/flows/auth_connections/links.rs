//! The tokens with which a person takes part in a login, and its stream of events.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::{
    auth_events::AuthEvents,
    auth_login::{TestConnection, dev_with},
    dev::{Answer, Dev},
    login_sites::LoginSites,
};

/// Begins a login, and returns its code.
async fn code(connection: &TestConnection<'_>) -> String {
    let path = format!("{}/login", connection.path);
    let begun = connection.dev.post(&path, json!({})).await;
    assert_eq!(begun.status, 200, "{}", begun.body);
    begun.body["handoff_code"].as_str().unwrap().to_owned()
}

/// Exchanges a code, without an API key.
async fn exchange(dev: &Dev, path: &str, code: &str) -> Answer {
    let request = dev.anonymous(Method::POST, &format!("{path}/exchange"));
    Answer::of(request.json(&json!({ "code": code }))).await
}

async fn with_token(dev: &Dev, method: Method, path: &str, token: &str, body: Value) -> Answer {
    let request = dev.anonymous(method, path).bearer_auth(token);
    Answer::of(request.json(&body)).await
}

#[tokio::test]
async fn person_logs_in_with_the_token_of_a_code() {
    let sites = LoginSites::serve().await;
    let dev = dev_with(&sites, &[]).await;
    // Otherwise the second login needs no person.
    let fields = json!({"save_credentials": false});
    let connection = TestConnection::create(&dev, &sites, "password.test", fields).await;
    let path = &connection.path;
    let exchanged = exchange(&dev, path, &code(&connection).await).await;
    let token = exchanged.body["jwt"].as_str().unwrap().to_owned();
    let request = dev.anonymous(Method::GET, &format!("{path}/events"));
    let mut events = AuthEvents::open(request.bearer_auth(&token)).await;
    let request = events.request().await;
    // Only a person that has to act there gets the live view.
    assert_eq!(request["live_view_url"], Value::Null, "{request:#}");
    let record = dev.get(path).await.body;
    assert!(record["live_view_url"].is_string(), "{record:#}");
    let answer = json!({"fields": {"username": sites.ada.user, "password": sites.ada.password}});
    let submit = format!("{path}/submit");
    let submitted = with_token(&dev, Method::POST, &submit, &token, answer).await;
    assert_eq!(submitted.status, 202, "{}", submitted.body);
    let rest = events.rest().await;
    assert_eq!(
        rest.last().unwrap().data["flow_status"],
        "SUCCESS",
        "{rest:#?}"
    );
    let found = with_token(&dev, Method::GET, path, &token, json!({})).await;
    assert_eq!(found.body["status"], "AUTHENTICATED", "{}", found.body);

    // The token is for this login only, and for nothing else of the connection.
    sites.expire_sessions();
    let mut next = connection.login().await;
    next.request().await;
    let answer = json!({"fields": {"username": "x", "password": "y"}});
    let refused = with_token(&dev, Method::POST, &submit, &token, answer).await;
    refused.assert_error(409, "not_awaiting_input");
    let cancel = format!("{path}/cancel");
    let refused = with_token(&dev, Method::POST, &cancel, &token, json!({})).await;
    refused.assert_error(409, "not_awaiting_input");
    let found = with_token(&dev, Method::GET, path, &token, json!({})).await;
    assert_eq!(found.body["flow_status"], "SUCCESS", "{}", found.body);
    for (method, rest) in [
        (Method::DELETE, ""),
        (Method::PATCH, ""),
        (Method::POST, "/login"),
        (Method::GET, "/timeline"),
    ] {
        let refused = with_token(&dev, method, &format!("{path}{rest}"), &token, json!({})).await;
        refused.assert_error(401, "unauthorized");
    }
    dev.finish().await;
}

#[tokio::test]
async fn stream_continues_after_each_event() {
    let sites = LoginSites::serve().await;
    let dev = dev_with(&sites, &[]).await;
    let connection = TestConnection::create(&dev, &sites, "password.test", json!({})).await;
    let mut events = connection.login().await;
    events.request().await;
    let answer = json!({"fields": {"username": sites.ada.user, "password": sites.ada.password}});
    connection.submit(answer).await;
    events.rest().await;
    // All states of the login, from its beginning.
    let path = format!("{}/events", connection.path);
    let from = async |last: &str| {
        let request = dev
            .request(Method::GET, &path)
            .header("Last-Event-ID", last);
        AuthEvents::open(request).await.rest().await
    };
    let last = connection.events().await.rest().await;
    assert_eq!(last.len(), 1);
    let (flow, _) = last[0].id.as_ref().unwrap().split_once(':').unwrap();
    let all = from(&format!("{flow}:0")).await;
    assert!(all.len() > 3, "{all:#?}");
    let (end, others) = all.split_last().unwrap();
    for (index, event) in others.iter().enumerate() {
        let rest = from(event.id.as_ref().unwrap()).await;
        assert_eq!(rest, all[index + 1..]);
    }
    let last_id = end.id.as_ref().unwrap();
    let request = dev.request(Method::GET, &path);
    let finished = request.header("Last-Event-ID", last_id).send().await;
    assert_eq!(finished.unwrap().status(), StatusCode::NO_CONTENT);
    for unknown in ["x", "flow_1:2", &format!("{flow}:1000")] {
        let found = from(unknown).await;
        assert_eq!(found[0].data["event"], "reset", "{unknown}");
        assert_eq!(found[1], last[0]);
    }
    dev.finish().await;
}

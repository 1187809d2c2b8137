//! Gives the system under test the secrets of logins: codes and tokens of persons, and the values
//! that they submit.

use reqwest::Method;
use serde_json::{Value, json};

use super::{encodings::PlantedSecret, outputs::ObservedClient, plant::text, search::OutputKind};
use crate::support::{auth_events::AuthEvents, login_site::LoginSite};

const USER_NAME: &str = "canary-of-a-submitted-name";
const PASSWORD: &str = "canary of a \"submitted\" \\ <password&%>";

/// Begins a login, answers it as a person, with valid and invalid requests, and cancels it. Returns
/// its secrets.
pub(super) async fn use_logins(client: &ObservedClient<'_>) -> Vec<PlantedSecret> {
    let site = LoginSite::serve().await;
    let connection = json!({
        "domain": "localhost",
        "profile_name": "canary-of-logins",
        "login_url": format!("{}/login", site.url),
    });
    let created = client.post("/auth/connections", connection, 201).await;
    let path = format!("/auth/connections/{}", text(&created["id"]));
    // The response has the code.
    let begun = client
        .dev
        .post(&format!("{path}/login"), json!({}))
        .await
        .body;
    let code = text(&begun["handoff_code"]);
    let exchange = format!("{path}/exchange");
    let exchanged = client.dev.post(&exchange, json!({ "code": code })).await;
    let token = text(&exchanged.body["jwt"]);
    for (body, status) in [
        (json!({ "code": code }), 401),
        (json!({ "code": [code] }), 400),
        (json!({ "code": code.repeat(10) }), 400),
    ] {
        client.post(&exchange, body, status).await;
    }

    let in_url = |rest: &str| format!("{path}{rest}?jwt={token}");
    let request = client.dev.anonymous(Method::GET, &in_url("/events"));
    let mut events = AuthEvents::open(request).await;
    let request = events.request().await;
    record(client, &request);
    for rest in ["/timeline", "/login"] {
        let request = client.dev.anonymous(Method::GET, &in_url(rest));
        client.send(request.bearer_auth(&token), 401).await;
    }
    let request = client.dev.anonymous(Method::GET, &path);
    client.send(request.bearer_auth(&token), 200).await;

    let submit = format!("{path}/submit");
    for (body, status) in [
        (
            json!({"fields": {"user": USER_NAME, "pass": [PASSWORD]}}),
            400,
        ),
        (
            json!({"fields": {"user": USER_NAME, "other": PASSWORD}}),
            400,
        ),
        (json!({"fields": PASSWORD}), 400),
        (json!({"fields": {"pass": PASSWORD.repeat(200)}}), 400),
        (
            json!({"field_values": {"pass": PASSWORD}, "interaction_id": "x"}),
            409,
        ),
        (
            json!({"fields": {"user": USER_NAME, "pass": PASSWORD}}),
            202,
        ),
    ] {
        client.post(&submit, body, status).await;
    }
    site.submitted().await;
    client.get(&path).await;
    client.get(&format!("{path}/timeline?limit=100")).await;
    client.post(&format!("{path}/cancel"), json!({}), 200).await;
    for event in events.rest().await {
        record(client, &event.data);
    }
    client.outputs.add_urls("a login site", &site.urls);
    vec![
        PlantedSecret::new("the code of a login", code),
        PlantedSecret::new("the token of a login", token),
        PlantedSecret::new("a submitted user name", USER_NAME),
        PlantedSecret::new("a submitted password", PASSWORD),
    ]
}

fn record(client: &ObservedClient<'_>, event: &Value) {
    let outputs = client.outputs;
    outputs.add(OutputKind::Event, "a login", event.to_string());
}

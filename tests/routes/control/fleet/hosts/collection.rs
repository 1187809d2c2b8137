//! `/fleet/hosts`.

use berth::system::identity::{HostKey, TokenAudience};
use futures::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{
    dev::{Answer, Dev},
    fleet_host::{FleetHost, join_token, register, registration},
    wait::until,
};

const PATH: &str = "/fleet/hosts";

#[tokio::test]
async fn join_token_buys_an_identity_once() {
    let dev = Dev::start().await;
    let token = join_token(&dev, json!({"labels": {"zone": "a"}})).await;
    let key = HostKey::generate().unwrap();
    let created = register(&dev, &token, &registration(&key)).await;
    assert_eq!(created.status, 201, "{}", created.body);
    let text = |field: &str| created.body[field].as_str().unwrap();
    assert!(text("host_id").starts_with("host_"));
    assert!(text("certificate").starts_with("-----BEGIN CERTIFICATE-----"));
    assert!(text("ca_certificate").starts_with("-----BEGIN CERTIFICATE-----"));
    assert!(text("certificate_expires_at").ends_with('Z'));
    assert_eq!(created.body["heartbeat_interval_seconds"], 10);

    let other = HostKey::generate().unwrap();
    let used_up = register(&dev, &token, &registration(&other)).await;
    used_up.assert_error(401, "unauthorized");

    let listed = dev.get(PATH).await.body;
    let host = &listed[0];
    let known = [
        "id",
        "state",
        "draining",
        "generation",
        "address",
        "boot_id",
        "version",
    ];
    let found = known.map(|field| host[field].clone());
    let expected = [
        json!(text("host_id")),
        json!("starting"),
        json!(false),
        json!(0),
        json!("10.0.0.7:10001"),
        json!("first-boot"),
        json!("0.1.0"),
    ];
    assert_eq!(found, expected);
    assert_eq!(host["labels"], json!({"zone": "a"}));
    assert_eq!(host["capabilities"], registration(&key)["capabilities"]);
    assert_eq!(host.get("session_id"), None);
    assert_eq!(listed.as_array().unwrap().len(), 1);
    let tokens = dev.get("/fleet/join_tokens").await.body;
    assert_eq!(tokens[0]["remaining_uses"], 0);
    assert!(tokens[0]["last_used_at"].is_string());
    dev.finish().await;
}

#[tokio::test]
async fn concurrent_registrations_take_each_use_once() {
    let dev = Dev::start().await;
    let token = join_token(&dev, json!({"uses": 3})).await;
    let registrations = (0..9).map(|_| async {
        let key = HostKey::generate().unwrap();
        register(&dev, &token, &registration(&key)).await
    });
    let answers = join_all(registrations).await;
    let mut statuses: Vec<u16> = answers
        .iter()
        .map(|answer| answer.status.as_u16())
        .collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [201, 201, 201, 401, 401, 401, 401, 401, 401]);
    let listed = dev.get(PATH).await.body;
    assert_eq!(listed.as_array().unwrap().len(), 3);
    let first = dev.get(&format!("{PATH}?limit=2")).await;
    assert_eq!(first.header("x-next-offset"), "2");
    dev.finish().await;
}

#[tokio::test]
async fn tokens_that_are_not_valid_are_not_distinguished() {
    let dev = Dev::start().await;
    let created = dev.post("/fleet/join_tokens", json!({})).await.body;
    let token = created["token"].as_str().unwrap();
    let expired = join_token(&dev, json!({"expires_at": "2999-01-01T00:00:00Z"})).await;
    dev.sql("UPDATE join_tokens SET expires_at = 1 WHERE expires_at IS NOT NULL")
        .await;
    let used_up = join_token(&dev, json!({})).await;
    let key = HostKey::generate().unwrap();
    let request = registration(&key);
    assert_eq!(register(&dev, &used_up, &request).await.status, 201);
    let last = if token.ends_with('0') { "1" } else { "0" };
    let wrong = format!("{}{last}", &token[..token.len() - 1]);
    let path = format!("/fleet/join_tokens/{}", created["id"].as_str().unwrap());
    assert_eq!(dev.delete(&path).await.status, 204);
    let unknown = HostKey::generate().unwrap();
    let request = registration(&unknown);
    let mut messages = Vec::new();
    for refused in [token, &expired, &used_up, &wrong, "berth_join_x"] {
        let answer = register(&dev, refused, &request).await;
        answer.assert_error(401, "unauthorized");
        messages.push(answer.body["message"].clone());
    }
    assert!(
        messages.iter().all(|message| *message == messages[0]),
        "{messages:?}"
    );
    // Neither does an API key, or a key that control does not know.
    let foreign = unknown.token(TokenAudience::Registration).unwrap();
    for (refused, code) in [
        (dev.api_key.as_str(), "unauthorized"),
        (&foreign, "unknown_host"),
        ("a.b.c", "unauthorized"),
    ] {
        let answer = register(&dev, refused, &request).await;
        answer.assert_error(401, code);
    }
    let anonymous = dev.anonymous(Method::POST, PATH).json(&request);
    Answer::of(anonymous)
        .await
        .assert_error(401, "unauthorized");
    assert_eq!(dev.get(PATH).await.body.as_array().unwrap().len(), 1);
    dev.finish().await;
}

#[tokio::test]
async fn known_machine_regains_its_identity_with_its_own_key_only() {
    let dev = Dev::start().await;
    let host = FleetHost::register(&dev).await;
    let again = host.register_again(&dev).await;
    assert_eq!(
        (again.status.as_u16(), &again.body["host_id"]),
        (201, &json!(host.id))
    );

    // A request for a certificate proves nothing: anyone may have seen it.
    let token = join_token(&dev, json!({})).await;
    let replayed = register(&dev, &token, &registration(&host.key)).await;
    replayed.assert_error(409, "conflict");
    assert_eq!(replayed.header("x-should-retry"), "false");
    let tokens = dev.get("/fleet/join_tokens").await.body;
    assert_eq!(tokens[0]["remaining_uses"], 1);

    let other = HostKey::generate().unwrap();
    for (credential, request, status) in [
        // Another machine's token for this host's key, and the reverse.
        (&other, registration(&host.key), 401),
        (&host.key, registration(&other), 403),
    ] {
        let token = credential.token(TokenAudience::Registration).unwrap();
        assert_eq!(register(&dev, &token, &request).await.status, status);
    }
    let heartbeat = host.key.token(TokenAudience::Heartbeat).unwrap();
    let refused = register(&dev, &heartbeat, &registration(&host.key)).await;
    refused.assert_error(401, "unauthorized");
    assert_eq!(dev.get(PATH).await.body.as_array().unwrap().len(), 1);
    dev.finish().await;
}

#[tokio::test]
async fn registration_survives_a_restart_of_the_server() {
    let dev = Dev::start().await;
    let host = FleetHost::register(&dev).await;
    let first = host.register_again(&dev).await.body;
    let state = dev.finish().await;
    let dev = Dev::start_in(state, &[]).await;
    let second = host.register_again(&dev).await.body;
    for field in ["host_id", "ca_certificate"] {
        assert_eq!(first[field], second[field]);
    }
    assert_eq!(host.report(&dev, 1, true).await.status, 200);
    dev.finish().await;
}

#[tokio::test]
async fn rebooted_machine_has_lost_its_session() {
    let dev = Dev::start().await;
    let mut host = FleetHost::register(&dev).await;
    host.report(&dev, 1, true).await;
    assert_eq!(host.record(&dev).await["state"], "ready");
    host.register_again(&dev).await;
    assert_eq!(host.record(&dev).await["state"], "ready");
    host.boot_id = "second-boot".to_owned();
    host.register_again(&dev).await;
    let record = host.record(&dev).await;
    let found = (&record["state"], &record["boot_id"]);
    assert_eq!(found, (&json!("recycling"), &json!("second-boot")));
    dev.finish().await;
}

#[tokio::test]
async fn invalid_fields_are_reported_and_take_no_use() {
    let dev = Dev::start().await;
    let token = join_token(&dev, json!({})).await;
    let key = HostKey::generate().unwrap();
    let valid = registration(&key);
    let long = "x".repeat(65);
    let cases: [(&str, &[Value]); 9] = [
        (
            "address",
            &[
                json!(7),
                json!("agent.example:80"),
                json!("http://10.0.0.7:80"),
                json!("169.254.169.254:80"),
                json!("10.0.0.7:0"),
            ],
        ),
        (
            "boot_id",
            &[json!(""), json!(long), json!("a b"), json!(null)],
        ),
        (
            "version",
            &[json!(""), json!(long), json!("1 2"), json!("ü")],
        ),
        (
            "certificate_request",
            &[
                json!(""),
                json!("x"),
                json!("x".repeat(4097)),
                json!(
                    "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----"
                ),
            ],
        ),
        ("capabilities.display", &[json!("yes")]),
        (
            "capabilities.engine",
            &[json!(""), json!("C"), json!("x".repeat(33))],
        ),
        ("capabilities.memory_bytes", &[json!(-1), json!("1")]),
        (
            "capabilities.max_viewport.width",
            &[json!(0), json!(32_768)],
        ),
        ("capabilities.max_viewport.height", &[json!(1.5)]),
    ];
    for (field, values) in cases {
        for value in values {
            let mut request = valid.clone();
            let pointer = format!("/{}", field.replace('.', "/"));
            *request.pointer_mut(&pointer).unwrap() = value.clone();
            let refused = register(&dev, &token, &request).await;
            refused.assert_error(400, "bad_request");
            assert_eq!(refused.bad_fields(), [field], "{value}");
        }
    }
    let empty = register(&dev, &token, &json!({})).await;
    let required = [
        "address",
        "boot_id",
        "capabilities",
        "certificate_request",
        "version",
    ];
    assert_eq!(empty.bad_fields(), required);
    assert_eq!(register(&dev, &token, &valid).await.status, 201);
    dev.finish().await;
}

#[tokio::test]
async fn registration_is_in_the_audit_log() {
    let dev = Dev::start().await;
    let host = FleetHost::register(&dev).await;
    host.report(&dev, 1, true).await;
    host.register_again(&dev).await;
    let tokens = dev.get("/fleet/join_tokens").await.body;
    let window = "start=2020-01-01T00:00:00Z&end=2999-01-01T00:00:00Z";
    let query = format!("/audit-logs?{window}&auth_strategy=host");
    let entries = until("the registrations", async || {
        let entries = dev.get(&query).await.body;
        (entries.as_array().unwrap().len() >= 2).then_some(entries)
    })
    .await;
    let resource = format!("fleet/hosts/{}", host.id);
    // Newest first; heartbeats are not recorded.
    for (entry, sender) in [
        (&entries[0], &json!(host.id)),
        (&entries[1], &tokens[0]["id"]),
    ] {
        assert_eq!(entry["action"], "register_host");
        assert_eq!(
            (&entry["user_id"], &entry["resource"]),
            (sender, &json!(resource))
        );
        assert_eq!(entry.get("api_key_id"), None);
    }
    dev.finish().await;
}

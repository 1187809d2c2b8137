//! `/fleet/hosts/{id}/heartbeat`.

use berth::system::identity::{HostKey, TokenAudience};
use serde_json::{Value, json};

use crate::support::{
    dev::Dev,
    fleet_host::{FleetHost, heartbeat},
    wait::until,
};

#[tokio::test]
async fn host_is_ready_once_its_browser_responds() {
    let dev = Dev::start().await;
    let host = FleetHost::register(&dev).await;
    let starting = host.report(&dev, 4, false).await;
    let expected =
        json!({"state": "starting", "draining": false, "heartbeat_interval_seconds": 10});
    assert_eq!((starting.status.as_u16(), &starting.body), (200, &expected));
    let ready = host.report(&dev, 4, true).await;
    assert_eq!(ready.body["state"], "ready");
    let record = host.record(&dev).await;
    assert_eq!(
        (&record["state"], &record["generation"]),
        (&json!("ready"), &json!(4))
    );
    assert!(record["last_heartbeat_at"].as_str() >= record["state_changed_at"].as_str());
    let metrics = dev.request(reqwest::Method::GET, "/metrics");
    until("the host in the metrics", async || {
        let metrics = metrics.try_clone().unwrap().send().await.unwrap();
        let metrics = metrics.text().await.unwrap();
        metrics
            .contains("berth_hosts{state=\"ready\"} 1")
            .then_some(())
    })
    .await;
    dev.finish().await;
}

#[tokio::test]
async fn host_without_heartbeats_is_lost_and_may_return() {
    let dev = Dev::with(&["--heartbeat-seconds", "1"]).await;
    let mut host = FleetHost::register(&dev).await;
    host.report(&dev, 1, true).await;
    until("the lost host", async || {
        (host.record(&dev).await["state"] == "lost").then_some(())
    })
    .await;
    host.boot_id = "second-boot".to_owned();
    let returned = host.report(&dev, 1, true).await;
    assert_eq!(returned.body["state"], "recycling");
    assert_eq!(host.record(&dev).await["boot_id"], "second-boot");
    dev.finish().await;
}

#[tokio::test]
async fn only_the_key_of_the_host_reports_for_it() {
    let dev = Dev::start().await;
    let (host, other) = (
        FleetHost::register(&dev).await,
        FleetHost::register(&dev).await,
    );
    let unknown = HostKey::generate().unwrap();
    let report = json!({"boot_id": "x", "generation": 1, "ready": true});
    let heartbeat_token = |key: &HostKey| key.token(TokenAudience::Heartbeat).unwrap();
    let registration = host.key.token(TokenAudience::Registration).unwrap();
    for (token, code) in [
        (heartbeat_token(&other.key), "unknown_host"),
        (heartbeat_token(&unknown), "unknown_host"),
        (registration, "unauthorized"),
        (dev.api_key.clone(), "unauthorized"),
        ("a.b.c".to_owned(), "unauthorized"),
    ] {
        let refused = heartbeat(&dev, &host.path(), &token, &report).await;
        refused.assert_error(401, code);
    }
    let own = heartbeat_token(&host.key);
    let absent = heartbeat(
        &dev,
        "/fleet/hosts/host_01kgc3v7e8r9t0w1x2y3z4a5b6",
        &own,
        &report,
    );
    absent.await.assert_error(401, "unknown_host");
    let malformed = heartbeat(&dev, "/fleet/hosts/x", &own, &report).await;
    malformed.assert_error(404, "not_found");
    assert_eq!(host.record(&dev).await["boot_id"], "first-boot");
    dev.finish().await;
}

#[tokio::test]
async fn invalid_fields_are_reported_and_change_nothing() {
    let dev = Dev::start().await;
    let host = FleetHost::register(&dev).await;
    let valid = json!({"boot_id": "x", "generation": 1, "ready": true});
    let cases: [(&str, Value); 8] = [
        ("boot_id", json!("")),
        ("boot_id", json!("a/b")),
        ("generation", json!(0)),
        ("generation", json!(-1)),
        ("generation", json!(9_007_199_254_740_992_u64)),
        ("generation", json!("1")),
        ("ready", json!("true")),
        ("ready", json!(null)),
    ];
    for (field, value) in cases {
        let mut report = valid.clone();
        report[field] = value.clone();
        let token = host.key.token(TokenAudience::Heartbeat).unwrap();
        let refused = heartbeat(&dev, &host.path(), &token, &report).await;
        refused.assert_error(400, "bad_request");
        assert_eq!(refused.bad_fields(), [field], "{value}");
    }
    assert_eq!(host.record(&dev).await["state"], "starting");
    dev.finish().await;
}

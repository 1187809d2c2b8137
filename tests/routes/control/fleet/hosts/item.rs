//! `/fleet/hosts/{id}` and `/fleet/hosts/{id}/drain`.

use reqwest::Method;
use serde_json::json;

use crate::support::{
    dev::{Answer, Dev},
    fleet_host::{FleetHost, join_token, register, registration},
    wait::until,
};

const UNKNOWN: &str = "/fleet/hosts/host_01kgc3v7e8r9t0w1x2y3z4a5b6";

#[tokio::test]
async fn drained_host_is_retiring_and_then_gone() {
    let dev = Dev::with(&["--heartbeat-seconds", "1"]).await;
    let host = FleetHost::register(&dev).await;
    let drain = format!("{}/drain", host.path());
    // A host that starts is retiring as soon as it has started.
    let draining = dev.post(&drain, json!({})).await;
    assert_eq!(draining.status, 200, "{}", draining.body);
    let found = (&draining.body["state"], &draining.body["draining"]);
    assert_eq!(found, (&json!("starting"), &json!(true)));
    let reported = host.report(&dev, 1, true).await.body;
    let found = (&reported["state"], &reported["draining"]);
    assert_eq!(found, (&json!("retiring"), &json!(true)));
    let repeated = dev.post(&drain, json!({})).await;
    assert_eq!(repeated.body["state"], "retiring");
    until("the host is gone", async || {
        host.record(&dev).await.is_null().then_some(())
    })
    .await;
    host.report(&dev, 1, true)
        .await
        .assert_error(401, "unknown_host");
    dev.finish().await;
}

#[tokio::test]
async fn identity_of_a_deleted_host_is_void() {
    let dev = Dev::start().await;
    let host = FleetHost::register(&dev).await;
    host.report(&dev, 1, true).await;
    assert_eq!(dev.delete(&host.path()).await.status, 204);
    dev.delete(&host.path())
        .await
        .assert_error(404, "not_found");
    assert!(host.record(&dev).await.is_null());
    let reported = host.report(&dev, 1, true).await;
    reported.assert_error(401, "unknown_host");
    assert_eq!(reported.header("www-authenticate"), "Bearer");
    let again = host.register_again(&dev).await;
    again.assert_error(401, "unknown_host");
    // The machine joins as another host.
    let token = join_token(&dev, json!({})).await;
    let joined = register(&dev, &token, &registration(&host.key)).await;
    assert_eq!(joined.status, 201, "{}", joined.body);
    assert_ne!(joined.body["host_id"], host.id.as_str());
    dev.finish().await;
}

#[tokio::test]
async fn only_keys_of_the_organization_see_and_change_hosts() {
    let dev = Dev::start().await;
    let host = FleetHost::register(&dev).await;
    let project = dev.get("/org/projects/default").await.body["id"].clone();
    let bound = json!({"name": "bound", "project_id": project});
    let bound = dev.post("/org/api_keys", bound).await.body["key"].clone();
    let drain = format!("{}/drain", host.path());
    for (method, path) in [
        (Method::GET, "/fleet/hosts"),
        (Method::POST, &drain),
        (Method::DELETE, &host.path()),
    ] {
        let request = || dev.anonymous(method.clone(), path);
        let refused = Answer::of(request().bearer_auth(bound.as_str().unwrap())).await;
        refused.assert_error(403, "forbidden");
        Answer::of(request())
            .await
            .assert_error(401, "unauthorized");
    }
    for path in [UNKNOWN, "/fleet/hosts/x"] {
        dev.delete(path).await.assert_error(404, "not_found");
        let drained = dev.post(&format!("{path}/drain"), json!({})).await;
        drained.assert_error(404, "not_found");
    }
    let record = host.record(&dev).await;
    assert_eq!(
        (&record["state"], &record["draining"]),
        (&json!("starting"), &json!(false))
    );
    dev.finish().await;
}

//! Deliveries to webhooks by several control processes.

use std::collections::HashSet;

use serde_json::json;

use super::several_processes::{Processes, path};
use crate::{
    flows::webhooks::{all_delivered, receiver, subscribe},
    support::{agent::Start, fleet_agent::join, wait::until},
};

/// The number of browsers, one after another.
const BROWSERS: usize = 4;

#[tokio::test]
async fn processes_deliver_once_and_one_continues_for_another() {
    let Processes {
        s3: _s3,
        leader,
        other,
        ..
    } = Processes::start().await;
    let receiver = receiver().await;
    let webhook = subscribe(&leader, &receiver).await;
    let (agent, _) = join(&other, Start::headless()).await;
    for index in 0..BROWSERS {
        let (created_by, ended_by) = match index % 2 {
            0 => (&leader, &other),
            _ => (&other, &leader),
        };
        let browser = created_by.browser(json!({})).await;
        assert_eq!(ended_by.delete(&path(&browser)).await.status, 204);
    }
    let delivered = all_delivered(&other, &webhook, 2 * BROWSERS).await;
    assert!(delivered.iter().all(|it| it["attempts"] == 1));
    let received = receiver.received();
    assert_eq!(received.len(), 2 * BROWSERS);
    let distinct: HashSet<&String> = received.iter().map(|it| &it.delivery).collect();
    assert_eq!(distinct.len(), received.len());

    receiver.respond_with(503);
    let browser = leader.browser(json!({})).await;
    let pending = format!("{webhook}/deliveries?status=pending");
    until("a failed attempt", async || {
        let listed = leader.get(&pending).await.body;
        (listed[0]["attempts"].as_u64()? >= 1).then_some(())
    })
    .await;
    // Its state directory has the secrets of all.
    let _state = leader.kill().await;
    receiver.respond_with(204);
    let delivered = all_delivered(&other, &webhook, 2 * BROWSERS + 1).await;
    let payload = &delivered[0]["payload"];
    assert_eq!(payload["data"]["session_id"], browser["session_id"]);
    // More if it took long to kill the process.
    assert!(delivered[0]["attempts"].as_u64().unwrap() >= 2);
    let ids = receiver.received().into_iter().map(|it| it.delivery);
    let repeated = ids.filter(|id| delivered[0]["id"] == *id);
    assert!(repeated.count() >= 2);
    assert_eq!(other.delete(&path(&browser)).await.status, 204);
    agent.stop().await;
    other.finish().await;
}

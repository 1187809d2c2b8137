//! Logins with several control processes.

use serde_json::{Value, json};

use super::several_processes::Processes;
use crate::support::{
    agent::Start, auth_events::AuthEvents, auth_login::TestConnection, fleet_agent::join,
    login_sites::LoginSites, wait::until,
};

const SITE: &str = "password.test";
/// Readers of the stream at each process.
const READERS: usize = 8;

/// Returns the ids of all events up to the end, and asserts that the login has succeeded.
async fn ids(mut events: AuthEvents) -> Vec<String> {
    let rest = events.rest().await;
    let last = &rest.last().expect("events").data;
    assert_eq!(last["flow_status"], "SUCCESS", "{rest:#?}");
    rest.into_iter().map(|event| event.id.unwrap()).collect()
}

#[tokio::test]
async fn another_process_continues_a_login() {
    let Processes {
        s3: _s3,
        leader,
        other,
        ..
    } = Processes::start().await;
    let sites = LoginSites::serve().await;
    let flags = [sites.resolver_flag(), sites.certificate_flag()];
    let start = Start::on_screen().with([&flags[0], &flags[1]]);
    let (agent, _) = join(&other, start).await;
    let connection = TestConnection::create(&leader, &sites, SITE, json!({})).await;
    let mut events = connection.login().await;
    let request = events.request().await;
    let at_other = TestConnection {
        dev: &other,
        path: connection.path.clone(),
    };
    let mut readers = Vec::new();
    for _ in 0..READERS {
        readers.push(at_other.events().await);
    }
    let wrong = json!({
        "fields": {"username": sites.ada.user, "password": "not-the-password"},
        "interaction_id": request["interaction_id"],
    });
    at_other.submit(wrong).await;
    let request = events.request().await;
    assert!(request["website_error"].is_string(), "{request:#}");
    let path = at_other.path.clone();
    // Its state directory has the secrets of all.
    let _state = leader.kill().await;
    until("another driver", async || {
        let log = other.log();
        log.contains("continues the login of another process")
            .then_some(())
    })
    .await;
    let right = json!({
        "fields": {"username": sites.ada.user, "password": sites.ada.password},
        "interaction_id": request["interaction_id"],
    });
    at_other.submit(right).await;
    let mut seen: Vec<Vec<String>> = Vec::new();
    for reader in readers {
        seen.push(ids(reader).await);
    }
    let first = &seen[0];
    assert!(first.len() > 3, "{first:?}");
    let numbers: Vec<u64> = first
        .iter()
        .map(|id| id.split_once(':').unwrap().1.parse().unwrap())
        .collect();
    let consecutive: Vec<u64> = (numbers[0]..).take(numbers.len()).collect();
    assert_eq!(numbers, consecutive, "each state once");
    assert!(seen.iter().all(|ids| ids == first), "{seen:?}");
    assert_eq!(sites.places_of(&sites.ada.password).len(), 1);
    let found: Value = other.get(&path).await.body;
    assert_eq!(found["status"], "AUTHENTICATED", "{found:#}");
    agent.stop().await;
    other.finish().await;
}

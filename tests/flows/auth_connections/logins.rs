//! Logins by a stored credential, and by a person.

use serde_json::{Value, json};

use crate::support::{
    auth_login::{TestConnection, credential, dev_with, steps},
    login_sites::LoginSites,
};

#[tokio::test]
async fn stored_credential_logs_in() {
    let sites = LoginSites::serve().await;
    let dev = dev_with(&sites, &[]).await;
    let site = "password.test";
    let name = credential(&dev, site, &sites.ada, json!({})).await;
    let fields = json!({"credential": {"name": name}, "record_session": true});
    let connection = TestConnection::create(&dev, &sites, site, fields).await;
    let events = connection.login().await.rest().await;
    let states: Vec<Value> = events.iter().map(|event| event.data.clone()).collect();
    assert_eq!(
        steps(&states),
        [
            "DISCOVERING IN_PROGRESS",
            "SUBMITTING IN_PROGRESS",
            "COMPLETED SUCCESS",
        ],
        "{states:#?}"
    );
    assert_eq!(
        steps(&connection.timeline().await),
        [
            "INITIALIZED IN_PROGRESS",
            "DISCOVERING IN_PROGRESS",
            "SUBMITTING IN_PROGRESS",
            "COMPLETED SUCCESS",
        ]
    );
    let last = connection.timeline().await.pop().unwrap();
    assert!(last["replay_id"].is_string(), "{last:#}");
    let browser = last["browser_session_id"].as_str().unwrap();
    let replays = dev.get(&format!("/browsers/{browser}/replays")).await.body;
    assert_eq!(replays[0]["replay_id"], last["replay_id"], "{replays:#}");
    let received = sites.received_by(site);
    assert_eq!(received.len(), 1, "{received:?}");
    let found = connection.get().await;
    assert_eq!(found["status"], "AUTHENTICATED");
    assert_eq!(found["flow_status"], "SUCCESS");
    assert_eq!(found["post_login_url"], sites.secure_url(site, "/account"));
    connection.assert_logged_in(&sites, site, &sites.ada).await;
    let browsers = dev.get("/browsers").await.body;
    assert_eq!(browsers, json!([]));
    dev.finish().await;
}

#[tokio::test]
async fn person_answers_again_after_a_wrong_password() {
    let sites = LoginSites::serve().await;
    let dev = dev_with(&sites, &[]).await;
    let site = "password.test";
    let connection = TestConnection::create(&dev, &sites, site, json!({})).await;
    let mut events = connection.login().await;
    let request = events.request().await;
    let names: Vec<&str> = request["discovered_fields"]
        .as_array()
        .unwrap()
        .iter()
        .map(|field| field["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["username", "password"], "{request:#}");
    let wrong = json!({"fields": {"username": sites.ada.user, "password": "not-the-password"}});
    connection.submit(wrong).await;
    let request = events.request().await;
    assert!(request["website_error"].is_string(), "{request:#}");
    let stale = json!({"fields": {"password": "x"}, "interaction_id": "flow_1_1"});
    let refused = dev
        .post(&format!("{}/submit", connection.path), stale)
        .await;
    refused.assert_error(409, "stale_interaction");
    let right = json!({
        "fields": {"username": sites.ada.user, "password": sites.ada.password},
        "interaction_id": request["interaction_id"],
    });
    connection.submit(right).await;
    let rest = events.rest().await;
    let last = &rest.last().unwrap().data;
    assert_eq!(last["flow_status"], "SUCCESS", "{last:#}");
    connection.assert_logged_in(&sites, site, &sites.ada).await;
    // The values of the person are stored, and suffice the next time.
    let found = connection.get().await;
    assert_eq!(found["can_reauth"], true, "{found:#}");
    sites.expire_sessions();
    let again = connection.login().await.rest().await;
    let last = &again.last().unwrap().data;
    assert_eq!(last["flow_status"], "SUCCESS", "{last:#}");
    assert_eq!(last["flow_type"], "REAUTH");
    dev.finish().await;
}

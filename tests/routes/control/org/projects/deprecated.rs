//! `/projects`, the deprecated alias of `/org/projects`.

use chrono::{DateTime, Utc};

use super::*;

const SUNSET: &str = "Tue, 24 Nov 2026 00:00:00 GMT";

#[track_caller]
fn assert_announced(answer: &Answer, successor: &str) {
    assert_eq!(answer.header("sunset"), SUNSET);
    assert!(answer.header("deprecation").starts_with('@'));
    let link = format!("<{successor}>; rel=\"successor-version\"");
    assert_eq!(answer.header("link"), link);
}

#[tokio::test]
async fn deprecated_routes_work_and_announce_their_successors() {
    let dev = Dev::start().await;
    let created = dev.post("/projects", json!({"name": "p"})).await;
    assert_eq!(created.status, StatusCode::CREATED);
    assert_announced(&created, "/org/projects");
    let (old, new) = (
        format!("/projects/{}", id(&created.body)),
        format!("/org/projects/{}", id(&created.body)),
    );
    let found = dev.get(&old).await;
    assert_eq!(found.body, created.body);
    assert_announced(&found, &new);
    let listed = dev.get("/projects?name=p").await;
    assert_eq!(names(&listed.body), ["p"]);
    assert_announced(&listed, "/org/projects");
    let changed = dev.patch(&old, json!({"name": "q"})).await;
    assert_eq!(changed.body["name"], "q");
    assert_announced(&changed, &new);
    assert_eq!(dev.get("/projects/q").await.body, changed.body);
    let deleted = dev.delete(&old).await;
    assert_eq!(deleted.status, StatusCode::NO_CONTENT);
    assert_announced(&deleted, &new);

    let missing = dev.get(&old).await;
    missing.assert_error(404, "not_found");
    assert_announced(&missing, &new);
    let invalid = dev.post("/projects", json!({"name": ""})).await;
    invalid.assert_error(400, "bad_request");
    assert_announced(&invalid, "/org/projects");
    let anonymous = Answer::of(dev.anonymous(Method::GET, "/projects")).await;
    anonymous.assert_error(401, "unauthorized");
    assert_announced(&anonymous, "/org/projects");
    let successor = dev.get("/org/projects").await;
    assert_eq!(successor.header("sunset"), "");
    dev.finish().await;
}

#[tokio::test]
async fn enforced_sunset_follows_the_clock_of_the_server() {
    let dev = Dev::with(&["--enforce-sunset"]).await;
    let answer = dev.get("/projects").await;
    let parse = |text: &str| DateTime::parse_from_rfc2822(text).unwrap().to_utc();
    let now: DateTime<Utc> = parse(answer.header("date"));
    if now < parse(SUNSET) {
        assert_eq!(answer.status, StatusCode::OK);
    } else {
        answer.assert_error(410, "gone");
    }
    assert_announced(&answer, "/org/projects");
    assert_eq!(dev.get("/org/projects").await.status, StatusCode::OK);
    dev.finish().await;
}

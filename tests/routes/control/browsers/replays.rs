//! `/browsers/{id}/replays`: the stored replays of a deleted browser, and access to them.

use std::fs;

use chrono::Utc;
use reqwest::{Method, Response, StatusCode};
use serde_json::{Value, json};

use super::id;
use crate::support::{
    dev::{Answer, Dev, berth},
    printed::print,
    replays::{add_finished, directory_of, metadata_of},
    wait::until,
};

const CONTENT: &[u8] = b"0123456789";

/// Returns the path and the token of a replay's link.
fn link<'a>(dev: &Dev, replay: &'a Value) -> (&'a str, &'a str) {
    let url = replay["replay_view_url"].as_str().unwrap();
    let path = url.strip_prefix(&dev.base_url).unwrap();
    path.split_once("?jwt=").unwrap()
}

#[tokio::test]
async fn replay_survives_deletion_of_browser_and_restart_of_control() {
    let dev = Dev::start().await;
    let browser = dev.browser(json!({"name": "ours"})).await;
    let base = format!("/browsers/{}", id(&browser));
    assert_eq!(dev.get(&format!("{base}/replays")).await.body, json!([]));
    let replay = add_finished(&dev, &browser, CONTENT);
    let expected = metadata_of(&dev, &browser, &replay);
    assert_eq!(dev.delete(&base).await.status, 204);

    let state = {
        let mut by_name = dev.get("/browsers/ours/replays").await.body;
        let mut by_id = dev.get(&format!("{base}/replays")).await.body;
        for listed in [&mut by_name, &mut by_id] {
            assert_eq!(listed.as_array().unwrap().len(), 1);
            let (path, _) = link(&dev, &listed[0]);
            assert_eq!(path, format!("{base}/replays/{replay}/view"));
            listed[0].as_object_mut().unwrap().remove("replay_view_url");
            assert_eq!(listed[0], expected);
        }
        // Stopping a finished replay succeeds.
        let stop = format!("{base}/replays/{replay}/stop");
        let stopped = dev.post(&stop, json!({})).await;
        assert_eq!(stopped.status, 200);
        assert_eq!(stopped.body["finished_at"], expected["finished_at"]);
        dev.finish().await
    };

    let dev = Dev::start_in(state, &[]).await;
    for path in ["/browsers/ours", &base] {
        let listed = dev.get(&format!("{path}/replays")).await.body;
        assert_eq!(listed[0]["replay_id"], json!(replay), "{listed}");
        let file = dev.request(Method::GET, &format!("{path}/replays/{replay}"));
        let file = file.send().await.unwrap();
        assert_eq!(file.bytes().await.unwrap(), CONTENT);
    }
    dev.finish().await;
}

fn header<'a>(response: &'a Response, name: &str) -> &'a str {
    response
        .headers()
        .get(name)
        .map_or("", |value| value.to_str().unwrap())
}

#[tokio::test]
async fn replay_file_supports_range_requests() {
    let dev = Dev::start().await;
    let browser = dev.browser(json!({})).await;
    let replay = add_finished(&dev, &browser, CONTENT);
    let base = format!("/browsers/{}", id(&browser));
    dev.delete(&base).await;
    let path = format!("{base}/replays/{replay}");
    let send = async |method: Method, headers: &[(&str, &str)]| {
        let mut request = dev.request(method, &path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.send().await.unwrap()
    };

    let complete = send(Method::GET, &[]).await;
    assert_eq!(complete.status(), 200);
    for (name, value) in [
        ("content-type", "video/mp4"),
        ("content-length", "10"),
        ("accept-ranges", "bytes"),
        ("cache-control", "private, no-cache"),
        ("x-content-type-options", "nosniff"),
    ] {
        assert_eq!(header(&complete, name), value, "{name}");
    }
    let etag = header(&complete, "etag").to_owned();
    assert!(etag.starts_with('"') && etag.ends_with('"'), "{etag}");
    assert_eq!(complete.bytes().await.unwrap(), CONTENT);

    for (range, content_range, content) in [
        ("bytes=2-4", "bytes 2-4/10", &CONTENT[2..5]),
        ("bytes=7-", "bytes 7-9/10", &CONTENT[7..]),
        ("bytes=-2", "bytes 8-9/10", &CONTENT[8..]),
    ] {
        let part = send(Method::GET, &[("range", range), ("if-range", &etag)]).await;
        assert_eq!(part.status(), 206, "{range}");
        assert_eq!(header(&part, "content-range"), content_range);
        assert_eq!(part.bytes().await.unwrap(), content);
    }
    let other = send(
        Method::GET,
        &[("range", "bytes=2-4"), ("if-range", "\"x\"")],
    );
    let other = other.await;
    assert_eq!(other.status(), 200);
    assert_eq!(other.bytes().await.unwrap(), CONTENT);

    let beyond = send(Method::GET, &[("range", "bytes=10-")]).await;
    assert_eq!(beyond.status(), 416);
    assert_eq!(header(&beyond, "content-range"), "bytes */10");
    assert_eq!(beyond.json::<Value>().await.unwrap()["code"], "bad_request");

    let known = send(Method::GET, &[("if-none-match", &etag)]).await;
    assert_eq!(known.status(), 304);
    let head = send(Method::HEAD, &[("range", "bytes=0-3")]).await;
    assert_eq!(head.status(), 206);
    assert_eq!(header(&head, "content-length"), "4");
    assert_eq!(head.bytes().await.unwrap(), "");
    for method in [Method::PUT, Method::DELETE] {
        assert_eq!(send(method, &[]).await.status(), 405);
    }
    dev.finish().await;
}

#[tokio::test]
async fn replay_link_gives_access_to_that_replay_only() {
    let dev = Dev::start().await;
    let browser = dev.browser(json!({})).await;
    let (own, other) = (
        add_finished(&dev, &browser, CONTENT),
        add_finished(&dev, &browser, CONTENT),
    );
    let base = format!("/browsers/{}", id(&browser));
    dev.delete(&base).await;
    let listed = dev.get(&format!("{base}/replays")).await.body;
    let replay = listed.as_array().unwrap().iter();
    let replay = replay
        .clone()
        .find(|replay| replay["replay_id"] == json!(own))
        .unwrap();
    let (page, token) = link(&dev, replay);
    let send = async |method: Method, path: &str| {
        let request = dev.anonymous(method, &format!("{path}?jwt={token}"));
        request.send().await.unwrap()
    };

    // A token issued now would be a different one.
    let issued_at = Utc::now().timestamp();
    until("the next second", async || {
        (Utc::now().timestamp() > issued_at).then_some(())
    })
    .await;
    let response = send(Method::GET, page).await;
    assert_eq!(response.status(), 200);
    for (name, value) in [
        ("content-type", "text/html; charset=utf-8"),
        ("cache-control", "no-store"),
        ("referrer-policy", "no-referrer"),
        ("x-content-type-options", "nosniff"),
    ] {
        assert_eq!(header(&response, name), value, "{name}");
    }
    let policy = header(&response, "content-security-policy").to_owned();
    assert!(policy.starts_with("default-src 'none'; "), "{policy}");
    assert!(
        !policy.contains("unsafe") && !policy.contains('*'),
        "{policy}"
    );
    let html = response.text().await.unwrap();
    assert!(html.contains("<video"), "{html}");
    // The page uses the link's token, so the video is accessible no longer than the link.
    let source = format!("src=\"../{own}?jwt={token}\"");
    assert!(html.contains(&source), "{html}");
    let file = send(Method::GET, &format!("{base}/replays/{own}")).await;
    assert_eq!(file.bytes().await.unwrap(), CONTENT);

    for (method, path) in [
        (Method::GET, format!("{base}/replays")),
        (Method::POST, format!("{base}/replays")),
        (Method::POST, format!("{base}/replays/{own}/stop")),
        (Method::GET, format!("{base}/replays/{own}/")),
        (Method::DELETE, format!("{base}/replays/{own}")),
        (Method::GET, format!("{base}/replays/{other}")),
        (Method::GET, format!("{base}/replays/{other}/view")),
        (Method::GET, format!("{base}/live")),
        (Method::GET, format!("{base}/fs/list_files")),
        (Method::GET, base.clone()),
        (Method::GET, "/browsers".to_owned()),
    ] {
        let response = send(method.clone(), &path).await;
        assert_eq!(response.status(), 401, "{method} {path}");
    }
    let signature = token.rsplit_once('.').unwrap().1;
    assert!(!dev.log().contains(signature), "a token is in the log");
    dev.finish().await;
}

#[tokio::test]
async fn replay_is_404_for_other_projects_and_401_without_key() {
    let dev = Dev::start().await;
    let browser = dev.browser(json!({"name": "ours"})).await;
    let second_browser = dev.browser(json!({})).await;
    let replay = add_finished(&dev, &browser, CONTENT);
    let base = format!("/browsers/{}", id(&browser));
    dev.delete(&base).await;

    let mut command = berth(&["key", "create", "--name", "k", "--project", "other"]);
    command.arg("--state-dir").arg(dev.state_dir());
    command.envs(dev.variables());
    let other_project = print(command).await.stdout;
    for base in [&base[..], "/browsers/ours"] {
        for (method, path) in [
            (Method::GET, "/replays".to_owned()),
            (Method::POST, "/replays".to_owned()),
            (Method::GET, format!("/replays/{replay}")),
            (Method::GET, format!("/replays/{replay}/view")),
            (Method::POST, format!("/replays/{replay}/stop")),
        ] {
            let path = format!("{base}{path}");
            let request = dev.anonymous(method.clone(), &path);
            let response = Answer::of(request.bearer_auth(other_project.trim())).await;
            response.assert_error(404, "not_found");
            let anonymous = Answer::of(dev.anonymous(method, &path)).await;
            anonymous.assert_error(401, "unauthorized");
        }
    }
    // The session token is valid only while the browser exists.
    let session = browser["cdp_ws_url"].as_str().unwrap();
    let session = session.split_once("?jwt=").unwrap().1;
    for path in ["/replays".to_owned(), format!("/replays/{replay}")] {
        let request = dev.anonymous(Method::GET, &format!("{base}{path}?jwt={session}"));
        Answer::of(request).await.assert_error(410, "session_ended");
    }
    let second_base = format!("/browsers/{}", id(&second_browser));
    for path in [
        "/browsers/unknown/replays".to_owned(),
        "/browsers/brw_01jd0000000000000000000000/replays".to_owned(),
        format!("{base}/replays/rep_01jd0000000000000000000000"),
        format!("{base}/replays/nothing"),
        format!("{second_base}/replays/{replay}"),
        format!("{second_base}/replays/{replay}/view"),
        // Other paths below are not forwarded to the agent.
        format!("{second_base}/replays/{replay}/"),
        format!("{second_base}/replays/{replay}/else"),
        format!("{second_base}/replays/"),
    ] {
        dev.get(&path).await.assert_error(404, "not_found");
    }
    let start = dev.post(&format!("{base}/replays"), json!({})).await;
    assert_eq!(start.status, StatusCode::NOT_FOUND);
    dev.finish().await;
}

#[tokio::test]
async fn recording_is_429_when_stored_replays_fill_the_quota() {
    let dev = Dev::with(&["--replays-mb", "1"]).await;
    let [full, next] = [dev.browser(json!({})).await, dev.browser(json!({})).await];
    let path = format!("/browsers/{}/replays", id(&next));
    let headless = dev.post(&path, json!({})).await;
    headless.assert_error(409, "no_display");
    add_finished(&dev, &full, &vec![0; 1 << 20]);
    assert_eq!(
        dev.delete(&format!("/browsers/{}", id(&full))).await.status,
        204
    );
    let refused = dev.post(&path, json!({})).await;
    refused.assert_error(429, "limit_exceeded");
    let anonymous = dev.post("/browsers/unknown/replays", json!({})).await;
    anonymous.assert_error(404, "not_found");
    dev.finish().await;
}

#[tokio::test]
async fn recording_is_429_when_replays_of_its_project_fill_the_quota() {
    let dev = Dev::with(&["--project-replays-mb", "1"]).await;
    let mut command = berth(&["key", "create", "--name", "k", "--project", "other"]);
    command.arg("--state-dir").arg(dev.state_dir());
    command.envs(dev.variables());
    let other_key = print(command).await.stdout.trim().to_owned();
    let [full, next] = [dev.browser(json!({})).await, dev.browser(json!({})).await];
    let as_other = |path: &str, body: Value| {
        let request = dev.anonymous(Method::POST, path).bearer_auth(&other_key);
        Answer::of(request.json(&body))
    };
    let other = as_other("/browsers", json!({"headless": true})).await.body;
    add_finished(&dev, &full, &vec![0; 1 << 20]);
    let deleted = dev.delete(&format!("/browsers/{}", id(&full))).await;
    assert_eq!(deleted.status, 204);
    let path = format!("/browsers/{}/replays", id(&next));
    let refused = dev.post(&path, json!({})).await;
    refused.assert_error(429, "limit_exceeded");
    assert_ne!(refused.header("retry-after"), "");
    let message = refused.body["message"].as_str().unwrap();
    assert!(message.contains("project is full (1 MiB)"), "{message}");
    // The other project has room; its browser only lacks a display.
    let headless = as_other(&format!("/browsers/{}/replays", id(&other)), json!({})).await;
    headless.assert_error(409, "no_display");
    dev.finish().await;
}

#[tokio::test]
async fn replays_per_browser_are_limited() {
    let dev = Dev::start().await;
    let [full, other] = [dev.browser(json!({})).await, dev.browser(json!({})).await];
    dev.sql(&format!(
        "WITH RECURSIVE n(i) AS (SELECT 1000 UNION ALL SELECT i + 1 FROM n WHERE i < 1999) \
         INSERT INTO replays (id, project_id, browser_id, state, started_at) \
         SELECT 'rep_01jd000000000000000000' || i, project_id, id, 'lost', i \
         FROM n, browsers WHERE id = '{}'",
        id(&full)
    ))
    .await;
    let start = async |browser: &Value| {
        let path = format!("/browsers/{}/replays", id(browser));
        dev.post(&path, json!({})).await
    };
    let refused = start(&full).await;
    refused.assert_error(429, "limit_exceeded");
    assert!(
        refused.body["message"]
            .as_str()
            .unwrap()
            .contains("browser")
    );
    // The other browser is below the limit.
    start(&other).await.assert_error(409, "no_display");
    let listed = dev.get(&format!("/browsers/{}/replays", id(&full))).await;
    assert_eq!(listed.body.as_array().unwrap().len(), 1000);
    dev.finish().await;
}

#[tokio::test]
async fn lost_replay_is_listed_and_its_file_is_410() {
    let dev = Dev::start().await;
    let browser = dev.browser(json!({})).await;
    let replay = add_finished(&dev, &browser, CONTENT);
    fs::remove_file(directory_of(&dev, &browser).join(format!("{replay}.mp4"))).unwrap();
    let base = format!("/browsers/{}", id(&browser));
    assert_eq!(dev.delete(&base).await.status, 204);
    let listed = until("the replay to be marked as lost", async || {
        let listed = dev.get(&format!("{base}/replays")).await.body;
        (listed[0]["end_reason"] == "lost").then_some(listed)
    })
    .await;
    assert_eq!(listed[0]["replay_id"], json!(replay));
    assert_eq!(listed[0]["status"], "finished");
    let file = dev.get(&format!("{base}/replays/{replay}")).await;
    file.assert_error(410, "gone");
    let url = listed[0]["replay_view_url"].as_str().unwrap();
    let page = dev.http.get(url).send().await.unwrap();
    assert_eq!(page.status(), StatusCode::GONE);
    let page = page.text().await.unwrap();
    assert!(page.contains("This replay is lost."), "{page}");
    dev.finish().await;
}

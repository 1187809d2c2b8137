//! `/browsers/{id}/replays`: what is kept of a browser that has gone, and for whom.

use std::fs;

use chrono::Utc;
use reqwest::{Method, Response, StatusCode};
use serde_json::{Value, json};

use super::id;
use crate::support::dev::{Answer, Dev, berth, print};
use crate::support::replays::{add_finished, directory_of, metadata_of};
use crate::support::wait::until;

const CONTENT: &[u8] = b"0123456789";

/// The path and the token of a link.
fn link<'a>(dev: &Dev, replay: &'a Value) -> (&'a str, &'a str) {
    let url = replay["replay_view_url"].as_str().unwrap();
    let path = url.strip_prefix(&dev.base_url).unwrap();
    path.split_once("?jwt=").unwrap()
}

#[tokio::test]
async fn what_was_recorded_outlives_its_browser_and_control() {
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
        // It has been stopped long ago.
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

fn header<'a>(answer: &'a Response, name: &str) -> &'a str {
    answer
        .headers()
        .get(name)
        .map_or("", |value| value.to_str().unwrap())
}

#[tokio::test]
async fn a_file_comes_in_parts() {
    let dev = Dev::start().await;
    let browser = dev.browser(json!({})).await;
    let replay = add_finished(&dev, &browser, CONTENT);
    let base = format!("/browsers/{}", id(&browser));
    dev.delete(&base).await;
    let path = format!("{base}/replays/{replay}");
    let asked = async |method: Method, headers: &[(&str, &str)]| {
        let mut request = dev.request(method, &path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.send().await.unwrap()
    };

    let whole = asked(Method::GET, &[]).await;
    assert_eq!(whole.status(), 200);
    for (name, value) in [
        ("content-type", "video/mp4"),
        ("content-length", "10"),
        ("accept-ranges", "bytes"),
        ("cache-control", "private, no-cache"),
        ("x-content-type-options", "nosniff"),
    ] {
        assert_eq!(header(&whole, name), value, "{name}");
    }
    let etag = header(&whole, "etag").to_owned();
    assert!(etag.starts_with('"') && etag.ends_with('"'), "{etag}");
    assert_eq!(whole.bytes().await.unwrap(), CONTENT);

    for (range, content_range, content) in [
        ("bytes=2-4", "bytes 2-4/10", &CONTENT[2..5]),
        ("bytes=7-", "bytes 7-9/10", &CONTENT[7..]),
        ("bytes=-2", "bytes 8-9/10", &CONTENT[8..]),
    ] {
        let part = asked(Method::GET, &[("range", range), ("if-range", &etag)]).await;
        assert_eq!(part.status(), 206, "{range}");
        assert_eq!(header(&part, "content-range"), content_range);
        assert_eq!(part.bytes().await.unwrap(), content);
    }
    let other = asked(
        Method::GET,
        &[("range", "bytes=2-4"), ("if-range", "\"x\"")],
    );
    let other = other.await;
    assert_eq!(other.status(), 200);
    assert_eq!(other.bytes().await.unwrap(), CONTENT);

    let beyond = asked(Method::GET, &[("range", "bytes=10-")]).await;
    assert_eq!(beyond.status(), 416);
    assert_eq!(header(&beyond, "content-range"), "bytes */10");
    assert_eq!(beyond.json::<Value>().await.unwrap()["code"], "bad_request");

    let known = asked(Method::GET, &[("if-none-match", &etag)]).await;
    assert_eq!(known.status(), 304);
    let head = asked(Method::HEAD, &[("range", "bytes=0-3")]).await;
    assert_eq!(head.status(), 206);
    assert_eq!(header(&head, "content-length"), "4");
    assert_eq!(head.bytes().await.unwrap(), "");
    for method in [Method::PUT, Method::DELETE] {
        assert_eq!(asked(method, &[]).await.status(), 405);
    }
    dev.finish().await;
}

#[tokio::test]
async fn a_replays_link_opens_it_and_nothing_else() {
    let dev = Dev::start().await;
    let browser = dev.browser(json!({})).await;
    let (ours, other) = (
        add_finished(&dev, &browser, CONTENT),
        add_finished(&dev, &browser, CONTENT),
    );
    let base = format!("/browsers/{}", id(&browser));
    dev.delete(&base).await;
    let listed = dev.get(&format!("{base}/replays")).await.body;
    let replay = listed.as_array().unwrap().iter();
    let replay = replay
        .clone()
        .find(|replay| replay["replay_id"] == json!(ours))
        .unwrap();
    let (page, token) = link(&dev, replay);
    let asked = async |method: Method, path: &str| {
        let request = dev.anonymous(method, &format!("{path}?jwt={token}"));
        request.send().await.unwrap()
    };

    // A token that is given now would be another one.
    let given_at = Utc::now().timestamp();
    until("the next second", async || {
        (Utc::now().timestamp() > given_at).then_some(())
    })
    .await;
    let answer = asked(Method::GET, page).await;
    assert_eq!(answer.status(), 200);
    for (name, value) in [
        ("content-type", "text/html; charset=utf-8"),
        ("cache-control", "no-store"),
        ("referrer-policy", "no-referrer"),
        ("x-content-type-options", "nosniff"),
    ] {
        assert_eq!(header(&answer, name), value, "{name}");
    }
    let policy = header(&answer, "content-security-policy").to_owned();
    assert!(policy.starts_with("default-src 'none'; "), "{policy}");
    assert!(
        !policy.contains("unsafe") && !policy.contains('*'),
        "{policy}"
    );
    let html = answer.text().await.unwrap();
    assert!(html.contains("<video"), "{html}");
    // It is good for no longer than the link.
    let source = format!("src=\"../{ours}?jwt={token}\"");
    assert!(html.contains(&source), "{html}");
    let file = asked(Method::GET, &format!("{base}/replays/{ours}")).await;
    assert_eq!(file.bytes().await.unwrap(), CONTENT);

    for (method, path) in [
        (Method::GET, format!("{base}/replays")),
        (Method::POST, format!("{base}/replays")),
        (Method::POST, format!("{base}/replays/{ours}/stop")),
        (Method::GET, format!("{base}/replays/{ours}/")),
        (Method::DELETE, format!("{base}/replays/{ours}")),
        (Method::GET, format!("{base}/replays/{other}")),
        (Method::GET, format!("{base}/replays/{other}/view")),
        (Method::GET, format!("{base}/live")),
        (Method::GET, format!("{base}/fs/list_files")),
        (Method::GET, base.clone()),
        (Method::GET, "/browsers".to_owned()),
    ] {
        let answer = asked(method.clone(), &path).await;
        assert_eq!(answer.status(), 401, "{method} {path}");
    }
    let signature = token.rsplit_once('.').unwrap().1;
    assert!(!dev.log().contains(signature), "a token is in the log");
    dev.finish().await;
}

#[tokio::test]
async fn nobody_else_finds_a_replay() {
    let dev = Dev::start().await;
    let browser = dev.browser(json!({"name": "ours"})).await;
    let elsewhere = dev.browser(json!({})).await;
    let replay = add_finished(&dev, &browser, CONTENT);
    let base = format!("/browsers/{}", id(&browser));
    dev.delete(&base).await;

    let mut command = berth(&["key", "create", "--name", "k", "--project", "other"]);
    command.arg("--state-dir").arg(dev.state_dir());
    let stranger = print(command).await.stdout;
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
            let answer = Answer::of(request.bearer_auth(stranger.trim())).await;
            answer.assert_error(404, "not_found");
            let nobody = Answer::of(dev.anonymous(method, &path)).await;
            nobody.assert_error(401, "unauthorized");
        }
    }
    // The token of the browser's own URLs ends with it.
    let session = browser["cdp_ws_url"].as_str().unwrap();
    let session = session.split_once("?jwt=").unwrap().1;
    for path in ["/replays".to_owned(), format!("/replays/{replay}")] {
        let request = dev.anonymous(Method::GET, &format!("{base}{path}?jwt={session}"));
        Answer::of(request).await.assert_error(404, "not_found");
    }
    let elsewhere = format!("/browsers/{}", id(&elsewhere));
    for path in [
        "/browsers/nobody/replays".to_owned(),
        "/browsers/brw_01jd0000000000000000000000/replays".to_owned(),
        format!("{base}/replays/rep_01jd0000000000000000000000"),
        format!("{base}/replays/nothing"),
        format!("{elsewhere}/replays/{replay}"),
        format!("{elsewhere}/replays/{replay}/view"),
        // Nothing else below it is passed on to an agent.
        format!("{elsewhere}/replays/{replay}/"),
        format!("{elsewhere}/replays/{replay}/else"),
        format!("{elsewhere}/replays/"),
    ] {
        dev.get(&path).await.assert_error(404, "not_found");
    }
    let start = dev.post(&format!("{base}/replays"), json!({})).await;
    assert_eq!(start.status, StatusCode::NOT_FOUND);
    dev.finish().await;
}

#[tokio::test]
async fn where_those_that_are_kept_leave_no_room_none_is_started() {
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
    let nobody = dev.post("/browsers/nobody/replays", json!({})).await;
    nobody.assert_error(404, "not_found");
    dev.finish().await;
}

#[tokio::test]
async fn of_one_browser_only_so_many_are_kept() {
    let dev = Dev::start().await;
    let [full, other] = [dev.browser(json!({})).await, dev.browser(json!({})).await];
    dev.sql(&format!(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000) \
         INSERT INTO replays (id, project_id, browser_id, state, started_at) \
         SELECT 'rep_01jd' || printf('%022d', i), project_id, id, 'lost', i \
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
    // It would have been started but for that.
    start(&other).await.assert_error(409, "no_display");
    let listed = dev.get(&format!("/browsers/{}/replays", id(&full))).await;
    assert_eq!(listed.body.as_array().unwrap().len(), 1000);
    dev.finish().await;
}

#[tokio::test]
async fn one_that_is_lost_is_listed_and_says_so() {
    let dev = Dev::start().await;
    let browser = dev.browser(json!({})).await;
    let replay = add_finished(&dev, &browser, CONTENT);
    fs::remove_file(directory_of(&dev, &browser).join(format!("{replay}.mp4"))).unwrap();
    let base = format!("/browsers/{}", id(&browser));
    assert_eq!(dev.delete(&base).await.status, 204);
    let listed = until("it is known to be lost", async || {
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

//! Hosts that run one browser after another.

use futures::StreamExt;
use reqwest::{Client, Method, StatusCode};
use serde_json::{Value, json};
use tokio_tungstenite::{connect_async, tungstenite::Message};

use crate::support::{
    dev::{Answer, Dev},
    events::Events,
    processes, sockets,
    wait::{in_time, until},
};

fn id(browser: &Value) -> &str {
    browser["session_id"].as_str().unwrap()
}

fn path(browser: &Value) -> String {
    format!("/browsers/{}", id(browser))
}

async fn delete(dev: &Dev, browser: &Value) {
    let deleted = dev.delete(&path(browser)).await;
    assert_eq!(deleted.status, StatusCode::NO_CONTENT, "{}", deleted.body);
}

/// Deletes a browser and waits until its host is ready for the next.
async fn recycle(dev: &Dev, browser: &Value) {
    delete(dev, browser).await;
    dev.hosts_are("ready", 1).await;
}

/// Runs a script and returns its result.
async fn run(dev: &Dev, browser: &Value, code: &str) -> Value {
    let execute = format!("{}/automation/execute", path(browser));
    let answer = dev.post(&execute, json!({ "code": code })).await;
    assert_eq!(answer.body["success"], true, "{}", answer.body);
    answer.body["result"].clone()
}

#[tokio::test]
async fn next_browser_gets_the_same_host_and_nothing_of_the_one_before() {
    const PAGE: &str = "data:text/html,<title>started</title>";
    let dev = Dev::with(&["--idle-hosts", "1"]).await;
    let options = json!({"viewport": {"width": 800, "height": 600}, "start_url": PAGE});
    let first = dev.browser(options).await;
    let agent = dev.only_agent().await;
    let plant = "await page.route('http://site.test/', route => route.fulfill({body: 'x'}));
        await page.goto('http://site.test/');
        await page.evaluate(() => {
            localStorage.planted = 'yes'; document.cookie = 'planted=yes; max-age=9999';
        });
        return (await context.cookies()).length";
    assert_eq!(run(&dev, &first, plant).await, 1);
    recycle(&dev, &first).await;

    let options = json!({"viewport": {"width": 1024, "height": 768, "refresh_rate": 30}});
    let second = dev.browser(options.clone()).await;
    assert_eq!(dev.only_agent().await, agent, "another host");
    assert_ne!(id(&second), id(&first));
    assert_eq!(second["viewport"], options["viewport"]);
    let found = "const urls = context.pages().map(page => page.url());
        await page.route('http://site.test/', route => route.fulfill({body: 'x'}));
        await page.goto('http://site.test/');
        const [stored, size] = await page.evaluate(() =>
            [localStorage.planted ?? null, [innerWidth, screen.width]]);
        return [urls, (await context.cookies()).length, stored, size[1]]";
    assert_eq!(
        run(&dev, &second, found).await,
        json!([["about:blank"], 0, null, 1024])
    );
    // The session goes on after its agent was killed.
    processes::signal(agent.as_raw() as u32, nix::sys::signal::Signal::SIGKILL);
    until("another agent", async || {
        (dev.only_agent().await != agent).then_some(())
    })
    .await;
    let size = run(
        &dev,
        &second,
        "return await page.evaluate(() => screen.width)",
    )
    .await;
    assert_eq!(size, 1024);
    dev.finish().await;
}

#[tokio::test]
async fn host_is_replaced_after_a_program_or_for_another_mode_or_beyond_the_number_to_keep() {
    let dev = Dev::with(&["--idle-hosts", "1", "--max-browsers", "2"]).await;
    let (first, second) = (dev.browser(json!({})).await, dev.browser(json!({})).await);
    recycle(&dev, &first).await;
    delete(&dev, &second).await;
    let kept = dev.only_agent().await;

    // Its user can write where the next session would find it.
    let third = dev.browser(json!({})).await;
    assert_eq!(dev.only_agent().await, kept);
    let exec = format!("{}/process/exec", path(&third));
    let done = dev.post(&exec, json!({"command": "true"})).await;
    assert_eq!(done.status, StatusCode::OK, "{}", done.body);
    delete(&dev, &third).await;
    assert_eq!(dev.descendants_with(" agent "), []);

    // Both are kept or running, and neither is on a screen.
    let (fourth, fifth) = (dev.browser(json!({})).await, dev.browser(json!({})).await);
    delete(&dev, &fourth).await;
    let on_screen = dev.post("/browsers", json!({})).await;
    assert_eq!(on_screen.status, StatusCode::CREATED, "{}", on_screen.body);
    let beyond = dev.post("/browsers", json!({})).await;
    beyond.assert_error(429, "limit_exceeded");
    delete(&dev, &fifth).await;
    // Waits until no process is left, although one host is idle.
    dev.finish().await;
}

#[tokio::test]
async fn recording_of_a_browser_is_kept_when_its_host_is_used_again() {
    let dev = Dev::with(&["--idle-hosts", "1"]).await;
    // Only a screen can be recorded.
    let on_screen = async || dev.post("/browsers", json!({})).await.body;
    let first = on_screen().await;
    let agent = dev.only_agent().await;
    let replays = format!("{}/replays", path(&first));
    let started = dev.post(&replays, json!({})).await;
    assert_eq!(started.status, StatusCode::CREATED, "{}", started.body);
    recycle(&dev, &first).await;
    let second = on_screen().await;
    assert_eq!(dev.only_agent().await, agent, "another host");
    let own = dev.get(&format!("{}/replays", path(&second))).await;
    assert_eq!(own.body, json!([]));
    let listed = dev.get(&replays).await;
    assert_eq!(listed.body[0]["status"], "finished", "{}", listed.body);
    assert_eq!(listed.body.as_array().unwrap().len(), 1);
    dev.finish().await;
}

#[tokio::test]
async fn crash_leaves_no_idle_host() {
    let dev = Dev::with(&["--idle-hosts", "1"]).await;
    let browser = dev.browser(json!({})).await;
    recycle(&dev, &browser).await;
    let state = dev.crash().await;
    let dev = Dev::start_in(state, &["--idle-hosts", "1"]).await;
    dev.browser(json!({})).await;
    dev.finish().await;
}

/// The methods and paths of all session routes but those of replays, which outlive their browser.
async fn session_routes(dev: &Dev) -> Vec<(Method, String)> {
    let document = dev.get("/openapi.json").await.body;
    let mut routes = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        let Some(route) = path.strip_prefix("/browsers/{id}/") else {
            continue;
        };
        // They are control's own.
        if route.starts_with("replays") || ["profiles", "credentials/fill"].contains(&route) {
            continue;
        }
        // The value of a parameter does not matter to a session that has ended.
        let route = route.replace("{process_id}", "00000000-0000-4000-8000-000000000000");
        let route: Vec<&str> = route
            .split('/')
            .map(|part| if part.starts_with('{') { "x" } else { part })
            .collect();
        for method in item.as_object().unwrap().keys() {
            if let Ok(method) = method.to_uppercase().parse::<Method>()
                && matches!(
                    method,
                    Method::GET | Method::POST | Method::PUT | Method::DELETE
                )
            {
                routes.push((method, route.join("/")));
            }
        }
    }
    assert!(routes.len() > 40, "{routes:?}");
    routes
}

/// Returns the address on which an agent listens.
fn address(agent: u32) -> String {
    let listeners = sockets::tcp_listeners(agent);
    let (_, port) = listeners[0].split_once(':').unwrap();
    format!("127.0.0.1:{}", u16::from_str_radix(port, 16).unwrap())
}

#[tokio::test]
async fn id_token_and_streams_of_an_ended_browser_reach_nothing_of_the_next_on_its_host() {
    let dev = Dev::with(&["--idle-hosts", "1"]).await;
    let first = dev.browser(json!({})).await;
    let agent = dev.only_agent().await;
    let url = first["cdp_ws_url"].as_str().unwrap();
    let token = url.split_once("jwt=").unwrap().1.to_owned();
    let host = dev.host_dir(id(&first));
    let agent_token = std::fs::read_to_string(host.join("token")).unwrap();

    let directory = tempfile::tempdir().unwrap();
    let watched = json!({"path": directory.path()});
    let watch = dev
        .post(&format!("{}/fs/watch", path(&first)), watched)
        .await;
    let watch = watch.body["watch_id"].as_str().unwrap().to_owned();
    let watch = format!("{}/fs/watch/{watch}/events", path(&first));
    let mut events = Events::open(dev.request(Method::GET, &watch)).await;
    let (mut devtools, _) = connect_async(url).await.unwrap();
    let slow = json!({"code": "await new Promise(() => {})", "timeout_sec": 300});
    let execute = format!("{}/automation/execute", path(&first));
    let running = dev.request(Method::POST, &execute).json(&slow).send();
    let running = tokio::spawn(running);
    until("the script", async || {
        let log = dev.get(&format!("{}/json/list", path(&first))).await;
        (log.status == 200 && !dev.descendants_with("berth-script").is_empty()).then_some(())
    })
    .await;

    recycle(&dev, &first).await;
    let second = dev.browser(json!({})).await;
    assert_eq!(dev.only_agent().await, agent, "another host");

    assert_eq!(events.next().await, None, "the stream has ended");
    let close = in_time("a Close frame", devtools.next()).await;
    let Some(Ok(Message::Close(Some(close)))) = close else {
        panic!("{close:?}");
    };
    assert_eq!(u16::from(close.code), 4004, "{close:?}");
    let interrupted = in_time("the script's response", running).await.unwrap();
    // The host has reset it, or control had no response yet.
    if let Ok(response) = interrupted {
        assert!(response.status().is_client_error() || response.status().is_server_error());
    }

    let direct = format!("http://{}", address(agent.as_raw() as u32));
    for (method, route) in session_routes(&dev).await {
        let old = format!("{}/{route}", path(&first));
        let bearer = dev.request(method.clone(), &old).json(&json!({}));
        let answer = Answer::of(bearer).await;
        answer.assert_error(404, "not_found");
        let linked = format!("{old}?jwt={token}");
        let answer = Answer::of(dev.anonymous(method.clone(), &linked)).await;
        answer.assert_error(410, "session_ended");
        // The token is valid for the browser that it names alone.
        let other = format!("{}/{route}?jwt={token}", path(&second));
        let answer = Answer::of(dev.anonymous(method.clone(), &other)).await;
        answer.assert_error(401, "unauthorized");
        // Even if control were wrong about the host, the agent would not be.
        let stale = Client::new()
            .request(method, format!("{direct}/{route}"))
            .bearer_auth(&agent_token)
            .header("berth-generation", "1")
            .json(&json!({}));
        Answer::of(stale).await.assert_error(410, "session_ended");
    }
    dev.finish().await;
}

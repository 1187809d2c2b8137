//! Pop-ups and web workers that a script opens. It sees them from their start, although the warm
//! workers of other scripts are attached to the same tabs.

use axum::{Router, response::Html, routing::get};
use serde_json::json;
use tokio::net::TcpListener;

use crate::support::{agent::Start, scripts::result_of};

const DOCUMENT: &str = "<!doctype html><title>site</title><link rel=icon href=data:,>";
const WORKER: &str =
    "console.log('started'); fetch('/data').then(data => data.text()).then(console.log)";

/// Serves a site until the test's runtime ends, and returns its URL.
async fn serve() -> String {
    let script = [("content-type", "text/javascript")];
    let app = Router::new()
        .route("/", get(async || Html(DOCUMENT)))
        .route("/worker.js", get(async move || (script, WORKER)))
        .route("/data", get(async || "content"));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });
    url
}

#[tokio::test]
async fn popup_that_opens_a_dialog_is_reported_at_once() {
    let agent = Start::headless().ready().await;
    // More often than once: whether another client disturbs is a matter of order.
    let code = "const found = []; \
        for (let round = 0; round < 5; round++) { \
            const evaluated = page.evaluate(() => window.open('').alert('hello')); \
            const [popup, dialog] = await Promise.all([page.waitForEvent('popup'), context.waitForEvent('dialog')]); \
            found.push([dialog.message(), dialog.page() === popup]); \
            await dialog.dismiss(); await evaluated; await popup.close() } \
        return found";
    let expected = json!(["hello", true]);
    assert_eq!(result_of(&agent, code).await, json!(vec![expected; 5]));
    agent.stop().await;
}

#[tokio::test]
async fn popup_starts_with_the_scripts_of_its_context() {
    let agent = Start::headless().ready().await;
    let code = "await context.addInitScript(() => { window.own = 'set' }); \
        const found = []; \
        for (let round = 0; round < 5; round++) { \
            const [popup, seen] = await Promise.all([ \
                page.waitForEvent('popup'), page.evaluate(() => window.open('about:blank').own)]); \
            found.push(seen); await popup.close() } \
        return found";
    assert_eq!(result_of(&agent, code).await, json!(vec!["set"; 5]));
    agent.stop().await;
}

#[tokio::test]
async fn first_events_of_a_web_worker_are_reported() {
    let (agent, url) = (Start::headless().ready().await, serve().await);
    let code = format!(
        "await page.goto('{url}'); \
         const messages = []; page.on('console', message => messages.push(message.text())); \
         const requests = []; page.on('request', request => requests.push(new URL(request.url()).pathname)); \
         const workers = []; page.on('worker', worker => workers.push(new URL(worker.url()).pathname)); \
         const found = []; \
         for (let round = 0; round < 5; round++) {{ \
             const content = page.waitForEvent('console', message => message.text() === 'content'); \
             const response = page.waitForResponse('**/data'); \
             await page.evaluate(() => {{ new Worker('/worker.js') }}); \
             await content; \
             found.push([...[messages, requests, workers].map(list => list.splice(0)), await (await response).text()]) }} \
         return found"
    );
    let expected = json!([
        ["started", "content"],
        ["/worker.js", "/data"],
        ["/worker.js"],
        "content"
    ]);
    assert_eq!(result_of(&agent, &code).await, json!(vec![expected; 5]));
    agent.stop().await;
}

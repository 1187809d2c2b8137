//! Browsers with logins, and the profiles that they are saved to.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::dev::{Answer, Dev};

/// The site that the browsers are logged in at. No server: the scripts answer for it.
const OPEN_SITE: &str = "await page.route('http://site.test/', route => route.fulfill({
        contentType: 'text/html', body: '<!doctype html><title>site</title>',
    }));
    await page.goto('http://site.test/');";
/// Returns an open database.
const OPEN_DATABASE: &str = "const open = () => new Promise((resolve, reject) => {
        const request = indexedDB.open('database', 1);
        request.onupgradeneeded = () => request.result.createObjectStore('store');
        request.onsuccess = () => resolve(request.result);
        request.onerror = () => reject(request.error);
    });";

/// Returns the path of a browser.
pub fn path(browser: &Value) -> String {
    format!("/browsers/{}", browser["session_id"].as_str().unwrap())
}

/// Runs a script in a browser and returns its result.
pub async fn run(dev: &Dev, browser: &Value, code: &str) -> Value {
    let execute = format!("{}/automation/execute", path(browser));
    let answer = dev.post(&execute, json!({ "code": code })).await;
    assert_eq!(
        answer.body["success"],
        true,
        "{}\n{}",
        answer.body,
        dev.log()
    );
    answer.body["result"].clone()
}

/// Logs a browser in: a cookie, local storage and a database have the value.
pub async fn log_in(dev: &Dev, browser: &Value, value: &str) {
    let code = format!(
        "{OPEN_SITE}
        await page.evaluate(async () => {{
            {OPEN_DATABASE}
            document.cookie = 'login={value}; max-age=99999';
            localStorage.login = '{value}';
            const database = await open();
            await new Promise((resolve, reject) => {{
                const change = database.transaction('store', 'readwrite', {{durability: 'strict'}});
                change.objectStore('store').put('{value}', 'login');
                change.oncomplete = resolve;
                change.onerror = () => reject(change.error);
            }});
            database.close();
        }});"
    );
    run(dev, browser, &code).await;
}

/// Returns what a browser has of a login: the cookie, the local storage and the database.
pub async fn login_of(dev: &Dev, browser: &Value) -> [Option<String>; 3] {
    let code = format!(
        "{OPEN_SITE}
        return await page.evaluate(async () => {{
            {OPEN_DATABASE}
            const database = await open();
            const stored = await new Promise((resolve, reject) => {{
                const request = database.transaction('store').objectStore('store').get('login');
                request.onsuccess = () => resolve(request.result ?? null);
                request.onerror = () => reject(request.error);
            }});
            database.close();
            const cookie = document.cookie.match(/login=([^;]*)/)?.[1] ?? null;
            return [cookie, localStorage.login ?? null, stored];
        }});"
    );
    let found = run(dev, browser, &code).await;
    let text = |index: usize| found[index].as_str().map(str::to_owned);
    [text(0), text(1), text(2)]
}

/// Returns the login with a value in all places.
pub fn logged_in(value: &str) -> [Option<String>; 3] {
    [(); 3].map(|()| Some(value.to_owned()))
}

/// Creates a profile and returns its id.
pub async fn profile(dev: &Dev, name: &str) -> String {
    let created = dev.post("/profiles", json!({ "name": name })).await;
    assert_eq!(created.status, StatusCode::CREATED, "{}", created.body);
    created.body["id"].as_str().unwrap().to_owned()
}

/// Returns a profile by its id or name.
pub async fn found(dev: &Dev, profile: &str) -> Value {
    let found = dev.get(&format!("/profiles/{profile}")).await;
    assert_eq!(found.status, StatusCode::OK, "{}", found.body);
    found.body
}

/// Ends a browser, which saves its profile if it is to.
pub async fn end(dev: &Dev, browser: &Value) {
    let deleted = dev.delete(&path(browser)).await;
    assert_eq!(
        deleted.status,
        StatusCode::NO_CONTENT,
        "{}\n{}",
        deleted.body,
        dev.log()
    );
}

/// Saves a running browser to a profile.
pub async fn save(dev: &Dev, browser: &Value, target: Value) -> Answer {
    dev.post(&format!("{}/profiles", path(browser)), target)
        .await
}

/// Saves a running browser to a profile and returns the receipt.
pub async fn saved(dev: &Dev, browser: &Value, target: Value) -> Value {
    let answer = save(dev, browser, target).await;
    assert_eq!(
        answer.status,
        StatusCode::CREATED,
        "{}\n{}",
        answer.body,
        dev.log()
    );
    answer.body
}

/// Downloads the archive of a profile.
pub async fn download(dev: &Dev, profile: &str) -> Vec<u8> {
    let request = dev.request(Method::GET, &format!("/profiles/{profile}/download"));
    let response = request.send().await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    response.bytes().await.unwrap().to_vec()
}

/// Uploads an archive to a profile.
pub async fn upload(dev: &Dev, profile: &str, archive: impl Into<reqwest::Body>) -> Answer {
    let path = format!("/profiles/{profile}/upload");
    Answer::of(dev.request(Method::PUT, &path).body(archive)).await
}

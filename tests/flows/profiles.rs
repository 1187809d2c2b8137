//! Profiles: logins that outlive their browsers.

use std::{env, fs};

use futures::{SinkExt, StreamExt, future::join};
use nix::sys::signal::{Signal, kill};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio_tungstenite::{connect_async, tungstenite::Message};

use crate::support::{
    agent::Start,
    dev::{Answer, Dev, State},
    fleet_agent::{FLEET, fleet_control, fleet_control_again, host_is, join as join_fleet},
    profiles::{
        download, end, found, log_in, logged_in, login_of, path, profile, run, save, saved,
    },
    s3::S3Server,
    wait::{in_time, until},
};

/// The saves of a browser under write load: 20 unless the variable has another number.
const SAVES: &str = "BERTH_TEST_PROFILE_SAVES";

fn with_profile(name: &str, save_changes: bool) -> Value {
    json!({"profile": {"name": name, "save_changes": save_changes}})
}

/// Waits until a save or a load is in progress.
async fn saving(dev: &Dev) {
    until("the save", async || {
        let operations = dev.rows("SELECT id FROM profile_operations").await;
        (!operations.is_empty()).then_some(())
    })
    .await;
}

#[tokio::test]
async fn login_is_present_in_the_next_browser() {
    let dev = Dev::start().await;
    let id = profile(&dev, "shop").await;
    let first = dev.browser(with_profile("shop", true)).await;
    assert_eq!(
        first["profile"],
        json!({"id": id, "name": "shop", "save_changes": true})
    );
    log_in(&dev, &first, "one").await;
    end(&dev, &first).await;
    let shop = found(&dev, "shop").await;
    assert_eq!(shop["version"], 1, "{}", dev.log());
    let versions = dev.get("/profiles/shop/versions").await.body;
    assert_eq!(versions[0]["cookies"], json!({"site.test": 1}));
    assert_eq!(versions[0]["origins"], json!(["http://site.test"]));
    assert!(versions[0]["chromium_version"].is_string(), "{versions}");
    assert!(shop["last_used_at"].is_string(), "{shop}");

    // Without `save_changes` the profile stays as it is.
    let reader = dev.browser(with_profile("shop", false)).await;
    assert_eq!(login_of(&dev, &reader).await, logged_in("one"));
    let listed = dev.get("/browsers").await.body;
    assert_eq!(listed[0]["profile"], reader["profile"]);
    log_in(&dev, &reader, "two").await;
    end(&dev, &reader).await;
    assert_eq!(found(&dev, "shop").await["version"], 1);
    let again = dev.browser(with_profile("shop", true)).await;
    assert_eq!(login_of(&dev, &again).await, logged_in("one"));
    end(&dev, &again).await;
    assert_eq!(found(&dev, "shop").await["version"], 2);
    dev.finish().await;
}

/// Many sites keep a login in a cookie without an expiry.
#[tokio::test]
async fn session_cookie_is_present_in_the_next_browser_and_no_tab_is() {
    const SET: &str = "
        await page.route('http://site.test/**', route => route.fulfill({
            contentType: 'text/html', body: '<!doctype html><title>site</title>',
        }));
        await page.goto('http://site.test/account');
        await page.evaluate(() => { document.cookie = 'session=one; path=/'; });";
    const FOUND: &str = "
        const cookies = await context.cookies('http://site.test/');
        return {
            cookies: cookies.map(({name, value, expires}) => [name, value, expires]),
            tabs: context.pages().map(page => page.url()).filter(url => url.includes('site.test')),
        };";
    let expected = json!({"cookies": [["session", "one", -1]], "tabs": []});
    let dev = Dev::start().await;
    profile(&dev, "shop").await;
    let first = dev.browser(with_profile("shop", true)).await;
    run(&dev, &first, SET).await;
    end(&dev, &first).await;
    let versions = dev.get("/profiles/shop/versions").await.body;
    assert_eq!(versions[0]["cookies"], json!({"site.test": 1}));
    assert_eq!(versions[0]["skipped"], json!([]));

    let second = dev.browser(with_profile("shop", true)).await;
    assert_eq!(run(&dev, &second, FOUND).await, expected);
    run(&dev, &second, SET).await;
    saved(&dev, &second, json!({"name": "shop"})).await;

    // The archive of a running browser looks like that of a crashed one.
    let third = dev.browser(with_profile("shop", false)).await;
    assert_eq!(run(&dev, &third, FOUND).await, expected);
    for browser in [&second, &third] {
        end(&dev, browser).await;
    }
    dev.finish().await;
}

#[tokio::test]
async fn profile_has_one_writer() {
    let dev = Dev::start().await;
    let id = profile(&dev, "shop").await;
    let writer = dev.browser(with_profile("shop", true)).await;
    let second = dev.post("/browsers", with_profile("shop", true)).await;
    second.assert_error(409, "profile_in_use");
    assert_eq!(second.header("x-should-retry"), "false");
    let other = dev.browser(with_profile("shop", false)).await;
    for refused in [
        save(&dev, &other, json!({"name": "shop"})).await,
        dev.delete("/profiles/shop").await,
        crate::support::profiles::upload(&dev, "shop", "x").await,
    ] {
        refused.assert_error(409, "profile_in_use");
    }
    // The writer itself may save while it runs.
    log_in(&dev, &writer, "one").await;
    let receipt = saved(&dev, &writer, json!({"profile_id": id})).await;
    assert_eq!(receipt["version"], 1);
    let restored = dev
        .post("/profiles/shop/versions/1/restore", json!({}))
        .await;
    restored.assert_error(409, "profile_in_use");
    end(&dev, &writer).await;
    assert_eq!(found(&dev, "shop").await["version"], 2);
    let receipt = saved(&dev, &other, json!({"name": "shop"})).await;
    assert_eq!(receipt["version"], 3);
    let (one, two) = join(
        save(&dev, &other, json!({"name": "shop"})),
        save(&dev, &other, json!({"name": "shop"})),
    )
    .await;
    let mut statuses = [one.status.as_u16(), two.status.as_u16()];
    statuses.sort_unstable();
    assert_eq!(statuses, [201, 409], "{} {}", one.body, two.body);
    assert_eq!(found(&dev, "shop").await["version"], 4);
    end(&dev, &other).await;
    let deleted = dev.delete("/profiles/shop").await;
    assert_eq!(deleted.status, StatusCode::NO_CONTENT);
    dev.finish().await;
}

/// Saves the browser again and again while pages write, and compares each version with what was
/// there before the save.
#[tokio::test]
async fn running_browser_is_saved_under_load_without_disconnecting_its_clients() {
    let dev = Dev::start().await;
    let saves: usize = env::var(SAVES).map_or(4, |count| count.parse().unwrap());
    let writer = dev.browser(json!({"timeout_seconds": 600})).await;
    let (mut devtools, _) = connect_async(writer["cdp_ws_url"].as_str().unwrap())
        .await
        .unwrap();
    run(&dev, &writer, WRITE_LOAD).await;
    let mut has_worker = false;
    for number in 1..=saves {
        let before = run(&dev, &writer, WRITTEN).await;
        let receipt = saved(&dev, &writer, json!({"name": "shop"})).await;
        assert_eq!(receipt["version"], number);
        assert_eq!(receipt["cookies"], json!({"load.test": 1}), "{}", dev.log());
        assert_eq!(receipt["origins"], json!(["https://load.test"]));
        let versions = dev.get("/profiles/shop/versions?limit=1").await.body;
        for field in ["version", "size_bytes", "cookies", "origins", "skipped"] {
            assert_eq!(versions[0][field], receipt[field], "{field}");
        }
        let reader = dev.browser(with_profile("shop", false)).await;
        let after = run(&dev, &reader, RESTORED).await;
        for store in ["cookie", "database"] {
            let (before, after) = (before[store].as_u64(), after[store].as_u64());
            assert!(
                before.is_some() && after >= before,
                "{store}: {before:?} {after:?}"
            );
        }
        // Its registration reaches the disk some time after it has succeeded, and stays there.
        assert!(!has_worker || after["worker"] == true, "{number}: {after}");
        has_worker |= after["worker"] == true;
        end(&dev, &reader).await;
    }
    assert!(has_worker || saves < 20);
    // The connection is the same, and so is the browser.
    let command = json!({"id": 1, "method": "Browser.getVersion"}).to_string();
    devtools.send(Message::text(command)).await.unwrap();
    let answer = in_time("an answer", devtools.next())
        .await
        .unwrap()
        .unwrap();
    assert!(answer.to_text().unwrap().contains("product"), "{answer}");
    let status = dev.get(&format!("{}/chromium", path(&writer))).await;
    assert!(status.body["restarts"] == 0 || status.status == StatusCode::NOT_FOUND);
    end(&dev, &writer).await;
    dev.finish().await;
}

/// Opens a page that writes a number to a cookie and to a database, one after the other, and has a
/// service worker.
const WRITE_LOAD: &str = "
    await context.route('https://load.test/**', route => {
        const isWorker = route.request().url().endsWith('worker.js');
        return route.fulfill(isWorker
            ? {contentType: 'text/javascript', body: 'addEventListener(\"fetch\", () => {})'}
            : {contentType: 'text/html', body: '<!doctype html><title>load</title>'});
    });
    await page.goto('https://load.test/');
    await page.evaluate(async () => {
        const registration = await navigator.serviceWorker.register('/worker.js');
        await navigator.serviceWorker.ready;
        const database = await new Promise((resolve, reject) => {
            const request = indexedDB.open('load', 1);
            request.onupgradeneeded = () => request.result.createObjectStore('store');
            request.onsuccess = () => resolve(request.result);
            request.onerror = () => reject(request.error);
        });
        globalThis.written = {cookie: 0, database: 0};
        const write = number => {
            document.cookie = `load=${number}; max-age=99999; path=/`;
            written.cookie = number;
            const change = database.transaction('store', 'readwrite', {durability: 'strict'});
            change.objectStore('store').put(number, 'load');
            change.objectStore('store').put('x'.repeat(4096), `filler-${number % 500}`);
            change.oncomplete = () => { written.database = number; write(number + 1); };
        };
        write(1);
    });";
/// Returns the numbers that were written completely.
const WRITTEN: &str =
    "const page = context.pages().find(page => page.url() === 'https://load.test/');
    return await page.evaluate(() => ({...written}));";
/// Returns the numbers in the restored profile.
const RESTORED: &str = "
    await context.route('https://load.test/**', route => route.fulfill({
        contentType: 'text/html', body: '<!doctype html><title>load</title>',
    }));
    await page.goto('https://load.test/');
    return await page.evaluate(async () => {
        const registration = await navigator.serviceWorker.getRegistration();
        const database = await new Promise((resolve, reject) => {
            const request = indexedDB.open('load', 1);
            request.onsuccess = () => resolve(request.result);
            request.onerror = () => reject(request.error);
        });
        const stored = await new Promise((resolve, reject) => {
            const request = database.transaction('store').objectStore('store').get('load');
            request.onsuccess = () => resolve(request.result);
            request.onerror = () => reject(request.error);
        });
        const cookie = Number(document.cookie.match(/load=([0-9]*)/)?.[1]);
        return {cookie, database: stored, worker: registration !== undefined};
    });";

#[tokio::test]
async fn login_is_present_on_another_registered_host() {
    let dev = fleet_control().await;
    let (first_agent, first_host) = join_fleet(&dev, Start::headless()).await;
    profile(&dev, "shop").await;
    let first = dev.browser(with_profile("shop", true)).await;
    log_in(&dev, &first, "one").await;
    end(&dev, &first).await;
    assert_eq!(found(&dev, "shop").await["version"], 1, "{}", dev.log());
    host_is(&dev, &first_host, "ready").await;
    let drained = format!("/fleet/hosts/{}/drain", first_host["id"].as_str().unwrap());
    dev.post(&drained, json!({})).await;
    let (second_agent, second_host) = join_fleet(&dev, Start::headless()).await;
    let second = dev.browser(with_profile("shop", false)).await;
    let leased = host_is(&dev, &second_host, "leased").await;
    assert_eq!(leased["session_id"], second["session_id"]);
    assert_eq!(login_of(&dev, &second).await, logged_in("one"));
    end(&dev, &second).await;
    first_agent.stop().await;
    second_agent.stop().await;
    dev.finish().await;
}

/// Saves a login to a new profile, and returns the archive.
async fn save_login(dev: &Dev, name: &str, value: &str) -> Vec<u8> {
    profile(dev, name).await;
    let browser = dev.browser(with_profile(name, true)).await;
    log_in(dev, &browser, value).await;
    end(dev, &browser).await;
    download(dev, name).await
}

#[tokio::test]
async fn killed_agent_leaves_the_previous_version() {
    let dev = Dev::start().await;
    let archive = save_login(&dev, "shop", "one").await;
    let second = dev.browser(with_profile("shop", true)).await;
    log_in(&dev, &second, "two").await;
    // While it is saved: the first byte of the archive comes after Chromium has closed.
    let agents = dev.descendants_with(" agent ");
    let killing = async {
        saving(&dev).await;
        for agent in agents {
            let _ = kill(agent, Signal::SIGKILL);
        }
    };
    let path = path(&second);
    let (deleted, ()) = join(dev.delete(&path), killing).await;
    assert_eq!(deleted.status, StatusCode::NO_CONTENT, "{}", deleted.body);
    // The agent is started again, but what its Chromium finds is not saved.
    let shop = found(&dev, "shop").await;
    let expected = if shop["version"] == 1 {
        assert_eq!(download(&dev, "shop").await, archive);
        assert!(shop["last_save_error"]["message"].is_string(), "{shop}");
        "one"
    } else {
        // The archive was complete before the kill.
        assert_eq!(shop["version"], 2, "{shop}");
        "two"
    };
    // The profile can be written again.
    let third = dev.browser(with_profile("shop", true)).await;
    assert_eq!(login_of(&dev, &third).await, logged_in(expected));
    end(&dev, &third).await;
    dev.finish().await;
}

#[tokio::test]
async fn killed_blob_store_leaves_the_previous_version_until_the_save_is_repeated() {
    let mut s3 = S3Server::start().await;
    let dev = Dev::start_with_variables(State::new(), &[], s3.variables()).await;
    profile(&dev, "shop").await;
    let browser = dev.browser(with_profile("shop", true)).await;
    log_in(&dev, &browser, "one").await;
    saved(&dev, &browser, json!({"name": "shop"})).await;
    let archive = download(&dev, "shop").await;
    log_in(&dev, &browser, "two").await;

    // A client may repeat the save of a browser that goes on.
    let killing = async {
        saving(&dev).await;
        kill(s3.pid(), Signal::SIGKILL).unwrap();
    };
    let (refused, ()) = join(save(&dev, &browser, json!({"name": "shop"})), killing).await;
    refused.assert_error(503, "unavailable");
    s3.restart().await;
    assert_eq!(found(&dev, "shop").await["version"], 1);
    assert_eq!(download(&dev, "shop").await, archive);

    // Control repeats that of a browser that ends, with the archive that it has.
    let failing = async {
        saving(&dev).await;
        kill(s3.pid(), Signal::SIGKILL).unwrap();
        until("another attempt", async || {
            let log = dev.log();
            log.contains("cannot save the profile of a browser yet")
                .then_some(())
        })
        .await;
        s3.restart().await;
    };
    let path = path(&browser);
    let (deleted, ()) = join(dev.delete(&path), failing).await;
    assert_eq!(deleted.status, StatusCode::NO_CONTENT, "{}", deleted.body);
    assert_eq!(found(&dev, "shop").await["version"], 2, "{}", dev.log());
    let reader = dev.browser(with_profile("shop", false)).await;
    assert_eq!(login_of(&dev, &reader).await, logged_in("two"));
    end(&dev, &reader).await;
    dev.finish().await;
}

#[tokio::test]
async fn second_of_two_browsers_that_save_one_profile_at_once_is_refused() {
    let dev = Dev::start().await;
    let (one, two) = (dev.browser(json!({})).await, dev.browser(json!({})).await);
    profile(&dev, "shop").await;
    for browser in [&one, &two] {
        log_in(&dev, browser, "login").await;
    }
    let target = || json!({"name": "shop"});
    let (first, second) = join(save(&dev, &one, target()), save(&dev, &two, target())).await;
    let (created, refused) = match first.status {
        StatusCode::CREATED => (first, second),
        _ => (second, first),
    };
    assert_eq!(created.status, StatusCode::CREATED, "{}", created.body);
    refused.assert_error(409, "profile_in_use");
    assert_eq!(found(&dev, "shop").await["version"], 1);
    // Afterwards each of them may.
    for (version, browser) in [(2, &one), (3, &two)] {
        let receipt = saved(&dev, browser, target()).await;
        assert_eq!(receipt["version"], version);
        end(&dev, browser).await;
    }
    dev.finish().await;
}

#[tokio::test]
async fn killed_control_leaves_the_previous_version_and_no_lock() {
    let dev = Dev::start().await;
    let archive = save_login(&dev, "shop", "one").await;
    let second = dev.browser(with_profile("shop", true)).await;
    let path = path(&second);
    let deleting = tokio::spawn(dev.request(Method::DELETE, &path).send());
    saving(&dev).await;
    let state = dev.crash().await;
    assert!(deleting.await.unwrap().is_err());
    let dev = Dev::start_in(state, &[]).await;
    let shop = found(&dev, "shop").await;
    assert_eq!(shop["version"], 1, "{shop}");
    assert_eq!(download(&dev, "shop").await, archive);
    let third = dev.browser(with_profile("shop", true)).await;
    assert_eq!(login_of(&dev, &third).await, logged_in("one"));
    end(&dev, &third).await;
    assert_eq!(found(&dev, "shop").await["version"], 2);
    dev.finish().await;
}

#[tokio::test]
async fn save_at_a_registered_host_is_finished_after_a_crash_of_control() {
    let dev = fleet_control().await;
    let (agent, host) = join_fleet(&dev, Start::headless()).await;
    profile(&dev, "shop").await;
    let browser = dev.browser(with_profile("shop", true)).await;
    log_in(&dev, &browser, "one").await;
    let path = path(&browser);
    let deleting = tokio::spawn(dev.request(Method::DELETE, &path).send());
    saving(&dev).await;
    let base_url = dev.base_url.clone();
    let state = dev.kill().await;
    assert!(deleting.await.unwrap().is_err());
    let dev = fleet_control_again(state, &base_url).await;
    until("the end of the save", async || {
        (found(&dev, "shop").await["version"] == 1).then_some(())
    })
    .await;
    host_is(&dev, &host, "ready").await;
    let next = dev.browser(with_profile("shop", true)).await;
    assert_eq!(login_of(&dev, &next).await, logged_in("one"));
    end(&dev, &next).await;
    agent.stop().await;
    dev.finish().await;
}

#[tokio::test]
async fn profile_is_loaded_into_a_running_browser_and_saved_at_its_end() {
    let dev = Dev::start().await;
    let shop = profile(&dev, "shop").await;
    profile(&dev, "empty").await;
    let first = dev.browser(json!({})).await;
    log_in(&dev, &first, "one").await;
    saved(&dev, &first, json!({"name": "shop"})).await;

    let browser = dev.browser(json!({"name": "b"})).await;
    log_in(&dev, &browser, "before").await;
    let unknown = dev.patch("/browsers/b", with_profile("none", false)).await;
    unknown.assert_error(404, "not_found");
    assert_eq!(unknown.bad_fields(), ["profile"]);
    let loaded = dev.patch("/browsers/b", with_profile("shop", true)).await;
    assert_eq!(
        loaded.status,
        StatusCode::OK,
        "{}\n{}",
        loaded.body,
        dev.log()
    );
    let expected = json!({"id": shop, "name": "shop", "save_changes": true});
    assert_eq!(loaded.body["profile"], expected);
    assert_eq!(login_of(&dev, &browser).await, logged_in("one"));
    log_in(&dev, &browser, "two").await;
    // A repeated request has no effect.
    let again = dev.patch("/browsers/b", with_profile("shop", true)).await;
    assert_eq!(again.body["profile"], expected, "{}", again.body);
    assert_eq!(login_of(&dev, &browser).await, logged_in("two"));
    for other in [with_profile("shop", false), with_profile("empty", false)] {
        let refused = dev.patch("/browsers/b", other).await;
        refused.assert_error(409, "conflict");
        assert_eq!(refused.bad_fields(), ["profile"]);
        assert_eq!(refused.header("x-should-retry"), "false");
    }
    // There is one writer. A refused request changes nothing.
    let refused = dev.patch(&path(&first), with_profile("shop", true)).await;
    refused.assert_error(409, "profile_in_use");
    assert_eq!(dev.get(&path(&first)).await.body.get("profile"), None);
    assert_eq!(login_of(&dev, &first).await, logged_in("one"));
    end(&dev, &browser).await;
    assert_eq!(found(&dev, "shop").await["version"], 2, "{}", dev.log());

    // A profile without a version is only saved.
    let attached = dev.patch(&path(&first), with_profile("empty", true)).await;
    assert_eq!(
        attached.body["profile"]["name"], "empty",
        "{}",
        attached.body
    );
    assert_eq!(login_of(&dev, &first).await, logged_in("one"));
    end(&dev, &first).await;
    assert_eq!(found(&dev, "empty").await["version"], 1, "{}", dev.log());
    let last = dev.browser(with_profile("shop", false)).await;
    assert_eq!(login_of(&dev, &last).await, logged_in("two"));
    dev.finish().await;
}

#[tokio::test]
async fn profile_that_cannot_be_loaded_is_not_saved_by_a_running_browser() {
    let dev = Dev::start().await;
    profile(&dev, "shop").await;
    let browser = dev.browser(json!({})).await;
    saved(&dev, &browser, json!({"name": "shop"})).await;
    for archive in fs::read_dir(dev.state_dir().join("blobs/profiles")).unwrap() {
        fs::remove_file(archive.unwrap().path()).unwrap();
    }
    let failed = dev.patch(&path(&browser), with_profile("shop", true)).await;
    assert!(failed.status.is_server_error(), "{}", failed.body);
    let seen = dev.get(&path(&browser)).await.body;
    assert_eq!(seen.get("profile"), None, "{seen}");
    // Its right to save the profile has ended.
    let other = dev.browser(json!({})).await;
    let receipt = saved(&dev, &other, json!({"name": "shop"})).await;
    assert_eq!(receipt["version"], 2);
    end(&dev, &browser).await;
    assert_eq!(found(&dev, "shop").await["version"], 2);
    dev.finish().await;
}

#[tokio::test]
async fn profile_of_a_browser_that_a_crash_of_control_has_ended_has_an_error() {
    let dev = Dev::start().await;
    profile(&dev, "shop").await;
    dev.browser(with_profile("shop", true)).await;
    let state = dev.crash().await;
    let dev = Dev::start_in(state, &[]).await;
    let shop = found(&dev, "shop").await;
    let expected = "the host of the browser was lost";
    assert_eq!(shop["last_save_error"]["message"], expected, "{shop}");
    assert_eq!(shop.get("version"), None);
    let next = dev.browser(with_profile("shop", true)).await;
    end(&dev, &next).await;
    let shop = found(&dev, "shop").await;
    assert_eq!(
        (&shop["version"], shop.get("last_save_error")),
        (&json!(1), None)
    );
    dev.finish().await;
}

/// Waits until a profile is being loaded into a browser that runs.
async fn attaching(dev: &Dev) {
    until("the load", async || {
        let loads = "SELECT id FROM profile_operations WHERE saving_profile_id IS NULL";
        let is_loading = !dev.rows(loads).await.is_empty();
        let attachments = dev.rows("SELECT id FROM profile_attachments").await;
        (is_loading && !attachments.is_empty()).then_some(())
    })
    .await;
}

async fn assert_load_of_killed_control_is_repeated(save_changes: bool) {
    let s3 = S3Server::start().await;
    let dev = Dev::start_with_variables(State::new(), &FLEET, s3.variables()).await;
    let (agent, _) = join_fleet(&dev, Start::headless()).await;
    profile(&dev, "shop").await;
    let browser = dev.browser(json!({"timeout_seconds": 600})).await;
    log_in(&dev, &browser, "one").await;
    saved(&dev, &browser, json!({"name": "shop"})).await;
    log_in(&dev, &browser, "two").await;
    let path = path(&browser);
    // The archive cannot be read before control is killed.
    kill(s3.pid(), Signal::SIGSTOP).unwrap();
    let request = dev.request(Method::PATCH, &path);
    let request = request.json(&with_profile("shop", save_changes));
    let loading = tokio::spawn(request.send());
    attaching(&dev).await;
    let address = dev.base_url.trim_start_matches("http://").to_owned();
    let state = dev.kill().await;
    assert!(loading.await.unwrap().is_err());
    kill(s3.pid(), Signal::SIGCONT).unwrap();
    let options = [&FLEET[..], &["--listen", &address]].concat();
    let dev = Dev::start_with_variables(state, &options, s3.variables()).await;
    // Nothing was loaded, and the profile is intact and not locked.
    let found_browser = dev.get(&path).await.body;
    assert_eq!(found_browser.get("profile"), None, "{found_browser}");
    assert_eq!(login_of(&dev, &browser).await, logged_in("two"));
    let receipt = saved(&dev, &browser, json!({"name": "copy"})).await;
    assert_eq!(receipt["version"], 1);
    assert_eq!(found(&dev, "shop").await["version"], 1);
    until("the end of the load", async || {
        let attachments = dev.rows("SELECT id FROM profile_attachments").await;
        attachments.is_empty().then_some(())
    })
    .await;
    // The same request loads it now.
    let loaded = dev.patch(&path, with_profile("shop", save_changes)).await;
    assert_eq!(loaded.status, StatusCode::OK, "{}", loaded.body);
    assert_eq!(loaded.body["profile"]["save_changes"], save_changes);
    assert_eq!(login_of(&dev, &browser).await, logged_in("one"));
    end(&dev, &browser).await;
    let version = 1 + u64::from(save_changes);
    assert_eq!(found(&dev, "shop").await["version"], version);
    agent.stop().await;
    dev.finish().await;
}

#[tokio::test]
async fn load_of_a_killed_control_is_repeated() {
    assert_load_of_killed_control_is_repeated(false).await;
}

#[tokio::test]
async fn load_of_a_killed_control_that_is_to_be_saved_is_repeated() {
    assert_load_of_killed_control_is_repeated(true).await;
}

#[tokio::test]
async fn load_of_a_killed_agent_leaves_the_browser_without_a_profile() {
    let dev = Dev::start().await;
    let archive = save_login(&dev, "shop", "one").await;
    let browser = dev.browser(json!({})).await;
    let path = path(&browser);
    let agents = dev.descendants_with(" agent ");
    let signal = |signal| {
        for agent in &agents {
            let _ = kill(*agent, signal);
        }
    };
    signal(Signal::SIGSTOP);
    let request = dev.request(Method::PATCH, &path);
    let request = request.json(&with_profile("shop", true));
    let loading = tokio::spawn(Answer::of(request));
    attaching(&dev).await;
    signal(Signal::SIGKILL);
    let failed = loading.await.unwrap();
    assert!(failed.status.is_server_error(), "{}", failed.body);
    let attachments = dev.rows("SELECT id FROM profile_attachments").await;
    assert_eq!(attachments.len(), 0);
    assert_eq!(download(&dev, "shop").await, archive);
    // Another browser has the login, and may save it.
    let other = dev.browser(with_profile("shop", true)).await;
    assert_eq!(login_of(&dev, &other).await, logged_in("one"));
    end(&dev, &other).await;
    assert_eq!(found(&dev, "shop").await["version"], 2);
    let seen = dev.get(&path).await.body;
    assert_eq!(seen.get("profile"), None, "{seen}");
    dev.finish().await;
}

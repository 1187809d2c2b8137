//! The places in which canaries are planted. A name is what a failure reports.

use futures::{FutureExt, future::LocalBoxFuture};
use serde_json::json;

use super::visit::{Visit, has_planted_file};
use crate::support::{page::Page, processes, scripts::execute, spawned::spawn};

/// A place that keeps data.
pub(super) struct Place {
    pub(super) name: &'static str,
    /// Plants the canary.
    pub(super) plant: Step,
    /// Returns whether there is one.
    pub(super) probe: Step,
}

/// An action of a session. An expression may name addresses of the site.
pub(super) enum Step {
    /// Evaluates an expression in the site's page.
    Page(&'static str),
    /// Evaluates an expression in a new tab with this address.
    Tab(&'static str, &'static str),
    /// Writes a file into a directory of the session.
    WriteFile(&'static str),
    /// Writes a file into a directory of the session that clients do not reach.
    WriteOwnFile(&'static str),
    /// Looks for that file in the directories of all sessions.
    FindFile(&'static str),
    /// Looks for a text in files of all sessions: their directory and the start of their name.
    Find(&'static str, &'static str, &'static str),
    /// Lets a process write a file into a directory.
    WriteAsProcess(&'static str),
    /// Lets a process read that file.
    ReadAsProcess(&'static str),
    Call(for<'v, 'a> fn(&'v mut Visit<'a>) -> LocalBoxFuture<'v, bool>),
}

const fn page(name: &'static str, plant: &'static str, probe: &'static str) -> Place {
    Place {
        name,
        plant: Step::Page(plant),
        probe: Step::Page(probe),
    }
}

const fn file(name: &'static str, directory: &'static str) -> Place {
    Place {
        name,
        plant: Step::WriteFile(directory),
        probe: Step::FindFile(directory),
    }
}

const fn own(name: &'static str, directory: &'static str) -> Place {
    Place {
        name,
        plant: Step::WriteOwnFile(directory),
        probe: Step::FindFile(directory),
    }
}

const fn private(name: &'static str, directory: &'static str) -> Place {
    Place {
        name,
        plant: Step::WriteAsProcess(directory),
        probe: Step::ReadAsProcess(directory),
    }
}

/// The name of the process, which taints a session if it is not isolated.
pub(super) const PROCESS: &str = "process";
/// Saves a file.
pub(super) const DOWNLOAD: &str = "(() => { const link = document.createElement('a'); \
    link.href = '/download'; link.click(); return true })()";
const PROFILE: &str = "user-data/Default";
const SETTINGS: &str = "chrome://settings/addresses";

/// The places of Chromium that navigation or the keyboard fills.
pub(super) const INPUT: &[Place] = &[
    Place {
        name: "visited link",
        plant: Step::Call(|visit| follow_link(visit).boxed_local()),
        probe: Step::Call(|visit| link_is_visited(visit).boxed_local()),
    },
    Place {
        name: "form history",
        plant: Step::Call(|visit| submit_form(visit).boxed_local()),
        probe: Step::Find(PROFILE, "Web Data", "canary-form-text"),
    },
    Place {
        name: "zoom",
        plant: Step::Call(|visit| zoom_in(visit).boxed_local()),
        probe: Step::Page("devicePixelRatio !== 1"),
    },
    Place {
        name: "history",
        plant: Step::Page("history.pushState(null, '', '/canary-history'), true"),
        probe: Step::Find(PROFILE, "History", "canary-history"),
    },
    Place {
        name: "favicon",
        plant: Step::Page(
            "document.querySelector('link[rel=icon]').href = '/canary-icon.png', true",
        ),
        probe: Step::Find(PROFILE, "Favicons", "canary-icon"),
    },
];

/// The places that a page reaches by itself.
pub(super) const PAGE: &[Place] = &[
    page(
        "cookie",
        "document.cookie = 'canary=planted; max-age=100000', true",
        "document.cookie.includes('canary')",
    ),
    page(
        "localStorage",
        "localStorage.canary = 'planted', true",
        "'canary' in localStorage",
    ),
    page(
        "sessionStorage",
        "sessionStorage.canary = 'planted', true",
        "'canary' in sessionStorage",
    ),
    page("window.name", "name = 'canary', true", "name === 'canary'"),
    page(
        "IndexedDB",
        "new Promise((resolve, reject) => { const opening = indexedDB.open('canary', 1); \
           opening.onupgradeneeded = () => opening.result.createObjectStore('canary'); \
           opening.onerror = reject; \
           opening.onsuccess = () => { opening.result.close(); resolve(true) } })",
        "indexedDB.databases().then(found => found.some(({name}) => name === 'canary'))",
    ),
    page(
        "CacheStorage",
        "caches.open('canary').then(cache => cache.put('/canary', new Response('planted')))",
        "caches.has('canary')",
    ),
    page(
        "private file system",
        "navigator.storage.getDirectory().then(root => root.getFileHandle('canary', {create: true}))",
        "navigator.storage.getDirectory().then(root => root.getFileHandle('canary')) \
           .then(() => true, () => false)",
    ),
    page(
        "service worker",
        "navigator.serviceWorker.register('/service-worker.js') \
           .then(() => navigator.serviceWorker.ready).then(() => true)",
        "fetch('/from-service-worker').then(it => it.text()).then(text => text === 'planted')",
    ),
    page(
        "HTTP cache",
        "fetch('/cached').then(it => it.text())",
        "fetch('/cached', {cache: 'only-if-cached', mode: 'same-origin'}) \
           .then(it => it.ok, () => false)",
    ),
    page(
        "HTTP authentication",
        "new Promise(resolve => { const request = new XMLHttpRequest(); \
           request.open('GET', '/login', true, 'canary', 'planted'); \
           request.onloadend = () => resolve(request.status === 200); request.send() })",
        "fetch('/authorization').then(it => it.text()).then(text => text.startsWith('Basic '))",
    ),
    page(
        "HSTS",
        "fetch('$SECURE/secure').then(it => it.text())",
        "fetch('$NAMED/', {mode: 'no-cors'}).then(() => false, () => true)",
    ),
    page(
        "TLS session",
        "fetch('$SECURE/secure').then(it => it.text())",
        "fetch('$SECURE/secure').then(it => it.text()).then(text => text === 'resumed')",
    ),
    Place {
        name: "download",
        plant: Step::Page(DOWNLOAD),
        probe: Step::Find("downloads", "", "planted"),
    },
    Place {
        name: "pop-up",
        plant: Step::Page("open('/canary-popup', 'canary', 'width=300,height=200') !== null"),
        probe: Step::Call(|visit| popup_is_open(visit).boxed_local()),
    },
];

/// The places of Chromium beyond a page.
pub(super) const BROWSER: &[Place] = &[
    Place {
        name: "permission",
        plant: Step::Tab(
            SETTINGS,
            "chrome.send('setOriginPermissions', ['$ORIGIN', 'location', 'allow']), \
             chrome.settingsPrivate.getAllPrefs().then(() => true)",
        ),
        probe: Step::Page(
            "navigator.permissions.query({name: 'geolocation'}).then(it => it.state === 'granted')",
        ),
    },
    Place {
        name: "autofill",
        plant: Step::Tab(
            SETTINGS,
            "chrome.autofillPrivate.saveAddress({fields: [ \
               {type: chrome.autofillPrivate.FieldType.NAME_FULL, value: 'Canary'}, \
               {type: chrome.autofillPrivate.FieldType.ADDRESS_HOME_COUNTRY, value: 'US'}]})",
        ),
        probe: Step::Tab(
            SETTINGS,
            "chrome.autofillPrivate.getAddressList().then(list => list.length > 0)",
        ),
    },
    Place {
        name: "bookmark",
        plant: Step::Tab(
            "chrome://bookmarks/",
            "chrome.bookmarks.create({parentId: '1', title: 'canary', url: '$ORIGIN/'})",
        ),
        probe: Step::Tab(
            "chrome://bookmarks/",
            "chrome.bookmarks.search('canary').then(list => list.length > 0)",
        ),
    },
    Place {
        name: EXTENSION,
        plant: Step::Call(|visit| fill_extension(visit).boxed_local()),
        probe: Step::Call(|visit| extension_is_filled(visit).boxed_local()),
    },
    Place {
        name: "open tab",
        plant: Step::Call(|visit| open_tab(visit).boxed_local()),
        probe: Step::Call(|visit| tab_is_open(visit).boxed_local()),
    },
];

/// The places of the agent.
pub(super) const AGENT: &[Place] = &[
    Place {
        name: "size of the screen",
        plant: Step::Call(|visit| resize_screen(visit).boxed_local()),
        probe: Step::Call(|visit| screen_is_resized(visit).boxed_local()),
    },
    Place {
        name: "clipboard",
        plant: Step::Call(|visit| write_clipboard(visit).boxed_local()),
        probe: Step::Call(|visit| clipboard_is_written(visit).boxed_local()),
    },
    Place {
        name: PROCESS,
        plant: Step::Call(|visit| start_process(visit).boxed_local()),
        probe: Step::Call(|visit| process_runs(visit).boxed_local()),
    },
    Place {
        name: "watch",
        plant: Step::Call(|visit| visit.start_watch().boxed_local()),
        probe: Step::Call(|visit| visit.has_watch().boxed_local()),
    },
    Place {
        name: "globals of an executor",
        plant: Step::Call(|visit| set_global(visit).boxed_local()),
        probe: Step::Call(|visit| global_is_set(visit).boxed_local()),
    },
    Place {
        name: "recording",
        plant: Step::Call(|visit| record(visit).boxed_local()),
        probe: Step::Call(|visit| has_recording(visit).boxed_local()),
    },
];

/// The name of the place in the downloads.
pub(super) const DOWNLOADS: &str = "file in downloads";

/// The directories of a session.
pub(super) const FILES: &[Place] = &[
    file("file in user-data", "user-data"),
    file("file in cache", "cache"),
    file(DOWNLOADS, "downloads"),
    own("file in scratch", "scratch"),
    file("file in home", "home"),
    file("file in home/tmp", "home/tmp"),
    own("file in work", "work"),
    own("file in run", "run"),
];

/// The directories of client processes that have some of their own.
pub(super) const PRIVATE: &[Place] = &[
    private("file of a process in /tmp", "/tmp"),
    private("file of a process in /var/tmp", "/var/tmp"),
    private("file of a process in /dev/shm", "/dev/shm"),
    private("file of a process in /run/lock", "/run/lock"),
    private("file of a process at home", "~"),
];

/// The name of the place that needs an extension in a directory of the machine.
pub(super) const EXTENSION: &str = "extension storage";

/// The places outside the session that its own users can write to. Only an agent that is root
/// has such users.
pub(super) const SHARED: &[Place] = &[
    Place {
        name: "file in /tmp",
        plant: Step::Call(|visit| save_in_tmp(visit).boxed_local()),
        probe: Step::Call(|visit| is_in_tmp(visit).boxed_local()),
    },
    Place {
        name: "file in a directory of all users below /tmp",
        plant: Step::Call(|visit| save_in_shared(visit).boxed_local()),
        probe: Step::Call(|visit| is_in_shared(visit).boxed_local()),
    },
    Place {
        name: "shared memory",
        plant: Step::Call(|visit| visit.create_memory().boxed_local()),
        probe: Step::Call(|visit| visit.has_memory().boxed_local()),
    },
];

async fn follow_link(visit: &mut Visit<'_>) -> bool {
    let click = "document.getElementById('link').click(), true";
    visit.page.evaluate_as_user(click).await;
    visit
        .page
        .loaded(|url| url.ends_with("/canary-visited"))
        .await;
    visit.go_home().await;
    true
}

async fn link_is_visited(visit: &mut Visit<'_>) -> bool {
    match visit.pixel(50, 200).await {
        0xff_0000 => true,
        0x00_00ff => false,
        other => panic!("the link is {other:06x}"),
    }
}

async fn submit_form(visit: &mut Visit<'_>) -> bool {
    let focus = "document.getElementById('field').focus(), true";
    visit.page.evaluate_as_user(focus).await;
    visit.page.call("Page.bringToFront", json!({})).await;
    visit.page.ready().await;
    let text = json!({"text": "canary-form-text"});
    visit.post("/computer/type", text).await;
    let value = "document.getElementById('field').value";
    visit
        .page
        .until(value, |value| value == "canary-form-text")
        .await;
    visit.press(json!({"keys": ["Return"]})).await;
    visit.page.loaded(|url| url.contains("/submitted?")).await;
    visit.go_home().await;
    true
}

async fn zoom_in(visit: &mut Visit<'_>) -> bool {
    visit
        .press(json!({"keys": ["plus"], "hold_keys": ["Ctrl"]}))
        .await;
    true
}

async fn open_tab(visit: &mut Visit<'_>) -> bool {
    let url = format!("{}/canary-tab", visit.fixture.site.url);
    Page::open(visit.agent, &url).await;
    true
}

async fn tab_is_open(visit: &mut Visit<'_>) -> bool {
    visit.shows("/canary-tab").await
}

async fn popup_is_open(visit: &mut Visit<'_>) -> bool {
    visit.shows("/canary-popup").await
}

async fn fill_extension(visit: &mut Visit<'_>) -> bool {
    let fill = "chrome.storage.local.set({canary: 'planted'}).then(() => true)";
    visit.in_extension(fill).await == true
}

async fn extension_is_filled(visit: &mut Visit<'_>) -> bool {
    let probe = "chrome.storage.local.get().then(found => 'canary' in found)";
    visit.in_extension(probe).await == true
}

async fn resize_screen(visit: &mut Visit<'_>) -> bool {
    let size = json!({"width": 1280, "height": 800});
    visit
        .agent
        .ok(visit.agent.put("/display").json(&size))
        .await;
    true
}

async fn screen_is_resized(visit: &mut Visit<'_>) -> bool {
    visit.get("/health").await["display"]["viewport"]["width"] == 1280
}

async fn write_clipboard(visit: &mut Visit<'_>) -> bool {
    let text = json!({"text": "planted"});
    visit.post("/computer/clipboard/write", text).await;
    true
}

async fn clipboard_is_written(visit: &mut Visit<'_>) -> bool {
    let text = visit.post("/computer/clipboard/read", json!({})).await;
    text["text"] == "planted"
}

async fn start_process(visit: &mut Visit<'_>) -> bool {
    // It ignores SIGTERM and has left its session.
    let line = "trap '' TERM; while :; do sleep 1; done";
    let marker = &visit.fixture.marker;
    let body = json!({"command": "setsid", "args": ["sh", "-c", line, marker]});
    spawn(visit.agent, body).await;
    true
}

async fn process_runs(visit: &mut Visit<'_>) -> bool {
    !processes::naming(visit.fixture.marker.as_ref()).is_empty()
}

async fn set_global(visit: &mut Visit<'_>) -> bool {
    let code = json!({"code": "globalThis.canary = 'planted'", "executor": "canary"});
    execute(visit.agent, code).await["success"] == true
}

async fn global_is_set(visit: &mut Visit<'_>) -> bool {
    let code = json!({"code": "return globalThis.canary ?? null", "executor": "canary"});
    let answer = execute(visit.agent, code).await;
    assert_eq!(answer["success"], true, "{answer}");
    answer["result"] == "planted"
}

async fn record(visit: &mut Visit<'_>) -> bool {
    visit.post("/replays", json!({})).await;
    true
}

async fn has_recording(visit: &mut Visit<'_>) -> bool {
    visit.get("/replays").await != json!([])
}

async fn save_in_tmp(visit: &mut Visit<'_>) -> bool {
    let directory = visit.fixture.temporary();
    visit.download_to(&directory).await
}

async fn is_in_tmp(visit: &mut Visit<'_>) -> bool {
    visit.fixture.temporary().exists()
}

async fn save_in_shared(visit: &mut Visit<'_>) -> bool {
    let directory = visit.fixture.shared().to_owned();
    visit.download_to(&directory).await
}

async fn is_in_shared(visit: &mut Visit<'_>) -> bool {
    has_planted_file(visit.fixture.shared())
}

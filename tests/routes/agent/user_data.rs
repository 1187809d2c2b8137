use std::{fs, path::Path};

use reqwest::{Body, StatusCode};
use sea_orm::{ConnectionTrait, Database, DatabaseConnection, Statement};
use serde_json::{Value, json};
use tar::EntryType;
use tempfile::TempDir;

use crate::support::{
    agent::{Start, TestAgent},
    archives::{compressed, entry, file, link, packed},
    files::{noise, untar},
    requests::unfinished,
    site::Site,
    wait::{in_time, until},
};

const PROCESS_FILES: [&str; 5] = [
    "SingletonLock",
    "SingletonCookie",
    "SingletonSocket",
    "DevToolsActivePort",
    "Default/Sessions",
];

async fn visit(
    agent: &TestAgent,
    site: &Site,
    page: &str,
) -> std::collections::HashMap<String, String> {
    let url = format!("{}{page}", site.url);
    let request = agent.put("/chromium/start_url").json(&json!({"url": url}));
    agent.ok(request).await;
    site.visit(page).await
}

async fn archive(agent: &TestAgent, query: &str) -> Vec<u8> {
    let request = agent.get(&format!("/user_data{query}"));
    let response = in_time("an archive", request.send()).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()["content-type"], "application/zstd");
    let archive = in_time("the content", response.bytes()).await.unwrap();
    archive.into()
}

async fn restore(agent: &TestAgent, archive: impl Into<Body>) -> (StatusCode, Value) {
    agent.answer(agent.put("/user_data").body(archive)).await
}

async fn open(database: &Path) -> DatabaseConnection {
    let address = format!("sqlite:{}", database.display());
    Database::connect(address).await.unwrap()
}

async fn first_text(db: &DatabaseConnection, query: &str) -> String {
    let statement = Statement::from_string(sea_orm::DbBackend::Sqlite, query);
    let row = db.query_one_raw(statement).await.unwrap().unwrap();
    row.try_get_by_index(0).unwrap()
}

/// Unpacks the profile in an archive. Checks that every database is intact and that the files of
/// the process are missing.
async fn unpack_valid_profile(archive: &[u8]) -> TempDir {
    let directory = TempDir::new().unwrap();
    let profile = directory.path().join("profile");
    untar(archive, &profile);
    for name in PROCESS_FILES {
        assert!(fs::symlink_metadata(profile.join(name)).is_err(), "{name}");
    }
    let mut databases = 0;
    let mut directories = vec![profile.clone()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            // Opening a database may remove its journal.
            } else if fs::read(&path).is_ok_and(|file| file.starts_with(b"SQLite format 3\0")) {
                let db = open(&path).await;
                let result = first_text(&db, "PRAGMA integrity_check").await;
                assert_eq!(result, "ok", "{}", path.display());
                db.close().await.unwrap();
                databases += 1;
            }
        }
    }
    assert!(databases > 5, "{databases} databases");
    directory
}

/// Returns the number of entries in the directory for temporary files.
fn work_entries(agent: &TestAgent) -> usize {
    fs::read_dir(agent.session_dir().join("work"))
        .unwrap()
        .count()
}

#[tokio::test]
async fn login_survives_archive_and_restore_on_other_agent() {
    let site = Site::serve().await;
    let source = Start::headless().ready().await;
    visit(&source, &site, "/login").await;
    let before = source.chromium_number("generation").await;
    let archive = archive(&source, "").await;
    unpack_valid_profile(&archive).await;
    // Chromium is running again, with its profile.
    source
        .chromium_when("the next Chromium", |status| {
            status["generation"].as_u64() > Some(before)
        })
        .await;
    let restored = visit(&source, &site, "/check").await;
    assert_eq!(
        (&*restored["cookie"], &*restored["stored"]),
        ("login=now", "here")
    );
    assert_eq!(work_entries(&source), 0);
    source.stop().await;

    let other = Start::headless().ready().await;
    let before_restore = visit(&other, &site, "/check").await;
    assert_eq!(
        (&*before_restore["cookie"], &*before_restore["stored"]),
        ("", "")
    );
    let before = other.chromium_number("generation").await;
    let (status, response) = restore(&other, archive).await;
    assert_eq!(status, StatusCode::OK, "{response}");
    other
        .chromium_when("the next Chromium", |status| {
            status["generation"].as_u64() > Some(before)
        })
        .await;
    let restored = visit(&other, &site, "/check").await;
    assert_eq!(
        (&*restored["cookie"], &*restored["stored"]),
        ("login=now", "here")
    );
    assert_eq!(work_entries(&other), 0);
    assert!(!other.session_dir().join("user-data.old").exists());
    other.stop().await;
}

#[tokio::test]
async fn live_archive_contains_cookie_set_just_before() {
    let site = Site::serve().await;
    let agent = Start::headless().ready().await;
    let running = agent.ok(agent.get("/chromium")).await;
    visit(&agent, &site, "/login").await;
    let archive = archive(&agent, "?live=true&compression_level=1").await;
    let profile = unpack_valid_profile(&archive).await;
    let cookies = open(&profile.path().join("profile/Default/Cookies")).await;
    let query = "SELECT count(*) || '' FROM cookies WHERE name = 'login'";
    assert_eq!(first_text(&cookies, query).await, "1");
    cookies.close().await.unwrap();
    // Chromium was not restarted.
    let after = visit(&agent, &site, "/check").await;
    assert_eq!(
        (&*after["cookie"], &*after["stored"]),
        ("login=now", "here")
    );
    let status = agent.ok(agent.get("/chromium")).await;
    assert_eq!(status["pid"], running["pid"]);
    assert_eq!(status["generation"], running["generation"]);
    until("the removal of the copy", async || {
        (work_entries(&agent) == 0).then_some(())
    })
    .await;

    let (status, response) = restore(&agent, archive).await;
    assert_eq!(status, StatusCode::OK, "{response}");
    agent
        .chromium_when("the next Chromium", |status| {
            status["generation"].as_u64() > running["generation"].as_u64()
        })
        .await;
    assert_eq!(visit(&agent, &site, "/check").await["cookie"], "login=now");
    agent.stop().await;
}

#[tokio::test]
async fn archive_without_a_restart_leaves_chromium_closed() {
    let agent = Start::headless().ready().await;
    // The second finds it closed.
    for _ in 0..2 {
        unpack_valid_profile(&archive(&agent, "?restart=false").await).await;
        assert_eq!(
            agent.ok(agent.get("/chromium")).await["state"],
            "restarting"
        );
    }
    let (status, response) = agent.answer(agent.get("/user_data?live=true")).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{response}");
    let restarted = agent.ok(agent.post("/chromium/restart")).await;
    assert_eq!(restarted["state"], "running", "{restarted}");

    archive(&agent, "?restart=false").await;
    unpack_valid_profile(&archive(&agent, "").await).await;
    agent
        .chromium_when("running", |status| status["state"] == "running")
        .await;

    archive(&agent, "?restart=false").await;
    let end = agent.post("/session/end").json(&json!({"generation": 1}));
    let receipt = agent.ok(end).await;
    assert_eq!(receipt["clean"], true, "{receipt}");
    assert_eq!(receipt["terminated"]["chromium"], false, "{receipt}");
    agent.stop().await;
}

#[tokio::test]
async fn archive_of_incomplete_profile_fails() {
    let agent = Start::headless().ready().await;
    let odd = agent.session_dir().join("user-data/odd");
    nix::unistd::mkfifo(&odd, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let request = agent.get("/user_data?live=true").send();
    let response = in_time("an error", request).await.unwrap();
    assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
    // The reason is logged, and not in the response.
    until("the reason in the log", async || {
        agent.log().contains("odd: is a FIFO").then_some(())
    })
    .await;
    let request = agent.get("/user_data").send();
    let response = in_time("an archive", request).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let content = in_time("the end of the archive", response.bytes()).await;
    assert!(content.is_err(), "the archive looks complete");

    fs::remove_file(&odd).unwrap();
    unpack_valid_profile(&archive(&agent, "").await).await;
    until("the removal of the copies", async || {
        (work_entries(&agent) == 0).then_some(())
    })
    .await;
    agent.stop().await;
}

#[tokio::test]
async fn invalid_archive_changes_nothing() {
    let agent = Start::headless().ready().await;
    let marker = agent.session_dir().join("user-data/marker");
    fs::write(&marker, "of the old profile").unwrap();
    let before = agent.ok(agent.get("/chromium")).await;
    let valid = packed(&[file("file", b"content")]);
    let long_name = vec![b'x'; 2 << 20];
    for (case, archive, status) in [
        ("nothing", Vec::new(), 400),
        ("no archive", b"not at all".to_vec(), 400),
        ("no tar", compressed(&[7; 5000]), 400),
        ("no entry", packed(&[]), 400),
        ("cut", valid[..valid.len() - 5].to_vec(), 400),
        ("no end marker", compressed(&file("file", b"content")), 400),
        (
            "data after the end",
            [&valid[..], &compressed(&[7; 5 << 20])].concat(),
            400,
        ),
        ("dots", packed(&[file("../file", b"")]), 400),
        ("dots within", packed(&[file("a/../../file", b"")]), 400),
        ("absolute", packed(&[file("/tmp/file", b"")]), 400),
        ("link out", packed(&[link("link", "/etc")]), 400),
        ("link up", packed(&[link("a/link", "../../x")]), 400),
        (
            "out through links",
            packed(&[link("a/up", ".."), link("out", "a/up/..")]),
            400,
        ),
        (
            "through a link",
            packed(&[
                entry(EntryType::Directory, "dir", "", b""),
                link("in", "dir"),
                file("in/file", b""),
            ]),
            400,
        ),
        (
            "hard link out",
            packed(&[entry(EntryType::Link, "file", "/etc/passwd", b"")]),
            400,
        ),
        (
            "hard link to a link",
            packed(&[
                link("link", "x"),
                entry(EntryType::Link, "file", "link", b""),
            ]),
            400,
        ),
        (
            "of a newer Chromium",
            packed(&[
                file("Default/Preferences", b"{}"),
                file("Last Version", b"9999.0.0.0"),
            ]),
            409,
        ),
        (
            "device",
            packed(&[entry(EntryType::Char, "null", "", b"")]),
            400,
        ),
        (
            "FIFO",
            packed(&[entry(EntryType::Fifo, "fifo", "", b"")]),
            400,
        ),
        (
            "twice",
            packed(&[file("file", b"1"), file("file", b"2")]),
            400,
        ),
        (
            "an endless name",
            packed(&[
                entry(EntryType::GNULongName, "x", "", &long_name),
                file("x", b""),
            ]),
            400,
        ),
    ] {
        let (actual, response) = restore(&agent, archive).await;
        assert_eq!(actual.as_u16(), status, "{case}: {response}");
        if status == 400 {
            assert_eq!(response["details"][0]["code"], "body", "{case}: {response}");
        }
        assert_eq!(work_entries(&agent), 0, "{case}");
    }
    for query in [
        "?live=yes",
        "?compression_level=20",
        "?restart=2",
        "?live=true&restart=false",
    ] {
        let (status, response) = agent.answer(agent.get(&format!("/user_data{query}"))).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{response}");
    }
    assert_eq!(fs::read(&marker).unwrap(), b"of the old profile");
    assert_eq!(agent.ok(agent.get("/chromium")).await, before);
    agent.stop().await;
}

#[tokio::test]
async fn very_compressible_profile_is_restored() {
    let agent = Start::headless().ready().await;
    let zeros = file("Default/zeros", &vec![0; 66 << 20]);
    let (status, response) = restore(&agent, packed(&[zeros])).await;
    assert_eq!(status, StatusCode::OK, "{response}");
    let restored = agent.session_dir().join("user-data/Default/zeros");
    assert_eq!(fs::metadata(restored).unwrap().len(), 66 << 20);
    agent.stop().await;
}

#[tokio::test]
async fn aborted_restore_leaves_no_files() {
    let agent = Start::without_browser().listening().await;
    let mut archive = packed(&[file("first", b"received"), file("second", &noise(4 << 20))]);
    archive.truncate(archive.len() / 2);
    for killed in [false, true] {
        let (sender, body) = unfinished(archive.clone());
        let restoring = tokio::spawn(agent.put("/user_data").body(body).send());
        until("a first file", async || {
            let work = fs::read_dir(agent.session_dir().join("work")).unwrap();
            let mut directories = work.map(|directory| directory.unwrap().path());
            directories.find(|directory| directory.join("user-data/first").exists())
        })
        .await;
        let (status, response) = agent.answer(agent.get("/user_data")).await;
        assert_eq!(status, StatusCode::CONFLICT, "{response}");
        if killed {
            let directory = agent.kill().await;
            let agent = TestAgent::again(directory)
                .with(["--headless", "--chromium", "/bin/true"])
                .listening()
                .await;
            assert_eq!(work_entries(&agent), 0);
            agent.stop().await;
            return;
        }
        restoring.abort();
        until("the end of the restoration", async || {
            let (status, _) = agent.answer(agent.get("/user_data")).await;
            (status != StatusCode::CONFLICT).then_some(())
        })
        .await;
        assert_eq!(work_entries(&agent), 0);
        drop(sender);
    }
}

#[tokio::test]
async fn interrupted_profile_swap_leaves_one_complete_profile() {
    for (current, old, expected) in [
        (None, Some("old"), "old"),
        (Some("new"), Some("old"), "new"),
    ] {
        let start = Start::without_browser();
        for (directory, content) in [("user-data", current), ("user-data.old", old)] {
            if let Some(content) = content {
                let directory = start.state_dir().join("sessions/1").join(directory);
                fs::create_dir_all(&directory).unwrap();
                fs::write(directory.join("marker"), content).unwrap();
            }
        }
        let agent = start.listening().await;
        let marker = agent.session_dir().join("user-data/marker");
        assert_eq!(fs::read_to_string(marker).unwrap(), expected);
        assert!(!agent.session_dir().join("user-data.old").exists());
        agent.stop().await;
    }
}

/// Follows a link from a page of `origin` to `path` of the agent. Returns the status of the
/// response and the relation of the two sites as Chromium sees it.
async fn follow_link(agent: &TestAgent, origin: &str, path: &str) -> Value {
    let target = agent.url(path);
    let code = format!(
        "await page.goto('{origin}/check');
         const answered = page.waitForResponse(response => response.url() === '{target}');
         // Until then it would interrupt the navigation of the next call.
         const shown = page.waitForURL(url => url.href === '{target}');
         await page.evaluate(url => {{ location.href = url }}, '{target}').catch(() => {{}});
         const [response] = await Promise.all([answered, shown]);
         const headers = await response.request().allHeaders();
         return [response.status(), headers['sec-fetch-site']];"
    );
    let request = agent
        .post("/automation/execute")
        .json(&json!({"code": code}));
    let answer = agent.ok(request).await;
    assert_eq!(answer["success"], true, "{answer}");
    answer["result"].clone()
}

#[tokio::test]
async fn link_of_another_site_archives_nothing() {
    let agent = Start::headless().without_token().ready().await;
    let generation = agent.chromium_number("generation").await;
    let site = Site::serve().await;
    let other_port = site.url.clone();
    let other_site = site.url.replace("127.0.0.1", "localhost");
    for (origin, relation) in [(other_port, "same-site"), (other_site, "cross-site")] {
        for (path, status) in [
            ("/user_data", 403),
            ("/user_data?live=true", 403),
            ("/metrics", 403),
            ("/docs/", 200),
            // Accepted, but this agent has no display.
            ("/live", 409),
        ] {
            let found = follow_link(&agent, &origin, path).await;
            assert_eq!(found, json!([status, relation]), "{path}");
        }
    }
    assert_eq!(agent.chromium_number("generation").await, generation);
    agent.stop().await;
}

use std::{fs, io::Write, path::Path};

use reqwest::{Body, StatusCode};
use sea_orm::{ConnectionTrait, Database, DatabaseConnection, Statement};
use serde_json::{Value, json};
use tar::{EntryType, Header};
use tempfile::TempDir;

use crate::support::{
    agent::{Start, TestAgent},
    files::{noise, untar},
    requests::unfinished,
    site::Site,
    wait::{in_time, until},
};

const OF_THE_PROCESS: [&str; 4] = [
    "SingletonLock",
    "SingletonCookie",
    "SingletonSocket",
    "DevToolsActivePort",
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
    let archive = in_time("its content", response.bytes()).await.unwrap();
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

/// Looks through the profile in an archive: every database is whole, and nothing of the process is there.
async fn assert_sound(archive: &[u8]) -> TempDir {
    let folder = TempDir::new().unwrap();
    let profile = folder.path().join("profile");
    untar(archive, &profile);
    for name in OF_THE_PROCESS {
        assert!(fs::symlink_metadata(profile.join(name)).is_err(), "{name}");
    }
    let mut databases = 0;
    let mut folders = vec![profile.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            // Opening a database may remove the journal beside it.
            } else if fs::read(&path).is_ok_and(|file| file.starts_with(b"SQLite format 3\0")) {
                let db = open(&path).await;
                let found = first_text(&db, "PRAGMA integrity_check").await;
                assert_eq!(found, "ok", "{}", path.display());
                db.close().await.unwrap();
                databases += 1;
            }
        }
    }
    assert!(databases > 5, "{databases} databases");
    folder
}

/// What is only there while something is being done.
fn work_left(agent: &TestAgent) -> usize {
    fs::read_dir(agent.state_dir().join("work"))
        .unwrap()
        .count()
}

#[tokio::test]
async fn a_login_survives_an_archive_and_its_restoration_elsewhere() {
    let site = Site::serve().await;
    let one = Start::headless().ready().await;
    visit(&one, &site, "/login").await;
    let before = one.chromium_number("generation").await;
    let archive = archive(&one, "").await;
    assert_sound(&archive).await;
    // It is there again, with what it had.
    one.chromium_when("the next Chromium", |status| {
        status["generation"].as_u64() > Some(before)
    })
    .await;
    let back = visit(&one, &site, "/check").await;
    assert_eq!((&*back["cookie"], &*back["stored"]), ("login=now", "here"));
    assert_eq!(work_left(&one), 0);
    one.stop().await;

    let other = Start::headless().ready().await;
    let stranger = visit(&other, &site, "/check").await;
    assert_eq!((&*stranger["cookie"], &*stranger["stored"]), ("", ""));
    let before = other.chromium_number("generation").await;
    let (status, answer) = restore(&other, archive).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    other
        .chromium_when("the next Chromium", |status| {
            status["generation"].as_u64() > Some(before)
        })
        .await;
    let back = visit(&other, &site, "/check").await;
    assert_eq!((&*back["cookie"], &*back["stored"]), ("login=now", "here"));
    assert_eq!(work_left(&other), 0);
    assert!(!other.state_dir().join("user-data.old").exists());
    other.stop().await;
}

#[tokio::test]
async fn a_cookie_that_was_just_set_is_in_the_archive_of_a_living_browser() {
    let site = Site::serve().await;
    let agent = Start::headless().ready().await;
    let running = agent.ok(agent.get("/chromium")).await;
    visit(&agent, &site, "/login").await;
    let archive = archive(&agent, "?live=true&compression_level=1").await;
    let profile = assert_sound(&archive).await;
    let cookies = open(&profile.path().join("profile/Default/Cookies")).await;
    let query = "SELECT count(*) || '' FROM cookies WHERE name = 'login'";
    assert_eq!(first_text(&cookies, query).await, "1");
    cookies.close().await.unwrap();
    // It is the same Chromium, and it goes on.
    let after = visit(&agent, &site, "/check").await;
    assert_eq!(
        (&*after["cookie"], &*after["stored"]),
        ("login=now", "here")
    );
    let status = agent.ok(agent.get("/chromium")).await;
    assert_eq!(status["pid"], running["pid"]);
    assert_eq!(status["generation"], running["generation"]);
    until("the end of the copy", async || {
        (work_left(&agent) == 0).then_some(())
    })
    .await;

    let (status, answer) = restore(&agent, archive).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    agent
        .chromium_when("the next Chromium", |status| {
            status["generation"].as_u64() > running["generation"].as_u64()
        })
        .await;
    assert_eq!(visit(&agent, &site, "/check").await["cookie"], "login=now");
    agent.stop().await;
}

#[tokio::test]
async fn a_profile_is_archived_whole_or_not_at_all() {
    let agent = Start::headless().ready().await;
    let odd = agent.state_dir().join("user-data/odd");
    nix::unistd::mkfifo(&odd, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let request = agent.get("/user_data?live=true").send();
    let answer = in_time("a refusal", request).await.unwrap();
    assert_eq!(answer.status(), StatusCode::INTERNAL_SERVER_ERROR);
    // The reason is no client's business; the log has it.
    until("the reason", async || {
        agent.log().contains("odd: it is a FIFO").then_some(())
    })
    .await;
    let request = agent.get("/user_data").send();
    let answer = in_time("an archive", request).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    let content = in_time("its end", answer.bytes()).await;
    assert!(content.is_err(), "it looks whole");

    fs::remove_file(&odd).unwrap();
    assert_sound(&archive(&agent, "").await).await;
    until("the end of the copies", async || {
        (work_left(&agent) == 0).then_some(())
    })
    .await;
    agent.stop().await;
}

/// An entry, whatever its name is.
fn entry(kind: EntryType, name: &str, link: &str, content: &[u8]) -> Vec<u8> {
    let mut header = Header::new_gnu();
    header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_size(content.len() as u64);
    header.set_mtime(0);
    header.set_cksum();
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend_from_slice(content);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

fn file(name: &str, content: &[u8]) -> Vec<u8> {
    entry(EntryType::Regular, name, "", content)
}

fn packed(entries: &[Vec<u8>]) -> Vec<u8> {
    let mut tar = entries.concat();
    tar.extend([0; 1024]);
    compressed(&tar)
}

fn compressed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test]
async fn a_bad_archive_changes_nothing() {
    let agent = Start::headless().ready().await;
    let marker = agent.state_dir().join("user-data/marker");
    fs::write(&marker, "of the old profile").unwrap();
    let before = agent.ok(agent.get("/chromium")).await;
    let link = |name, to| entry(EntryType::Symlink, name, to, b"");
    let good = packed(&[file("file", b"content")]);
    let long_name = vec![b'x'; 2 << 20];
    for (what, archive, status) in [
        ("nothing", Vec::new(), 400),
        ("no archive", b"not at all".to_vec(), 400),
        ("no tar", compressed(&[7; 5000]), 400),
        ("no entry", packed(&[]), 400),
        ("cut", good[..good.len() - 5].to_vec(), 400),
        ("no end", compressed(&file("file", b"content")), 400),
        (
            "more behind its end",
            [&good[..], &compressed(&[7; 5 << 20])].concat(),
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
        ("bomb", packed(&[file("bomb", &vec![0; 66 << 20])]), 413),
    ] {
        let (found, answer) = restore(&agent, archive).await;
        assert_eq!(found.as_u16(), status, "{what}: {answer}");
        if status == 400 {
            assert_eq!(answer["details"][0]["code"], "body", "{what}: {answer}");
        }
        assert_eq!(work_left(&agent), 0, "{what}");
    }
    for query in ["?live=yes", "?compression_level=20"] {
        let (status, answer) = agent.answer(agent.get(&format!("/user_data{query}"))).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}");
    }
    assert_eq!(fs::read(&marker).unwrap(), b"of the old profile");
    assert_eq!(agent.ok(agent.get("/chromium")).await, before);
    agent.stop().await;
}

#[tokio::test]
async fn a_restoration_that_breaks_off_leaves_nothing() {
    let agent = Start::without_browser().listening().await;
    let mut archive = packed(&[file("first", b"has come"), file("second", &noise(4 << 20))]);
    archive.truncate(archive.len() / 2);
    for killed in [false, true] {
        let (sender, body) = unfinished(archive.clone());
        let restoring = tokio::spawn(agent.put("/user_data").body(body).send());
        until("a first file", async || {
            let work = fs::read_dir(agent.state_dir().join("work")).unwrap();
            let mut folders = work.map(|folder| folder.unwrap().path());
            folders.find(|folder| folder.join("user-data/first").exists())
        })
        .await;
        let (status, answer) = agent.answer(agent.get("/user_data")).await;
        assert_eq!(status, StatusCode::CONFLICT, "{answer}");
        if killed {
            let folder = agent.kill().await;
            let agent = TestAgent::again(folder)
                .with(["--headless", "--chromium", "/bin/true"])
                .listening()
                .await;
            assert_eq!(work_left(&agent), 0);
            agent.stop().await;
            return;
        }
        restoring.abort();
        until("the end of it", async || {
            (work_left(&agent) == 0).then_some(())
        })
        .await;
        drop(sender);
    }
}

#[tokio::test]
async fn an_exchange_that_was_broken_off_leaves_one_profile_whole() {
    for (current, old, found) in [
        (None, Some("old"), "old"),
        (Some("new"), Some("old"), "new"),
    ] {
        let start = Start::without_browser();
        for (folder, content) in [("user-data", current), ("user-data.old", old)] {
            if let Some(content) = content {
                let folder = start.state_dir().join(folder);
                fs::create_dir_all(&folder).unwrap();
                fs::write(folder.join("marker"), content).unwrap();
            }
        }
        let agent = start.listening().await;
        let marker = agent.state_dir().join("user-data/marker");
        assert_eq!(fs::read_to_string(marker).unwrap(), found);
        assert!(!agent.state_dir().join("user-data.old").exists());
        agent.stop().await;
    }
}

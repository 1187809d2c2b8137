use std::{
    collections::BTreeSet,
    fs::{self, File, OpenOptions},
    io::Write,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use nix::{sys::stat::Mode, unistd::mkfifo};
use reqwest::{RequestBuilder, StatusCode};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::{
    agent::{Start, TestAgent},
    events::Events,
    processes::PeakMemory,
    wait::{in_time, until},
};

async fn agent() -> TestAgent {
    Start::without_browser().listening().await
}

fn request(agent: &TestAgent, pairs: &[(&str, &str)]) -> RequestBuilder {
    let query = url::form_urlencoded::Serializer::new(String::new())
        .extend_pairs(pairs)
        .finish();
    agent.get(&format!("/logs/stream?{query}"))
}

fn file_request(agent: &TestAgent, path: &Path, follow: &str) -> RequestBuilder {
    let path = path.to_str().expect("UTF-8");
    request(
        agent,
        &[("source", "path"), ("path", path), ("follow", follow)],
    )
}

fn program_request(agent: &TestAgent, name: &str, follow: &str) -> RequestBuilder {
    let pairs = [
        ("source", "supervisor"),
        ("supervisor_process", name),
        ("follow", follow),
    ];
    request(agent, &pairs)
}

/// Formats an event: the text of a line, with `…` if it is partial, or the kind in brackets.
fn describe(event: &Value) -> String {
    let kind = event["event"].as_str().expect("a kind");
    let message = event["message"].as_str().expect("a message");
    assert!(event["timestamp"].is_string(), "{event}");
    let more = if event["partial"] == true { "…" } else { "" };
    match kind {
        "log" => format!("{message}{more}"),
        _ => format!("[{kind}]"),
    }
}

async fn read_all(mut events: Events) -> Vec<(u64, String)> {
    let mut all = Vec::new();
    while let Some((id, event)) = events.next().await {
        all.push((id, describe(&event)));
    }
    all
}

/// Reads up to the line `last`. Returns the complete lines and other events in order.
async fn read_up_to(events: &mut Events, last: &str) -> Vec<String> {
    let (mut lines, mut line) = (Vec::new(), String::new());
    loop {
        let (_, event) = events.next().await.expect("more events");
        if event["event"] == "log" {
            line.push_str(event["message"].as_str().expect("a message"));
            if event["partial"] == true {
                continue;
            }
        } else {
            assert_eq!(line, "", "cut off by {event}");
            line = describe(&event);
        }
        let is_last = line == last;
        lines.push(std::mem::take(&mut line));
        if is_last {
            return lines;
        }
    }
}

fn append(path: &Path, text: &str) {
    let mut file = OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

#[tokio::test]
async fn file_is_read_by_line_from_any_position() {
    let agent = agent().await;
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("ünïcode & log");
    let long = "é".repeat(40 << 10);
    let mut content = format!("one\n\ntwo\r\n{long}\n").into_bytes();
    content.extend(b"not \xff UTF-8\nthe last has no end");
    fs::write(&path, content).unwrap();

    let events = Events::open(file_request(&agent, &path, "false")).await;
    let whole = read_all(events).await;
    let lines: Vec<_> = whole.iter().map(|(_, line)| line.as_str()).collect();
    let (first, second) = long.split_at(64 << 10);
    assert_eq!(lines[..3], ["one", "", "two\r"]);
    assert!(lines[3] == format!("{first}…") && lines[4] == second);
    assert_eq!(
        lines[5..],
        ["not \u{fffd} UTF-8", "the last has no end…", "[end]"]
    );

    for (at, (id, _)) in whole.iter().enumerate() {
        let request = file_request(&agent, &path, "false").header("Last-Event-ID", id.to_string());
        let rest = read_all(Events::open(request).await).await;
        let expected = whole.get(at + 1..).filter(|rest| !rest.is_empty());
        assert_eq!(rest, expected.unwrap_or(&whole[at..]), "behind {at}");
    }

    // With the position of another file, reading starts over with a `restart` event.
    let (id, _) = whole[1];
    let another = directory.path().join("another");
    fs::write(&another, "a\nb\nc\nd\n").unwrap();
    let request = file_request(&agent, &another, "false").header("Last-Event-ID", id.to_string());
    let lines = read_all(Events::open(request).await).await;
    let lines: Vec<_> = lines.iter().map(|(_, line)| line.as_str()).collect();
    assert_eq!(lines, ["[restart]", "a", "b", "c", "d", "[end]"]);

    let empty = directory.path().join("empty");
    File::create(&empty).unwrap();
    let lines = read_all(Events::open(file_request(&agent, &empty, "false")).await).await;
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0].1, "[end]");
    agent.stop().await;
}

#[tokio::test]
async fn appended_lines_are_sent_immediately() {
    let agent = agent().await;
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("log");
    append(&path, "before\n");
    let mut readers = [
        Events::open(file_request(&agent, &path, "true")).await,
        Events::open(file_request(&agent, &path, "true")).await,
    ];
    for events in &mut readers {
        assert_eq!(read_up_to(events, "before").await, ["before"]);
    }
    for n in 0..100 {
        append(&path, &format!("{n} star"));
        append(
            &path, "ted
",
        );
    }
    let expected: Vec<_> = (0..100).map(|n| format!("{n} started")).collect();
    for events in &mut readers {
        assert_eq!(read_up_to(events, "99 started").await, expected);
    }
    // An incomplete line is sent after a delay.
    append(&path, "Password: ");
    let [events, _] = &mut readers;
    let (_, event) = events.next().await.unwrap();
    assert_eq!(describe(&event), "Password: …");
    append(&path, "\n");
    let (_, event) = events.next().await.unwrap();
    assert_eq!(describe(&event), "");
    // The streams end with the agent.
    let [mut one, mut other] = readers;
    agent.stop().await;
    while one.next().await.is_some() {}
    while other.next().await.is_some() {}
}

#[tokio::test]
async fn file_is_followed_by_name() {
    let agent = agent().await;
    let directory = TempDir::new().unwrap();
    let path_of = |name: &str| directory.path().join(name);
    let path = path_of("log");
    // The file does not exist yet.
    let mut events = Events::open(file_request(&agent, &path, "true")).await;
    append(&path, "first\n");
    assert_eq!(read_up_to(&mut events, "first").await, ["first"]);

    OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(&path)
        .unwrap();
    assert_eq!(read_up_to(&mut events, "[restart]").await, ["[restart]"]);
    append(&path, "after it was truncated\n");
    assert_eq!(
        read_up_to(&mut events, "after it was truncated")
            .await
            .len(),
        1
    );

    // Lines written to the renamed file are read until a new file has the name.
    for round in 0..10 {
        let old = path_of(&format!("log.{round}"));
        fs::rename(&path, &old).unwrap();
        append(&old, "still the old one\n");
        assert_eq!(read_up_to(&mut events, "still the old one").await.len(), 1);
        append(&old, "its last\n");
        append(&path, &format!("new {round}\n"));
        let new = format!("new {round}");
        let lines = read_up_to(&mut events, &new).await;
        assert_eq!(lines, ["its last", "[restart]", &new]);
    }

    // While the new file is empty, lines that the writer still adds to the old one are read.
    fs::rename(&path, path_of("log.old")).unwrap();
    File::create(&path).unwrap();
    append(&path_of("log.old"), "before its writer notices\n");
    assert_eq!(
        read_up_to(&mut events, "before its writer notices")
            .await
            .len(),
        1
    );
    append(&path, "after its writer noticed\n");
    let lines = read_up_to(&mut events, "after its writer noticed").await;
    assert_eq!(lines, ["[restart]", "after its writer noticed"]);

    fs::remove_file(&path).unwrap();
    assert_eq!(read_up_to(&mut events, "[restart]").await, ["[restart]"]);
    append(&path, "made again\n");
    assert_eq!(read_up_to(&mut events, "made again").await, ["made again"]);

    // A directory takes the name.
    fs::rename(&path, path_of("aside")).unwrap();
    fs::create_dir(&path).unwrap();
    assert_eq!(read_up_to(&mut events, "[restart]").await, ["[restart]"]);
    fs::remove_dir(&path).unwrap();
    append(&path, "a file again\n");
    let lines = read_up_to(&mut events, "a file again").await;
    assert_eq!(lines, ["[restart]", "a file again"]);

    // The directory is removed and created again.
    fs::remove_dir_all(directory.path()).unwrap();
    assert_eq!(read_up_to(&mut events, "[restart]").await, ["[restart]"]);
    fs::create_dir(directory.path()).unwrap();
    append(&path, "in a new directory\n");
    let lines = read_up_to(&mut events, "in a new directory").await;
    assert_eq!(lines, ["in a new directory"]);
    agent.stop().await;
}

#[tokio::test]
async fn resumed_reader_of_missing_file_gets_restart_when_new_file_appears() {
    let agent = agent().await;
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("log");
    append(&path, "one\n");
    let whole = read_all(Events::open(file_request(&agent, &path, "false")).await).await;
    // Renamed and not removed, so that its inode number is not reused.
    fs::rename(&path, directory.path().join("old")).unwrap();
    let request =
        file_request(&agent, &path, "true").header("Last-Event-ID", whole[0].0.to_string());
    let mut events = Events::open(request).await;
    append(&path, "two\n");
    assert_eq!(read_up_to(&mut events, "two").await, ["[restart]", "two"]);
    agent.stop().await;
}

#[tokio::test]
async fn changed_link_target_is_followed() {
    let agent = agent().await;
    let directory = TempDir::new().unwrap();
    let path_of = |name: &str| directory.path().join(name);
    for name in ["one", "two", "links"] {
        fs::create_dir(path_of(name)).unwrap();
    }
    symlink("../one/log", path_of("links/inner")).unwrap();
    symlink("links/inner", path_of("log")).unwrap();
    // The link is still dangling.
    let mut events = Events::open(file_request(&agent, &path_of("log"), "true")).await;
    append(&path_of("one/log"), "in one\n");
    assert_eq!(read_up_to(&mut events, "in one").await, ["in one"]);
    append(&path_of("two/log"), "in two\n");
    symlink("../two/log", path_of("links/new")).unwrap();
    fs::rename(path_of("links/new"), path_of("links/inner")).unwrap();
    let lines = read_up_to(&mut events, "in two").await;
    assert_eq!(lines, ["[restart]", "in two"]);
    append(&path_of("two/log"), "more\n");
    assert_eq!(read_up_to(&mut events, "more").await, ["more"]);
    agent.stop().await;
}

#[tokio::test]
async fn changed_directory_link_is_followed() {
    let agent = agent().await;
    let directory = TempDir::new().unwrap();
    let path_of = |name: &str| directory.path().join(name);
    for release in ["v1", "v2"] {
        fs::create_dir(path_of(release)).unwrap();
        append(&path_of(release).join("log"), &format!("in {release}\n"));
    }
    symlink("v1", path_of("current")).unwrap();
    let mut events = Events::open(file_request(&agent, &path_of("current/log"), "true")).await;
    assert_eq!(read_up_to(&mut events, "in v1").await, ["in v1"]);
    symlink("v2", path_of("next")).unwrap();
    fs::rename(path_of("next"), path_of("current")).unwrap();
    let lines = read_up_to(&mut events, "in v2").await;
    assert_eq!(lines, ["[restart]", "in v2"]);
    // The link is missing for a moment.
    fs::remove_file(path_of("current")).unwrap();
    append(&path_of("v1/log"), "again in v1\n");
    symlink("v1", path_of("current")).unwrap();
    let lines = read_up_to(&mut events, "again in v1").await;
    assert_eq!(lines, ["[restart]", "in v1", "again in v1"]);
    agent.stop().await;
}

#[tokio::test]
async fn idle_readers_use_little_memory_and_active_reader_gets_all() {
    const LINES: usize = 8 << 10;
    let agent = agent().await;
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("log");
    let line = "x".repeat(1023);
    let text = format!("{line}\n").repeat(LINES);
    fs::write(&path, &text).unwrap();
    let memory = PeakMemory::of(agent.pid());
    // These readers never read.
    let mut idle = Vec::new();
    for _ in 0..16 {
        idle.push(Events::open(file_request(&agent, &path, "true")).await);
    }
    let mut events = Events::open(file_request(&agent, &path, "false")).await;
    for _ in 0..LINES {
        let (_, event) = events.next().await.expect("more lines");
        assert!(event["message"] == line.as_str());
    }
    let (_, event) = events.next().await.unwrap();
    assert_eq!(describe(&event), "[end]");
    let grown = memory.grown_kib();
    assert!(grown < 32 << 10, "grew by {grown} KiB");
    agent.stop().await;
}

/// Creates a script that the agent runs as Chromium.
fn program(directory: &TempDir, lines: &str) -> PathBuf {
    let path = directory.path().join("program");
    fs::write(&path, format!("#!/bin/sh\n{lines}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[tokio::test]
async fn program_output_is_kept_across_restarts() {
    let directory = TempDir::new().unwrap();
    let program = program(&directory, "echo \"out $$\"\necho \"err $$\" >&2");
    let start = Start::headless().with(["--chromium", program.to_str().unwrap()]);
    let agent = start.listening().await;
    let mut events = Events::open(program_request(&agent, "chromium", "true")).await;
    // Two complete runs. The order of the two output streams is not defined.
    let (mut seen, mut last) = (Vec::new(), 0);
    let is_complete = |seen: &[String], pid: &str| {
        ["out", "err"]
            .iter()
            .all(|stream| seen.contains(&format!("{stream} {pid}")))
    };
    let complete_runs = |seen: &[String]| {
        let pids: BTreeSet<_> = seen.iter().map(|line| &line[4..]).collect();
        pids.into_iter()
            .filter(|pid| is_complete(seen, pid))
            .count()
    };
    while complete_runs(&seen) < 2 {
        let (id, event) = events.next().await.unwrap();
        seen.push(describe(&event));
        last = id;
    }
    let read = seen.len();

    // Another reader gets the same lines, and can resume where the first one stopped.
    let found = read_all(Events::open(program_request(&agent, "chromium", "false")).await).await;
    let lines: Vec<_> = found.iter().map(|(_, line)| line.clone()).collect();
    assert_eq!(lines[..read], seen);
    assert_eq!(lines.last().unwrap(), "[end]");
    let request =
        program_request(&agent, "chromium", "false").header("Last-Event-ID", last.to_string());
    let rest = read_all(Events::open(request).await).await;
    // Lines may have been added since.
    let since = &found[read..found.len() - 1];
    assert_eq!(rest[..since.len()], *since);
    // With a position of another run of the agent, all lines follow a `restart` event.
    let request = program_request(&agent, "chromium", "false").header("Last-Event-ID", "4");
    let rest = read_all(Events::open(request).await).await;
    assert_eq!(rest[0].1, "[restart]");
    assert_eq!(rest[1..5], found[..4]);

    // There is no X server.
    let found = read_all(Events::open(program_request(&agent, "xvfb", "false")).await).await;
    assert_eq!(found.len(), 1);
    agent.stop().await;
}

#[tokio::test]
async fn agent_log_contains_no_library_messages_and_no_secrets() {
    let agent = agent().await;
    let mut events = Events::open(program_request(&agent, "agent", "true")).await;
    let (status, _) = agent
        .answer(agent.get("/no/such/route?secret=s3cr3t"))
        .await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    loop {
        let (_, event) = events.next().await.unwrap();
        let line = describe(&event);
        let words: Vec<_> = line.split_whitespace().collect();
        assert!(
            ["ERROR", "WARN", "INFO", "DEBUG"].contains(&words[0]),
            "{line}"
        );
        assert!(line.contains(" berth::"), "{line}");
        assert!(!line.contains(crate::support::agent::TOKEN), "{line}");
        assert!(!line.contains("s3cr3t"), "{line}");
        if line.contains("status=404") {
            break;
        }
    }
    agent.stop().await;
}

#[tokio::test]
async fn invalid_log_request_names_each_invalid_parameter() {
    let agent = agent().await;
    let directory = TempDir::new().unwrap();
    let path_of = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    mkfifo(path_of("fifo").as_str(), Mode::S_IRWXU).unwrap();
    fs::write(path_of("file"), "").unwrap();
    symlink("loop", path_of("loop")).unwrap();
    let deep = format!("/{}", "x".repeat(5000));
    let (missing, lost) = (path_of("missing"), path_of("missing/file"));
    let (fifo, below_file, endless) = (path_of("fifo"), path_of("file/below"), path_of("loop"));
    let directory = directory.path().to_str().unwrap();

    let path = |path: &str| vec![("source", "path".to_owned()), ("path", path.to_owned())];
    let cases = [
        (vec![], 400, &["source"][..]),
        (vec![("source", "journal".to_owned())], 400, &["source"]),
        (vec![("source", "path".to_owned())], 400, &["path"]),
        (
            vec![("source", "supervisor".to_owned())],
            400,
            &["supervisor_process"],
        ),
        (
            vec![
                ("source", "supervisor".to_owned()),
                ("supervisor_process", "systemd".to_owned()),
                ("path", "/x".to_owned()),
                ("follow", "maybe".to_owned()),
            ],
            400,
            &["follow", "path", "supervisor_process"],
        ),
        (
            vec![
                ("source", "path".to_owned()),
                ("supervisor_process", "agent".to_owned()),
            ],
            400,
            &["path", "supervisor_process"],
        ),
        (path(""), 400, &["path"]),
        (path("relative/log"), 400, &["path"]),
        (path("/with\0nul"), 400, &["path"]),
        (path(&deep), 400, &["path"]),
        (path("/"), 400, &["path"]),
        (path(directory), 400, &["path"]),
        (path(&fifo), 400, &["path"]),
        (path(&endless), 400, &["path"]),
        (path(&below_file), 400, &["path"]),
        (path("/dev/null"), 400, &["path"]),
        (path("/proc/self/status"), 400, &["path"]),
        (path("/proc/kmsg"), 400, &["path"]),
        (path("/sys/kernel/notes"), 400, &["path"]),
        (path(&lost), 404, &[]),
    ];
    for (pairs, expected, fields) in cases {
        for follow in ["true", "false"] {
            let mut pairs: Vec<_> = pairs.iter().map(|(k, v)| (*k, v.as_str())).collect();
            if !pairs.iter().any(|(name, _)| *name == "follow") {
                pairs.push(("follow", follow));
            }
            let (status, body) = agent.answer(request(&agent, &pairs)).await;
            assert_eq!(status, expected, "{pairs:?}: {body}");
            let details = body["details"].as_array().expect("details");
            let mut codes: Vec<_> = details
                .iter()
                .map(|detail| detail["code"].as_str().unwrap())
                .collect();
            codes.sort_unstable();
            assert_eq!(codes, fields, "{pairs:?}: {body}");
        }
    }
    let (status, body) = agent
        .answer(file_request(&agent, Path::new(&missing), "false"))
        .await;
    assert_eq!(status, StatusCode::NOT_FOUND, "{body}");
    let request = program_request(&agent, "agent", "false").header("Last-Event-ID", "x");
    assert_eq!(agent.answer(request).await.0, StatusCode::BAD_REQUEST);
    agent.stop().await;
}

#[tokio::test]
async fn readers_are_limited_until_one_disconnects() {
    let agent = agent().await;
    let mut readers = Vec::new();
    for _ in 0..64 {
        readers.push(Events::open(program_request(&agent, "xvfb", "true")).await);
    }
    let request = || program_request(&agent, "xvfb", "true");
    let refused = in_time("a response", request().send()).await.unwrap();
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(refused.headers().contains_key("retry-after"));
    readers.pop();
    until("room for a reader", async || {
        let response = request().send().await.unwrap();
        (response.status() == StatusCode::OK).then_some(())
    })
    .await;
    agent.stop().await;
}

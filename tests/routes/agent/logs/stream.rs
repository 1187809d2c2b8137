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

fn of_file(agent: &TestAgent, path: &Path, follow: &str) -> RequestBuilder {
    let path = path.to_str().expect("UTF-8");
    request(
        agent,
        &[("source", "path"), ("path", path), ("follow", follow)],
    )
}

fn of_program(agent: &TestAgent, name: &str, follow: &str) -> RequestBuilder {
    let pairs = [
        ("source", "supervisor"),
        ("supervisor_process", name),
        ("follow", follow),
    ];
    request(agent, &pairs)
}

/// The kind and message of each event, with `…` where the line goes on.
fn told(event: &Value) -> String {
    let kind = event["event"].as_str().expect("a kind");
    let message = event["message"].as_str().expect("a message");
    assert!(event["timestamp"].is_string(), "{event}");
    let more = if event["partial"] == true { "…" } else { "" };
    match kind {
        "log" => format!("{message}{more}"),
        _ => format!("[{kind}]"),
    }
}

async fn all(mut events: Events) -> Vec<(u64, String)> {
    let mut all = Vec::new();
    while let Some((id, event)) = events.next().await {
        all.push((id, told(&event)));
    }
    all
}

/// The whole lines up to one, and what else was told, in order.
async fn up_to(events: &mut Events, last: &str) -> Vec<String> {
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
            line = told(&event);
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
async fn a_file_is_told_line_by_line_from_wherever_its_reader_is() {
    let agent = agent().await;
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("ünïcode & log");
    let long = "é".repeat(40 << 10);
    let mut content = format!("one\n\ntwo\r\n{long}\n").into_bytes();
    content.extend(b"not \xff UTF-8\nthe last has no end");
    fs::write(&path, content).unwrap();

    let events = Events::open(of_file(&agent, &path, "false")).await;
    let whole = all(events).await;
    let lines: Vec<_> = whole.iter().map(|(_, line)| line.as_str()).collect();
    let (first, second) = long.split_at(64 << 10);
    assert_eq!(lines[..3], ["one", "", "two\r"]);
    assert!(lines[3] == format!("{first}…") && lines[4] == second);
    assert_eq!(
        lines[5..],
        ["not \u{fffd} UTF-8", "the last has no end…", "[end]"]
    );

    for (at, (id, _)) in whole.iter().enumerate() {
        let request = of_file(&agent, &path, "false").header("Last-Event-ID", id.to_string());
        let rest = all(Events::open(request).await).await;
        let wanted = whole.get(at + 1..).filter(|rest| !rest.is_empty());
        assert_eq!(rest, wanted.unwrap_or(&whole[at..]), "behind {at}");
    }

    // Behind an event of another file: it begins anew, and that is said.
    let (id, _) = whole[1];
    let another = folder.path().join("another");
    fs::write(&another, "a\nb\nc\nd\n").unwrap();
    let request = of_file(&agent, &another, "false").header("Last-Event-ID", id.to_string());
    let lines = all(Events::open(request).await).await;
    let lines: Vec<_> = lines.iter().map(|(_, line)| line.as_str()).collect();
    assert_eq!(lines, ["[restart]", "a", "b", "c", "d", "[end]"]);

    let empty = folder.path().join("empty");
    File::create(&empty).unwrap();
    let lines = all(Events::open(of_file(&agent, &empty, "false")).await).await;
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0].1, "[end]");
    agent.stop().await;
}

#[tokio::test]
async fn what_is_appended_is_told_as_it_comes() {
    let agent = agent().await;
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("log");
    append(&path, "before\n");
    let mut readers = [
        Events::open(of_file(&agent, &path, "true")).await,
        Events::open(of_file(&agent, &path, "true")).await,
    ];
    for events in &mut readers {
        assert_eq!(up_to(events, "before").await, ["before"]);
    }
    for n in 0..100 {
        append(&path, &format!("{n} beg"));
        append(&path, "un\n");
    }
    let wanted: Vec<_> = (0..100).map(|n| format!("{n} begun")).collect();
    for events in &mut readers {
        assert_eq!(up_to(events, "99 begun").await, wanted);
    }
    // A line whose end does not come is not held back for ever.
    append(&path, "Password: ");
    let [events, _] = &mut readers;
    let (_, event) = events.next().await.unwrap();
    assert_eq!(told(&event), "Password: …");
    append(&path, "\n");
    let (_, event) = events.next().await.unwrap();
    assert_eq!(told(&event), "");
    // The streams end with the agent.
    let [mut one, mut other] = readers;
    agent.stop().await;
    while one.next().await.is_some() {}
    while other.next().await.is_some() {}
}

#[tokio::test]
async fn a_file_is_followed_by_its_name() {
    let agent = agent().await;
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name);
    let path = at("log");
    // It is waited for.
    let mut events = Events::open(of_file(&agent, &path, "true")).await;
    append(&path, "first\n");
    assert_eq!(up_to(&mut events, "first").await, ["first"]);

    OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(&path)
        .unwrap();
    assert_eq!(up_to(&mut events, "[restart]").await, ["[restart]"]);
    append(&path, "after it was truncated\n");
    assert_eq!(up_to(&mut events, "after it was truncated").await.len(), 1);

    // What is written to the old one until there is a new one belongs to it.
    for round in 0..10 {
        let old = at(&format!("log.{round}"));
        fs::rename(&path, &old).unwrap();
        append(&old, "still the old one\n");
        assert_eq!(up_to(&mut events, "still the old one").await.len(), 1);
        append(&old, "its last\n");
        append(&path, &format!("new {round}\n"));
        let new = format!("new {round}");
        let lines = up_to(&mut events, &new).await;
        assert_eq!(lines, ["its last", "[restart]", &new]);
    }

    // Nor is anything lost that its writer has still to write while the new one waits for it.
    fs::rename(&path, at("log.old")).unwrap();
    File::create(&path).unwrap();
    append(&at("log.old"), "has not heard of it\n");
    assert_eq!(up_to(&mut events, "has not heard of it").await.len(), 1);
    append(&path, "now it has\n");
    let lines = up_to(&mut events, "now it has").await;
    assert_eq!(lines, ["[restart]", "now it has"]);

    fs::remove_file(&path).unwrap();
    assert_eq!(up_to(&mut events, "[restart]").await, ["[restart]"]);
    append(&path, "made again\n");
    assert_eq!(up_to(&mut events, "made again").await, ["made again"]);

    // Something else in its place.
    fs::rename(&path, at("aside")).unwrap();
    fs::create_dir(&path).unwrap();
    assert_eq!(up_to(&mut events, "[restart]").await, ["[restart]"]);
    fs::remove_dir(&path).unwrap();
    append(&path, "a file again\n");
    let lines = up_to(&mut events, "a file again").await;
    assert_eq!(lines, ["[restart]", "a file again"]);

    // Its directory goes, and comes again.
    fs::remove_dir_all(folder.path()).unwrap();
    assert_eq!(up_to(&mut events, "[restart]").await, ["[restart]"]);
    fs::create_dir(folder.path()).unwrap();
    append(&path, "in a new directory\n");
    let lines = up_to(&mut events, "in a new directory").await;
    assert_eq!(lines, ["in a new directory"]);
    agent.stop().await;
}

#[tokio::test]
async fn a_reader_that_comes_back_while_there_is_no_file_is_told_that_the_next_is_another() {
    let agent = agent().await;
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("log");
    append(&path, "one\n");
    let whole = all(Events::open(of_file(&agent, &path, "false")).await).await;
    // Kept, so that its number is not given to the next.
    fs::rename(&path, folder.path().join("old")).unwrap();
    let request = of_file(&agent, &path, "true").header("Last-Event-ID", whole[0].0.to_string());
    let mut events = Events::open(request).await;
    append(&path, "two\n");
    assert_eq!(up_to(&mut events, "two").await, ["[restart]", "two"]);
    agent.stop().await;
}

#[tokio::test]
async fn a_link_is_followed_wherever_it_leads() {
    let agent = agent().await;
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name);
    for name in ["one", "two", "links"] {
        fs::create_dir(at(name)).unwrap();
    }
    symlink("../one/log", at("links/inner")).unwrap();
    symlink("links/inner", at("log")).unwrap();
    // It leads nowhere as yet.
    let mut events = Events::open(of_file(&agent, &at("log"), "true")).await;
    append(&at("one/log"), "in one\n");
    assert_eq!(up_to(&mut events, "in one").await, ["in one"]);
    append(&at("two/log"), "in two\n");
    symlink("../two/log", at("links/new")).unwrap();
    fs::rename(at("links/new"), at("links/inner")).unwrap();
    let lines = up_to(&mut events, "in two").await;
    assert_eq!(lines, ["[restart]", "in two"]);
    append(&at("two/log"), "more\n");
    assert_eq!(up_to(&mut events, "more").await, ["more"]);
    agent.stop().await;
}

#[tokio::test]
async fn a_directory_that_is_a_link_may_come_to_lead_elsewhere() {
    let agent = agent().await;
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name);
    for release in ["v1", "v2"] {
        fs::create_dir(at(release)).unwrap();
        append(&at(release).join("log"), &format!("in {release}\n"));
    }
    symlink("v1", at("current")).unwrap();
    let mut events = Events::open(of_file(&agent, &at("current/log"), "true")).await;
    assert_eq!(up_to(&mut events, "in v1").await, ["in v1"]);
    symlink("v2", at("next")).unwrap();
    fs::rename(at("next"), at("current")).unwrap();
    let lines = up_to(&mut events, "in v2").await;
    assert_eq!(lines, ["[restart]", "in v2"]);
    // It leads nowhere for a while.
    fs::remove_file(at("current")).unwrap();
    append(&at("v1/log"), "again in v1\n");
    symlink("v1", at("current")).unwrap();
    let lines = up_to(&mut events, "again in v1").await;
    assert_eq!(lines, ["[restart]", "in v1", "again in v1"]);
    agent.stop().await;
}

#[tokio::test]
async fn a_reader_that_stands_still_costs_little_and_one_that_reads_gets_all() {
    const LINES: usize = 8 << 10;
    let agent = agent().await;
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("log");
    let line = "x".repeat(1023);
    let text = format!("{line}\n").repeat(LINES);
    fs::write(&path, &text).unwrap();
    let memory = PeakMemory::of(agent.pid());
    // None of them reads.
    let mut idle = Vec::new();
    for _ in 0..16 {
        idle.push(Events::open(of_file(&agent, &path, "true")).await);
    }
    let mut events = Events::open(of_file(&agent, &path, "false")).await;
    for _ in 0..LINES {
        let (_, event) = events.next().await.expect("more lines");
        assert!(event["message"] == line.as_str());
    }
    let (_, event) = events.next().await.unwrap();
    assert_eq!(told(&event), "[end]");
    let grown = memory.grown_kib();
    assert!(grown < 32 << 10, "grown by {grown} KiB");
    agent.stop().await;
}

/// A program that can be told to be Chromium.
fn program(folder: &TempDir, lines: &str) -> PathBuf {
    let path = folder.path().join("program");
    fs::write(&path, format!("#!/bin/sh\n{lines}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[tokio::test]
async fn what_a_program_prints_is_kept_while_it_comes_and_goes() {
    let folder = TempDir::new().unwrap();
    let program = program(&folder, "echo \"out $$\"\necho \"err $$\" >&2");
    let start = Start::headless().with(["--chromium", program.to_str().unwrap()]);
    let agent = start.listening().await;
    let mut events = Events::open(of_program(&agent, "chromium", "true")).await;
    // Two runs of it, each with all it printed, in whichever order its two streams are read.
    let (mut seen, mut last) = (Vec::new(), 0);
    let is_whole = |seen: &[String], pid: &str| {
        ["out", "err"]
            .iter()
            .all(|stream| seen.contains(&format!("{stream} {pid}")))
    };
    let whole_runs = |seen: &[String]| {
        let pids: BTreeSet<_> = seen.iter().map(|line| &line[4..]).collect();
        pids.into_iter().filter(|pid| is_whole(seen, pid)).count()
    };
    while whole_runs(&seen) < 2 {
        let (id, event) = events.next().await.unwrap();
        seen.push(told(&event));
        last = id;
    }
    let read = seen.len();

    // Another reader finds the same, and goes on where the first one stopped.
    let found = all(Events::open(of_program(&agent, "chromium", "false")).await).await;
    let lines: Vec<_> = found.iter().map(|(_, line)| line.clone()).collect();
    assert_eq!(lines[..read], seen);
    assert_eq!(lines.last().unwrap(), "[end]");
    let request = of_program(&agent, "chromium", "false").header("Last-Event-ID", last.to_string());
    let rest = all(Events::open(request).await).await;
    // More may have come since, before the end.
    let since = &found[read..found.len() - 1];
    assert_eq!(rest[..since.len()], *since);
    // Behind a line of another run of the agent: all of this one's, and that is said.
    let request = of_program(&agent, "chromium", "false").header("Last-Event-ID", "4");
    let rest = all(Events::open(request).await).await;
    assert_eq!(rest[0].1, "[restart]");
    assert_eq!(rest[1..5], found[..4]);

    // There is no X server.
    let found = all(Events::open(of_program(&agent, "xvfb", "false")).await).await;
    assert_eq!(found.len(), 1);
    agent.stop().await;
}

#[tokio::test]
async fn the_agents_own_log_is_told_without_what_libraries_say_and_without_secrets() {
    let agent = agent().await;
    let mut events = Events::open(of_program(&agent, "agent", "true")).await;
    let (status, _) = agent
        .answer(agent.get("/no/such/route?secret=s3cr3t"))
        .await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    loop {
        let (_, event) = events.next().await.unwrap();
        let line = told(&event);
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
async fn a_bad_request_says_which_parameter_is_wrong() {
    let agent = agent().await;
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    mkfifo(at("fifo").as_str(), Mode::S_IRWXU).unwrap();
    fs::write(at("file"), "").unwrap();
    symlink("loop", at("loop")).unwrap();
    let deep = format!("/{}", "x".repeat(5000));
    let (missing, lost) = (at("missing"), at("missing/file"));
    let (fifo, below_file, endless) = (at("fifo"), at("file/below"), at("loop"));
    let directory = folder.path().to_str().unwrap();

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
    for (pairs, wanted, fields) in cases {
        for follow in ["true", "false"] {
            let mut pairs: Vec<_> = pairs.iter().map(|(k, v)| (*k, v.as_str())).collect();
            if !pairs.iter().any(|(name, _)| *name == "follow") {
                pairs.push(("follow", follow));
            }
            let (status, body) = agent.answer(request(&agent, &pairs)).await;
            assert_eq!(status, wanted, "{pairs:?}: {body}");
            let details = body["details"].as_array().expect("details");
            let mut told: Vec<_> = details
                .iter()
                .map(|detail| detail["code"].as_str().unwrap())
                .collect();
            told.sort_unstable();
            assert_eq!(told, fields, "{pairs:?}: {body}");
        }
    }
    let (status, body) = agent
        .answer(of_file(&agent, Path::new(&missing), "false"))
        .await;
    assert_eq!(status, StatusCode::NOT_FOUND, "{body}");
    let request = of_program(&agent, "agent", "false").header("Last-Event-ID", "x");
    assert_eq!(agent.answer(request).await.0, StatusCode::BAD_REQUEST);
    agent.stop().await;
}

#[tokio::test]
async fn readers_are_limited_and_make_room_when_they_leave() {
    let agent = agent().await;
    let mut readers = Vec::new();
    for _ in 0..64 {
        readers.push(Events::open(of_program(&agent, "xvfb", "true")).await);
    }
    let request = || of_program(&agent, "xvfb", "true");
    let refused = in_time("an answer", request().send()).await.unwrap();
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

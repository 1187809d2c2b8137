use std::{
    collections::HashSet,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use nix::sys::{signal::Signal, stat::makedev};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tempfile::{NamedTempFile, TempDir};

use crate::support::{
    agent::{Start, TestAgent},
    events::Events,
    processes,
    scripts::metric,
    wait::{in_time, until},
};

async fn agent() -> TestAgent {
    Start::without_browser().listening().await
}

async fn watch(agent: &TestAgent, path: &Path, recursive: bool) -> String {
    let body = json!({"path": path, "recursive": recursive});
    let (status, response) = agent.answer(agent.post("/fs/watch").json(&body)).await;
    assert_eq!(status, StatusCode::CREATED, "{response}");
    response["watch_id"].as_str().expect("an id").to_owned()
}

async fn events(agent: &TestAgent, id: &str) -> Events {
    Events::open(agent.get(&format!("/fs/watch/{id}/events"))).await
}

async fn stop_watch(agent: &TestAgent, id: &str) -> StatusCode {
    let request = agent.request(Method::DELETE, &format!("/fs/watch/{id}"));
    agent.answer(request).await.0
}

fn event(kind: &str, path: &Path, is_dir: bool) -> Value {
    let name = path.file_name().expect("a name").to_str();
    json!({"type": kind, "path": path, "name": name, "is_dir": is_dir})
}

fn moved(from: &Path, to: &Path, is_dir: bool) -> [Value; 2] {
    let (mut rename, mut create) = (event("RENAME", from, is_dir), event("CREATE", to, is_dir));
    rename["new_path"] = json!(to);
    create["old_path"] = json!(from);
    [rename, create]
}

#[tokio::test]
async fn each_change_is_reported_with_path_and_type() {
    let agent = agent().await;
    let (directory, elsewhere) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let path_of = |name: &str| directory.path().join(name);
    fs::create_dir(path_of("old")).unwrap();
    let id = watch(&agent, directory.path(), false).await;
    let mut events = events(&agent, &id).await;

    fs::write(path_of("file"), "x").unwrap();
    fs::create_dir(path_of("dir")).unwrap();
    // Entries of subdirectories are not watched.
    fs::write(path_of("dir").join("below"), "x").unwrap();
    fs::rename(path_of("file"), path_of("named")).unwrap();
    fs::rename(path_of("dir"), path_of("folder")).unwrap();
    fs::rename(path_of("folder"), elsewhere.path().join("folder")).unwrap();
    fs::rename(path_of("named"), elsewhere.path().join("named")).unwrap();
    fs::rename(elsewhere.path().join("folder"), path_of("back")).unwrap();

    let mut expected = vec![
        event("CREATE", &path_of("file"), false),
        event("WRITE", &path_of("file"), false),
        event("CREATE", &path_of("dir"), true),
    ];
    expected.extend(moved(&path_of("file"), &path_of("named"), false));
    expected.extend(moved(&path_of("dir"), &path_of("folder"), true));
    expected.extend([
        event("RENAME", &path_of("folder"), true),
        event("RENAME", &path_of("named"), false),
        event("CREATE", &path_of("back"), true),
    ]);
    assert_eq!(events.take(expected.len()).await, expected);

    fs::remove_dir_all(path_of("back")).unwrap();
    fs::remove_dir(path_of("old")).unwrap();
    fs::write(path_of("ünïcode 😀"), "").unwrap();
    let expected = [
        event("DELETE", &path_of("back"), true),
        event("DELETE", &path_of("old"), true),
        event("CREATE", &path_of("ünïcode 😀"), false),
    ];
    assert_eq!(events.take(expected.len()).await, expected);
    assert_eq!(stop_watch(&agent, &id).await, StatusCode::NO_CONTENT);
    assert_eq!(events.next().await, None);
    assert_eq!(stop_watch(&agent, &id).await, StatusCode::NOT_FOUND);
    agent.stop().await;
}

#[tokio::test]
async fn new_directory_is_reported_with_entries_created_before_its_watch() {
    const ROUNDS: usize = 100;
    let agent = agent().await;
    let directory = TempDir::new().unwrap();
    let id = watch(&agent, directory.path(), true).await;
    let mut events = events(&agent, &id).await;
    let mut expected = HashSet::new();
    for round in 0..ROUNDS {
        let mut path = directory.path().join(round.to_string());
        for name in ["a", "b", "c"] {
            expected.insert(path.clone());
            path = path.join(name);
        }
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "").unwrap();
        expected.insert(path);
    }
    let mut reported = Vec::new();
    for event in events.take(expected.len()).await {
        assert_eq!(event["type"], "CREATE", "{event}");
        reported.push(event["path"].as_str().unwrap().into());
    }
    assert_eq!(reported.into_iter().collect::<HashSet<_>>(), expected);

    // Its removal reports every entry once.
    fs::remove_dir_all(directory.path().join("1")).unwrap();
    let removed = ["a/b/c", "a/b", "a", ""].map(|name| directory.path().join("1").join(name));
    for event in events.take(removed.len()).await {
        assert_eq!(event["type"], "DELETE", "{event}");
        assert_eq!(event["is_dir"], event["name"] != "c", "{event}");
    }

    // It is watched from then on, also after a rename.
    let (old, new) = (directory.path().join("0"), directory.path().join("moved"));
    fs::rename(&old, &new).unwrap();
    assert_eq!(events.take(2).await, moved(&old, &new, true));
    let below = new.join("a/b/below");
    fs::write(&below, "").unwrap();
    assert_eq!(events.take(1).await, [event("CREATE", &below, false)]);
    agent.stop().await;
}

#[tokio::test]
async fn replacement_of_moved_directory_is_reported_with_its_entries() {
    let agent = agent().await;
    let (directory, elsewhere) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let path_of = |name: &str| directory.path().join(name);
    let id = watch(&agent, directory.path(), true).await;
    let mut events = events(&agent, &id).await;
    let names = ["place", "place/below", "place/below/deep", "place/file"];
    let make = |root: &Path| {
        fs::create_dir_all(root.join("place/below/deep")).unwrap();
        fs::File::create(root.join("place/file")).unwrap();
    };
    let expected: HashSet<_> = names
        .map(|name| (path_of(name), name != "place/file"))
        .into();
    for away in [path_of("aside"), elsewhere.path().join("away")] {
        // The entries of a directory that is moved in have no events.
        make(elsewhere.path());
        fs::rename(elsewhere.path().join("place"), path_of("place")).unwrap();
        assert_eq!(created(&mut events, names.len()).await, expected);
        fs::rename(path_of("place"), &away).unwrap();
        let is_inside = away.starts_with(directory.path());
        if is_inside {
            assert_eq!(events.take(2).await, moved(&path_of("place"), &away, true));
        } else {
            assert_eq!(
                events.take(1).await,
                [event("RENAME", &path_of("place"), true)]
            );
        }
        make(directory.path());
        assert_eq!(created(&mut events, names.len()).await, expected);
        let last = path_of("place/below/deep/last");
        fs::File::create(&last).unwrap();
        assert_eq!(events.take(1).await, [event("CREATE", &last, false)]);
        fs::remove_dir_all(path_of("place")).unwrap();
        for event in events.take(names.len() + 1).await {
            assert_eq!(event["type"], "DELETE", "{event}");
        }
    }
    agent.stop().await;
}

/// Takes the next events, which must all be `CREATE`. Returns each path, and whether it is a
/// directory.
async fn created(events: &mut Events, count: usize) -> HashSet<(PathBuf, bool)> {
    let created = events.take(count).await;
    created
        .into_iter()
        .map(|event| {
            assert_eq!(event["type"], "CREATE", "{event}");
            let path = event["path"].as_str().unwrap().into();
            (path, event["is_dir"].as_bool().unwrap())
        })
        .collect()
}

/// The events that one reader of a flood received.
#[derive(Default)]
struct Received {
    /// Strings, as comparing many `PathBuf`s by component is slow.
    created: HashSet<String>,
    /// The number of paths that were reported more than once.
    duplicates: usize,
    /// The sum of the numbers in overflow events.
    missed: usize,
    /// The overflow events without a number: the kernel dropped events.
    unnumbered: usize,
}

impl Received {
    /// Reads up to the first file named `mark` and a number, and returns the number.
    async fn read_up_to_mark(mut events: Events) -> (Self, usize) {
        let mut received = Received::default();
        loop {
            let (_, event) = events.next().await.expect("more events");
            let name = event["name"].as_str().unwrap_or_default();
            match (event["type"].as_str().unwrap(), event["missed"].as_u64()) {
                ("OVERFLOW", Some(missed)) => received.missed += usize::try_from(missed).unwrap(),
                ("OVERFLOW", None) => received.unnumbered += 1,
                ("CREATE", None) => match name.strip_prefix("mark") {
                    Some(number) => return (received, number.parse().unwrap()),
                    None => {
                        let path = event["path"].as_str().unwrap().to_owned();
                        received.duplicates += usize::from(!received.created.insert(path));
                    }
                },
                other => panic!("{other:?}: {event}"),
            }
        }
    }
}

#[tokio::test]
async fn concurrent_readers_receive_complete_flood() {
    flood(25, true).await;
}

#[tokio::test]
async fn late_reader_of_flood_gets_number_of_dropped_events() {
    flood(250, false).await;
}

/// Creates `files` files in each of many new directories as fast as possible, and checks that every
/// reader accounts for all of them.
async fn flood(files: usize, read_meanwhile: bool) {
    const DIRECTORIES: usize = 200;
    let agent = agent().await;
    let directory = TempDir::new().unwrap();
    let id = watch(&agent, directory.path(), true).await;
    let readers = [events(&agent, &id).await, events(&agent, &id).await];
    let (start, started) = tokio::sync::watch::channel(read_meanwhile);
    let readers = readers.map(|events| {
        let mut started = started.clone();
        tokio::spawn(async move {
            started.wait_for(|started| *started).await.unwrap();
            Received::read_up_to_mark(events).await
        })
    });
    let path = directory.path().to_str().unwrap().to_owned();
    let flood = tokio::task::spawn_blocking(move || {
        let mut paths = HashSet::new();
        // Hard links to one file, which are created and deleted faster than files.
        let file = NamedTempFile::new().unwrap();
        for directory in 0..DIRECTORIES {
            // Names of the maximum length, so that fewer events exceed the buffer.
            let directory = format!("{path}/{directory:0>255}");
            fs::create_dir(&directory).unwrap();
            for name in 0..files {
                let name = format!("{directory}/{name:0>255}");
                fs::hard_link(&file, &name).unwrap();
                paths.insert(name);
            }
            paths.insert(directory);
        }
        paths
    });
    let paths = flood.await.unwrap();
    start.send_replace(true);
    // Repeated, as a mark may be dropped. The marks lie beside the directories: in a new directory
    // they could be listed before older entries.
    let mut marks = 0;
    until("a mark for each reader", async || {
        fs::File::create(directory.path().join(format!("mark{marks}"))).unwrap();
        marks += 1;
        readers
            .iter()
            .all(tokio::task::JoinHandle::is_finished)
            .then_some(())
    })
    .await;
    for reader in readers {
        let (received, marks_before) = reader.await.unwrap();
        assert!(received.created.is_subset(&paths));
        assert!(read_meanwhile || received.missed + received.unnumbered > 0);
        if received.unnumbered == 0 {
            assert_eq!(received.duplicates, 0);
            let accounted_for = received.created.len() + received.missed;
            assert_eq!(accounted_for, paths.len() + marks_before);
        }
    }
    agent.stop().await;
}

#[tokio::test]
async fn changes_after_kernel_overflow_are_reported() {
    let limit = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let limit: usize = limit.trim().parse().unwrap();
    let agent = agent().await;
    let directory = TempDir::new().unwrap();
    let path_of = |name: &str| directory.path().join(name);
    for name in ["flooded", "old", "gone"] {
        fs::create_dir(path_of(name)).unwrap();
    }
    let id = watch(&agent, directory.path(), true).await;
    let mut reader = events(&agent, &id).await;
    let gone = watch(&agent, &path_of("gone"), true).await;
    let mut other = events(&agent, &gone).await;
    // While the agent is stopped, events queue in the kernel until it drops them.
    processes::stop(agent.pid()).await;
    for number in 0..limit + 100 {
        fs::File::create(path_of("flooded").join(number.to_string())).unwrap();
    }
    fs::create_dir_all(path_of("made/deep")).unwrap();
    fs::rename(path_of("old"), path_of("new")).unwrap();
    fs::remove_dir(path_of("gone")).unwrap();
    processes::signal(agent.pid(), Signal::SIGCONT);
    while reader.take(1).await[0]["type"] != "OVERFLOW" {}
    let files = [
        path_of("made/deep/file"),
        path_of("new/file"),
        path_of("flooded/file"),
    ];
    for file in &files {
        fs::File::create(file).unwrap();
    }
    let expected = files.map(|file| event("CREATE", &file, false));
    assert_eq!(reader.take(expected.len()).await, expected);
    // The stream of a directory whose removal was lost ends as well.
    assert_eq!(other.take(1).await, [json!({"type": "OVERFLOW"})]);
    assert_eq!(other.next().await, None);
    agent.stop().await;
}

#[tokio::test]
async fn subdirectories_are_limited_across_all_watches() {
    const WATCHES: usize = 63;
    /// Enough per watch that another watch would exceed the limit.
    const SUBDIRECTORIES: usize = (1 << 16) / WATCHES;
    let agent = agent().await;
    let directory = TempDir::new().unwrap();
    for number in 0..SUBDIRECTORIES {
        fs::create_dir(directory.path().join(number.to_string())).unwrap();
    }
    let mut ids = Vec::new();
    for _ in 0..WATCHES {
        ids.push(watch(&agent, directory.path(), true).await);
    }
    let body = json!({"path": directory.path(), "recursive": true});
    let response = in_time("a response", agent.post("/fs/watch").json(&body).send())
        .await
        .unwrap();
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(response.headers().contains_key("retry-after"));
    let response: Value = response.json().await.unwrap();
    assert_eq!(response["code"], "limit_exceeded", "{response}");
    // A non-recursive watch does not count towards the limit.
    let alone = watch(&agent, directory.path(), false).await;
    assert_eq!(stop_watch(&agent, &alone).await, StatusCode::NO_CONTENT);

    // Each of these adds one to every watch.
    let mut reader = events(&agent, &ids[0]).await;
    for name in ["one", "two"] {
        fs::create_dir(directory.path().join(name)).unwrap();
    }
    while reader.take(1).await[0]["name"] != "two" {}
    assert_eq!(reader.take(1).await, [json!({"type": "OVERFLOW"})]);

    // Ending some watches makes room, also for the new directories.
    for id in &ids[1..3] {
        assert_eq!(stop_watch(&agent, id).await, StatusCode::NO_CONTENT);
    }
    until("room for another", async || {
        let (status, _) = agent.answer(agent.post("/fs/watch").json(&body)).await;
        (status == StatusCode::CREATED).then_some(())
    })
    .await;
    agent.stop().await;
}

#[tokio::test]
async fn virtual_file_system_is_watched_only_as_root() {
    let agent = agent().await;
    watch(&agent, Path::new("/dev"), true).await;
    let watched = watched_file_systems(agent.pid());
    let device = |path: &str| fs::metadata(path).unwrap().dev();
    assert!(watched.contains(&device("/dev")));
    assert!(!watched.contains(&device("/dev/pts")));
    agent.stop().await;
    // It is watched if it is the root of the watch.
    let agent = self::agent().await;
    watch(&agent, Path::new("/dev/pts"), true).await;
    assert!(watched_file_systems(agent.pid()).contains(&device("/dev/pts")));
    agent.stop().await;
}

/// Returns the devices of the directories that a process watches, from its descriptors.
fn watched_file_systems(pid: u32) -> HashSet<u64> {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fdinfo")).unwrap();
    let info: String = descriptors
        .filter_map(|entry| fs::read_to_string(entry.unwrap().path()).ok())
        .collect();
    info.lines()
        .filter_map(|line| line.strip_prefix("inotify ")?.split(" sdev:").nth(1))
        .map(|rest| {
            let device = rest.split(' ').next().unwrap();
            let device = u64::from_str_radix(device, 16).unwrap();
            makedev(device >> 20, device & 0xf_ffff)
        })
        .collect()
}

#[tokio::test]
async fn reader_resumes_after_last_event_id() {
    let agent = agent().await;
    let directory = TempDir::new().unwrap();
    let id = watch(&agent, directory.path(), false).await;
    for n in 0..5 {
        fs::File::create(directory.path().join(n.to_string())).unwrap();
    }
    let mut first = events(&agent, &id).await;
    let mut seen = Vec::new();
    for _ in 0..5 {
        seen.push(first.next().await.unwrap());
    }
    drop(first);
    let request = agent
        .get(&format!("/fs/watch/{id}/events"))
        .header("last-event-id", seen[2].0.to_string());
    let mut resumed = Events::open(request).await;
    assert_eq!(resumed.next().await.as_ref(), Some(&seen[3]));
    assert_eq!(resumed.next().await.as_ref(), Some(&seen[4]));
    for bad in ["x", "-1", "1.5", "99999999999999999999999"] {
        let request = agent
            .get(&format!("/fs/watch/{id}/events"))
            .header("last-event-id", bad);
        let (status, response) = agent.answer(request).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{bad}");
        assert_eq!(response["details"][0]["code"], "Last-Event-ID");
    }
    agent.stop().await;
}

#[tokio::test]
async fn invalid_watch_request_names_each_invalid_field() {
    let agent = agent().await;
    let directory = TempDir::new().unwrap();
    let (file, fifo) = (directory.path().join("file"), directory.path().join("fifo"));
    fs::write(&file, "").unwrap();
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    for (body, status, fields) in [
        (json!({}), 400, vec!["path"]),
        (
            json!({"path": 1, "recursive": 1}),
            400,
            vec!["path", "recursive"],
        ),
        (
            json!({"path": "", "recursive": "yes"}),
            400,
            vec!["path", "recursive"],
        ),
        (json!({"path": "tmp"}), 400, vec!["path"]),
        (json!({"path": "/tmp\0"}), 400, vec!["path"]),
        (
            json!({"path": format!("/{}", "x".repeat(5000))}),
            400,
            vec!["path"],
        ),
        (json!({"path": file}), 400, vec!["path"]),
        (json!({"path": fifo}), 400, vec!["path"]),
        (json!({"path": "/proc/self/status"}), 400, vec!["path"]),
        (json!({"path": directory.path().join("none")}), 404, vec![]),
        (json!({"path": file.join("below")}), 400, vec!["path"]),
    ] {
        let (actual, response) = agent.answer(agent.post("/fs/watch").json(&body)).await;
        assert_eq!(actual.as_u16(), status, "{body}: {response}");
        let details = response["details"].as_array().expect("details");
        let mut codes: Vec<_> = details
            .iter()
            .map(|d| d["code"].as_str().unwrap())
            .collect();
        codes.sort_unstable();
        assert_eq!(codes, fields, "{response}");
    }
    for id in ["watch_01arz3ndektsv4rrffq69g5fav", "x", "watch_"] {
        let request = agent.get(&format!("/fs/watch/{id}/events"));
        assert_eq!(agent.answer(request).await.0, StatusCode::NOT_FOUND);
        assert_eq!(stop_watch(&agent, id).await, StatusCode::NOT_FOUND);
    }
    agent.stop().await;
}

#[tokio::test]
async fn watches_are_limited_and_refused_ones_do_not_count() {
    const LIMIT: usize = 64;
    let agent = agent().await;
    let directory = TempDir::new().unwrap();
    let mut ids = Vec::new();
    for _ in 0..LIMIT {
        ids.push(watch(&agent, directory.path(), false).await);
        let refused = json!({"path": "/etc/passwd"});
        let (status, _) = agent.answer(agent.post("/fs/watch").json(&refused)).await;
        assert!(status.is_client_error());
    }
    let body = json!({"path": directory.path()});
    let response = in_time("a response", agent.post("/fs/watch").json(&body).send())
        .await
        .unwrap();
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(response.headers().contains_key("retry-after"));
    assert_eq!(stop_watch(&agent, &ids[7]).await, StatusCode::NO_CONTENT);
    watch(&agent, directory.path(), false).await;
    agent.stop().await;
}

#[tokio::test]
async fn inotify_limit_is_429_and_refused_watch_releases_its_directories() {
    const LIMIT: u32 = 24;
    let agent = Start::without_browser()
        .with(["--warm-workers", "0"])
        .with_limit_of_inotify_watches(LIMIT)
        .listening()
        .await;
    let directory = TempDir::new().unwrap();
    let below = |n: u32| directory.path().join(n.to_string());
    for n in 0..LIMIT {
        fs::create_dir(below(n)).unwrap();
    }
    let body = json!({"path": directory.path(), "recursive": true});
    for _ in 0..3 {
        let response = in_time("a response", agent.post("/fs/watch").json(&body).send())
            .await
            .unwrap();
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        assert!(response.headers().contains_key("retry-after"));
        let response: Value = response.json().await.unwrap();
        assert_eq!(response["code"], "limit_exceeded", "{response}");
        let message = response["message"].as_str().unwrap();
        assert!(message.contains("inotify"), "{response}");
    }
    // The directories of the refused watches were released.
    let mut watches = Vec::new();
    for n in 0..LIMIT / 2 {
        watches.push(watch(&agent, &below(n), false).await);
    }
    for id in &watches {
        assert_eq!(stop_watch(&agent, id).await, StatusCode::NO_CONTENT);
    }
    // Directories created later that exceed the limit cause an overflow event.
    let grown = TempDir::new().unwrap();
    let id = watch(&agent, grown.path(), true).await;
    let mut events = events(&agent, &id).await;
    for n in 0..LIMIT {
        fs::create_dir(grown.path().join(n.to_string())).unwrap();
    }
    while events.take(1).await[0]["type"] != "OVERFLOW" {}
    agent.stop().await;
}

#[tokio::test]
async fn events_have_the_path_the_watch_was_started_with() {
    let agent = agent().await;
    let directory = TempDir::new().unwrap();
    let (real, link) = (directory.path().join("real"), directory.path().join("link"));
    fs::create_dir(&real).unwrap();
    std::os::unix::fs::symlink("real", &link).unwrap();
    let mut watches = Vec::new();
    for path in [&real, &link, &real] {
        let id = watch(&agent, path, true).await;
        let reader = events(&agent, &id).await;
        watches.push((path, id, reader));
    }
    fs::File::create(real.join("one")).unwrap();
    for (path, _, reader) in &mut watches {
        let expected = event("CREATE", &path.join("one"), false);
        assert_eq!(reader.take(1).await, [expected]);
    }
    // Ending one watch does not affect the others.
    let (_, id, _) = watches.pop().unwrap();
    assert_eq!(stop_watch(&agent, &id).await, StatusCode::NO_CONTENT);
    fs::rename(real.join("one"), real.join("two")).unwrap();
    for (path, _, reader) in &mut watches {
        let expected = moved(&path.join("one"), &path.join("two"), false);
        assert_eq!(reader.take(2).await, expected);
    }
    agent.stop().await;
}

#[tokio::test]
async fn watch_without_reader_ends() {
    let agent = Start::without_browser()
        .with(["--watch-idle-seconds", "1"])
        .listening()
        .await;
    let directory = TempDir::new().unwrap();
    let (read, unread) = (
        watch(&agent, directory.path(), false).await,
        watch(&agent, directory.path(), false).await,
    );
    let mut reader = events(&agent, &read).await;
    until("the end of the unread watch", async || {
        (metric(&agent, "berth_fs_watches").await == 1.0).then_some(())
    })
    .await;
    assert_eq!(stop_watch(&agent, &unread).await, StatusCode::NOT_FOUND);
    fs::File::create(directory.path().join("file")).unwrap();
    assert_eq!(reader.take(1).await[0]["name"], "file");
    agent.stop().await;
}

#[tokio::test]
async fn watches_of_same_directory_each_report_every_change_once() {
    let agent = agent().await;
    let directory = TempDir::new().unwrap();
    let below = directory.path().join("below");
    fs::create_dir(&below).unwrap();
    let mut readers = Vec::new();
    let mut ids = Vec::new();
    for (path, recursive) in [
        (directory.path(), false),
        (directory.path(), true),
        (&below, true),
        (directory.path(), true),
    ] {
        ids.push(watch(&agent, path, recursive).await);
        readers.push(events(&agent, ids.last().unwrap()).await);
    }
    // The others still need the directories of the ended watch.
    assert_eq!(
        stop_watch(&agent, &ids.pop().unwrap()).await,
        StatusCode::NO_CONTENT
    );
    let mut ended = readers.pop().unwrap();
    assert_eq!(ended.next().await, None);

    let file = below.join("file");
    fs::File::create(&file).unwrap();
    fs::remove_file(&file).unwrap();
    fs::remove_dir(&below).unwrap();
    fs::File::create(directory.path().join("last")).unwrap();
    let file_events = [event("CREATE", &file, false), event("DELETE", &file, false)];
    let directory_events = [
        event("DELETE", &below, true),
        event("CREATE", &directory.path().join("last"), false),
    ];
    assert_eq!(readers[0].take(2).await, directory_events);
    assert_eq!(readers[1].take(2).await, file_events);
    assert_eq!(readers[1].take(2).await, directory_events);
    assert_eq!(readers[2].take(2).await, file_events);
    assert_eq!(readers[2].take(1).await, directory_events[..1]);
    assert_eq!(readers[2].next().await, None);
    agent.stop().await;
}

#[tokio::test]
async fn removal_or_move_of_root_ends_stream() {
    let agent = agent().await;
    let directory = TempDir::new().unwrap();
    for recursive in [false, true] {
        let (root, away) = (directory.path().join("root"), directory.path().join("away"));
        fs::create_dir(&root).unwrap();
        let id = watch(&agent, &root, recursive).await;
        let mut reader = events(&agent, &id).await;
        fs::remove_dir(&root).unwrap();
        assert_eq!(reader.take(1).await, [event("DELETE", &root, true)]);
        assert_eq!(reader.next().await, None);
        // A later reader gets the same events.
        let mut late = events(&agent, &id).await;
        assert_eq!(late.take(1).await, [event("DELETE", &root, true)]);
        assert_eq!(late.next().await, None);

        fs::create_dir(&root).unwrap();
        let id = watch(&agent, &root, recursive).await;
        let mut reader = events(&agent, &id).await;
        fs::rename(&root, &away).unwrap();
        assert_eq!(reader.take(1).await, [event("RENAME", &root, true)]);
        assert_eq!(reader.next().await, None);
        fs::remove_dir(&away).unwrap();
    }
    agent.stop().await;
}

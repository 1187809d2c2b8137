use std::{
    collections::HashSet,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use nix::{
    sys::{
        signal::{Signal, kill},
        stat::makedev,
    },
    unistd::Pid,
};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tempfile::{NamedTempFile, TempDir};

use crate::support::{
    agent::{Start, TestAgent},
    events::Events,
    scripts::metric,
    wait::{in_time, until},
};

async fn agent() -> TestAgent {
    Start::without_browser().listening().await
}

async fn watch(agent: &TestAgent, path: &Path, recursive: bool) -> String {
    let body = json!({"path": path, "recursive": recursive});
    let (status, answer) = agent.answer(agent.post("/fs/watch").json(&body)).await;
    assert_eq!(status, StatusCode::CREATED, "{answer}");
    answer["watch_id"].as_str().expect("an id").to_owned()
}

async fn events(agent: &TestAgent, id: &str) -> Events {
    Events::open(agent.get(&format!("/fs/watch/{id}/events"))).await
}

async fn end(agent: &TestAgent, id: &str) -> StatusCode {
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
async fn each_change_is_told_with_what_it_is_about() {
    let agent = agent().await;
    let (folder, elsewhere) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("old")).unwrap();
    let id = watch(&agent, folder.path(), false).await;
    let mut events = events(&agent, &id).await;

    fs::write(at("file"), "x").unwrap();
    fs::create_dir(at("dir")).unwrap();
    // What is further down is not watched.
    fs::write(at("dir").join("below"), "x").unwrap();
    fs::rename(at("file"), at("named")).unwrap();
    fs::rename(at("dir"), at("folder")).unwrap();
    fs::rename(at("folder"), elsewhere.path().join("folder")).unwrap();
    fs::rename(at("named"), elsewhere.path().join("named")).unwrap();
    fs::rename(elsewhere.path().join("folder"), at("back")).unwrap();

    let mut wanted = vec![
        event("CREATE", &at("file"), false),
        event("WRITE", &at("file"), false),
        event("CREATE", &at("dir"), true),
    ];
    wanted.extend(moved(&at("file"), &at("named"), false));
    wanted.extend(moved(&at("dir"), &at("folder"), true));
    wanted.extend([
        event("RENAME", &at("folder"), true),
        event("RENAME", &at("named"), false),
        event("CREATE", &at("back"), true),
    ]);
    assert_eq!(events.take(wanted.len()).await, wanted);

    fs::remove_dir_all(at("back")).unwrap();
    fs::remove_dir(at("old")).unwrap();
    fs::write(at("ünïcode 😀"), "").unwrap();
    let wanted = [
        event("DELETE", &at("back"), true),
        event("DELETE", &at("old"), true),
        event("CREATE", &at("ünïcode 😀"), false),
    ];
    assert_eq!(events.take(wanted.len()).await, wanted);
    assert_eq!(end(&agent, &id).await, StatusCode::NO_CONTENT);
    assert_eq!(events.next().await, None);
    assert_eq!(end(&agent, &id).await, StatusCode::NOT_FOUND);
    agent.stop().await;
}

#[tokio::test]
async fn a_new_directory_is_told_with_all_that_was_in_it_before_its_watch() {
    const ROUNDS: usize = 100;
    let agent = agent().await;
    let folder = TempDir::new().unwrap();
    let id = watch(&agent, folder.path(), true).await;
    let mut events = events(&agent, &id).await;
    let mut wanted = HashSet::new();
    for round in 0..ROUNDS {
        let mut path = folder.path().join(round.to_string());
        for name in ["a", "b", "c"] {
            wanted.insert(path.clone());
            path = path.join(name);
        }
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "").unwrap();
        wanted.insert(path);
    }
    let mut told = Vec::new();
    for event in events.take(wanted.len()).await {
        assert_eq!(event["type"], "CREATE", "{event}");
        told.push(event["path"].as_str().unwrap().into());
    }
    assert_eq!(told.into_iter().collect::<HashSet<_>>(), wanted);

    // And it goes with all that is in it, each told once.
    fs::remove_dir_all(folder.path().join("1")).unwrap();
    let gone = ["a/b/c", "a/b", "a", ""].map(|name| folder.path().join("1").join(name));
    for event in events.take(gone.len()).await {
        assert_eq!(event["type"], "DELETE", "{event}");
        assert_eq!(event["is_dir"], event["name"] != "c", "{event}");
    }

    // And it is watched from then on, under its new name as well.
    let (old, new) = (folder.path().join("0"), folder.path().join("moved"));
    fs::rename(&old, &new).unwrap();
    assert_eq!(events.take(2).await, moved(&old, &new, true));
    let below = new.join("a/b/below");
    fs::write(&below, "").unwrap();
    assert_eq!(events.take(1).await, [event("CREATE", &below, false)]);
    agent.stop().await;
}

#[tokio::test]
async fn a_directory_that_takes_the_place_of_another_is_told_with_what_is_in_it() {
    let agent = agent().await;
    let (folder, elsewhere) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let at = |name: &str| folder.path().join(name);
    let id = watch(&agent, folder.path(), true).await;
    let mut events = events(&agent, &id).await;
    let names = ["place", "place/below", "place/below/deep", "place/file"];
    let make = |root: &Path| {
        fs::create_dir_all(root.join("place/below/deep")).unwrap();
        fs::File::create(root.join("place/file")).unwrap();
    };
    let wanted: HashSet<_> = names.map(|name| (at(name), name != "place/file")).into();
    for away in [at("aside"), elsewhere.path().join("away")] {
        // What was in it has no events of its own.
        make(elsewhere.path());
        fs::rename(elsewhere.path().join("place"), at("place")).unwrap();
        assert_eq!(created(&mut events, names.len()).await, wanted);
        fs::rename(at("place"), &away).unwrap();
        let within = away.starts_with(folder.path());
        if within {
            assert_eq!(events.take(2).await, moved(&at("place"), &away, true));
        } else {
            assert_eq!(events.take(1).await, [event("RENAME", &at("place"), true)]);
        }
        make(folder.path());
        assert_eq!(created(&mut events, names.len()).await, wanted);
        let last = at("place/below/deep/last");
        fs::File::create(&last).unwrap();
        assert_eq!(events.take(1).await, [event("CREATE", &last, false)]);
        fs::remove_dir_all(at("place")).unwrap();
        for event in events.take(names.len() + 1).await {
            assert_eq!(event["type"], "DELETE", "{event}");
        }
    }
    agent.stop().await;
}

/// The next events, which are all to be `CREATE`: of which path, and whether of a directory.
async fn created(events: &mut Events, count: usize) -> HashSet<(PathBuf, bool)> {
    let told = events.take(count).await;
    told.into_iter()
        .map(|event| {
            assert_eq!(event["type"], "CREATE", "{event}");
            let path = event["path"].as_str().unwrap().into();
            (path, event["is_dir"].as_bool().unwrap())
        })
        .collect()
}

/// What one reader of a flood has heard.
#[derive(Default)]
struct Heard {
    /// As text: a path is compared name by name, and these are many.
    created: HashSet<String>,
    twice: usize,
    /// As those overflows have it that have a number.
    missed: usize,
    /// The others: the system has dropped events.
    unnumbered: usize,
}

impl Heard {
    /// Reads up to the first file it meets that is called `mark` and a number.
    async fn up_to_a_mark(mut events: Events) -> (Self, usize) {
        let mut heard = Heard::default();
        loop {
            let (_, event) = events.next().await.expect("more events");
            let name = event["name"].as_str().unwrap_or_default();
            match (event["type"].as_str().unwrap(), event["missed"].as_u64()) {
                ("OVERFLOW", Some(missed)) => heard.missed += usize::try_from(missed).unwrap(),
                ("OVERFLOW", None) => heard.unnumbered += 1,
                ("CREATE", None) => match name.strip_prefix("mark") {
                    Some(number) => return (heard, number.parse().unwrap()),
                    None => {
                        let path = event["path"].as_str().unwrap().to_owned();
                        heard.twice += usize::from(!heard.created.insert(path));
                    }
                },
                other => panic!("{other:?}: {event}"),
            }
        }
    }
}

#[tokio::test]
async fn a_flood_is_told_to_all_who_read_meanwhile() {
    flood(25, true).await;
}

#[tokio::test]
async fn who_reads_a_flood_afterwards_is_told_how_much_was_dropped() {
    flood(250, false).await;
}

/// So many files in each of many new directories, as fast as they can be made; all is accounted for.
async fn flood(files: usize, read_meanwhile: bool) {
    const DIRECTORIES: usize = 200;
    let agent = agent().await;
    let folder = TempDir::new().unwrap();
    let id = watch(&agent, folder.path(), true).await;
    let readers = [events(&agent, &id).await, events(&agent, &id).await];
    let (begin, begun) = tokio::sync::watch::channel(read_meanwhile);
    let readers = readers.map(|events| {
        let mut begun = begun.clone();
        tokio::spawn(async move {
            begun.wait_for(|begun| *begun).await.unwrap();
            Heard::up_to_a_mark(events).await
        })
    });
    let path = folder.path().to_str().unwrap().to_owned();
    let flood = tokio::task::spawn_blocking(move || {
        let mut made = HashSet::new();
        // One file under many names: they are made and deleted sooner than as many files.
        let file = NamedTempFile::new().unwrap();
        for directory in 0..DIRECTORIES {
            // The longest names there may be: fewer events are more than is kept.
            let directory = format!("{path}/{directory:0>255}");
            fs::create_dir(&directory).unwrap();
            for name in 0..files {
                let name = format!("{directory}/{name:0>255}");
                fs::hard_link(&file, &name).unwrap();
                made.insert(name);
            }
            made.insert(directory);
        }
        made
    });
    let made = flood.await.unwrap();
    begin.send_replace(true);
    // One may be dropped. They lie beside the directories: within a new one, they could be found before what was there earlier.
    let mut marks = 0;
    until("a mark for each reader", async || {
        fs::File::create(folder.path().join(format!("mark{marks}"))).unwrap();
        marks += 1;
        readers
            .iter()
            .all(tokio::task::JoinHandle::is_finished)
            .then_some(())
    })
    .await;
    for reader in readers {
        let (heard, marks_before) = reader.await.unwrap();
        assert!(heard.created.is_subset(&made));
        assert!(read_meanwhile || heard.missed + heard.unnumbered > 0);
        if heard.unnumbered == 0 {
            assert_eq!(heard.twice, 0);
            let accounted_for = heard.created.len() + heard.missed;
            assert_eq!(accounted_for, made.len() + marks_before);
        }
    }
    agent.stop().await;
}

#[tokio::test]
async fn what_comes_after_an_overflow_of_the_system_is_told() {
    let most = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let most: usize = most.trim().parse().unwrap();
    let agent = agent().await;
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name);
    for name in ["flooded", "old", "gone"] {
        fs::create_dir(at(name)).unwrap();
    }
    let id = watch(&agent, folder.path(), true).await;
    let mut reader = events(&agent, &id).await;
    let gone = watch(&agent, &at("gone"), true).await;
    let mut other = events(&agent, &gone).await;
    // While it stands still, what happens waits with the system, and is dropped.
    let pid = Pid::from_raw(agent.pid().try_into().unwrap());
    kill(pid, Signal::SIGSTOP).unwrap();
    until("it stands still", async || {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        status.contains("State:\tT").then_some(())
    })
    .await;
    for number in 0..most + 100 {
        fs::File::create(at("flooded").join(number.to_string())).unwrap();
    }
    fs::create_dir_all(at("made/deep")).unwrap();
    fs::rename(at("old"), at("new")).unwrap();
    fs::remove_dir(at("gone")).unwrap();
    kill(pid, Signal::SIGCONT).unwrap();
    while reader.take(1).await[0]["type"] != "OVERFLOW" {}
    let files = [at("made/deep/file"), at("new/file"), at("flooded/file")];
    for file in &files {
        fs::File::create(file).unwrap();
    }
    let wanted = files.map(|file| event("CREATE", &file, false));
    assert_eq!(reader.take(wanted.len()).await, wanted);
    // A directory that went unheard ends its stream all the same.
    assert_eq!(other.take(1).await, [json!({"type": "OVERFLOW"})]);
    assert_eq!(other.next().await, None);
    agent.stop().await;
}

#[tokio::test]
async fn directories_below_are_limited_over_all_watches() {
    const WATCHES: usize = 63;
    /// So many for each that there is no room for another watch of as many.
    const BELOW: usize = (1 << 16) / WATCHES;
    let agent = agent().await;
    let folder = TempDir::new().unwrap();
    for number in 0..BELOW {
        fs::create_dir(folder.path().join(number.to_string())).unwrap();
    }
    let mut ids = Vec::new();
    for _ in 0..WATCHES {
        ids.push(watch(&agent, folder.path(), true).await);
    }
    let body = json!({"path": folder.path(), "recursive": true});
    let response = in_time("an answer", agent.post("/fs/watch").json(&body).send())
        .await
        .unwrap();
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(response.headers().contains_key("retry-after"));
    let answer: Value = response.json().await.unwrap();
    assert_eq!(answer["code"], "limit_exceeded", "{answer}");
    // A directory alone takes nothing of it.
    let alone = watch(&agent, folder.path(), false).await;
    assert_eq!(end(&agent, &alone).await, StatusCode::NO_CONTENT);

    // Each of these is one more to every watch.
    let mut reader = events(&agent, &ids[0]).await;
    for name in ["one", "two"] {
        fs::create_dir(folder.path().join(name)).unwrap();
    }
    while reader.take(1).await[0]["name"] != "two" {}
    assert_eq!(reader.take(1).await, [json!({"type": "OVERFLOW"})]);

    // The end of some makes room, for the new ones as well.
    for id in &ids[1..3] {
        assert_eq!(end(&agent, id).await, StatusCode::NO_CONTENT);
    }
    until("room for another", async || {
        let (status, _) = agent.answer(agent.post("/fs/watch").json(&body)).await;
        (status == StatusCode::CREATED).then_some(())
    })
    .await;
    agent.stop().await;
}

#[tokio::test]
async fn a_file_system_that_the_kernel_makes_up_is_not_watched_below_another() {
    let agent = agent().await;
    watch(&agent, Path::new("/dev"), true).await;
    let watched = watched_file_systems(agent.pid());
    let device = |path: &str| fs::metadata(path).unwrap().dev();
    assert!(watched.contains(&device("/dev")));
    assert!(!watched.contains(&device("/dev/pts")));
    agent.stop().await;
    // Unless it is asked for.
    let agent = self::agent().await;
    watch(&agent, Path::new("/dev/pts"), true).await;
    assert!(watched_file_systems(agent.pid()).contains(&device("/dev/pts")));
    agent.stop().await;
}

/// The devices of the directories that a process watches, as its descriptors have them.
fn watched_file_systems(pid: u32) -> HashSet<u64> {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fdinfo")).unwrap();
    let told: String = descriptors
        .filter_map(|entry| fs::read_to_string(entry.unwrap().path()).ok())
        .collect();
    told.lines()
        .filter_map(|line| line.strip_prefix("inotify ")?.split(" sdev:").nth(1))
        .map(|rest| {
            let device = rest.split(' ').next().unwrap();
            let device = u64::from_str_radix(device, 16).unwrap();
            makedev(device >> 20, device & 0xf_ffff)
        })
        .collect()
}

#[tokio::test]
async fn a_reader_goes_on_where_it_stopped() {
    let agent = agent().await;
    let folder = TempDir::new().unwrap();
    let id = watch(&agent, folder.path(), false).await;
    for n in 0..5 {
        fs::File::create(folder.path().join(n.to_string())).unwrap();
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
        let (status, answer) = agent.answer(request).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{bad}");
        assert_eq!(answer["details"][0]["code"], "Last-Event-ID");
    }
    agent.stop().await;
}

#[tokio::test]
async fn bad_requests_are_refused_field_by_field() {
    let agent = agent().await;
    let folder = TempDir::new().unwrap();
    let (file, fifo) = (folder.path().join("file"), folder.path().join("fifo"));
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
        (json!({"path": folder.path().join("none")}), 404, vec![]),
        (json!({"path": file.join("below")}), 400, vec!["path"]),
    ] {
        let (found, answer) = agent.answer(agent.post("/fs/watch").json(&body)).await;
        assert_eq!(found.as_u16(), status, "{body}: {answer}");
        let details = answer["details"].as_array().expect("details");
        let mut codes: Vec<_> = details
            .iter()
            .map(|d| d["code"].as_str().unwrap())
            .collect();
        codes.sort_unstable();
        assert_eq!(codes, fields, "{answer}");
    }
    for id in ["watch_01arz3ndektsv4rrffq69g5fav", "x", "watch_"] {
        let request = agent.get(&format!("/fs/watch/{id}/events"));
        assert_eq!(agent.answer(request).await.0, StatusCode::NOT_FOUND);
        assert_eq!(end(&agent, id).await, StatusCode::NOT_FOUND);
    }
    agent.stop().await;
}

#[tokio::test]
async fn watches_are_counted_and_a_refused_one_takes_no_place() {
    const MOST: usize = 64;
    let agent = agent().await;
    let folder = TempDir::new().unwrap();
    let mut ids = Vec::new();
    for _ in 0..MOST {
        ids.push(watch(&agent, folder.path(), false).await);
        let refused = json!({"path": "/etc/passwd"});
        let (status, _) = agent.answer(agent.post("/fs/watch").json(&refused)).await;
        assert!(status.is_client_error());
    }
    let body = json!({"path": folder.path()});
    let response = in_time("an answer", agent.post("/fs/watch").json(&body).send())
        .await
        .unwrap();
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(response.headers().contains_key("retry-after"));
    assert_eq!(end(&agent, &ids[7]).await, StatusCode::NO_CONTENT);
    watch(&agent, folder.path(), false).await;
    agent.stop().await;
}

#[tokio::test]
async fn the_systems_limit_is_told_and_what_was_taken_is_given_back() {
    const LIMIT: u32 = 24;
    let agent = Start::without_browser()
        .with(["--warm-workers", "0"])
        .with_limit_of_inotify_watches(LIMIT)
        .listening()
        .await;
    let folder = TempDir::new().unwrap();
    let below = |n: u32| folder.path().join(n.to_string());
    for n in 0..LIMIT {
        fs::create_dir(below(n)).unwrap();
    }
    let body = json!({"path": folder.path(), "recursive": true});
    for _ in 0..3 {
        let response = in_time("an answer", agent.post("/fs/watch").json(&body).send())
            .await
            .unwrap();
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        assert!(response.headers().contains_key("retry-after"));
        let answer: Value = response.json().await.unwrap();
        assert_eq!(answer["code"], "limit_exceeded", "{answer}");
        let message = answer["message"].as_str().unwrap();
        assert!(message.contains("inotify"), "{answer}");
    }
    // What a refused one had taken is free again.
    let mut watches = Vec::new();
    for n in 0..LIMIT / 2 {
        watches.push(watch(&agent, &below(n), false).await);
    }
    for id in &watches {
        assert_eq!(end(&agent, id).await, StatusCode::NO_CONTENT);
    }
    // Where directories that are made later reach the limit, it is told that not all is seen.
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
async fn a_directory_has_the_name_by_which_it_is_watched() {
    let agent = agent().await;
    let folder = TempDir::new().unwrap();
    let (real, link) = (folder.path().join("real"), folder.path().join("link"));
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
        let wanted = event("CREATE", &path.join("one"), false);
        assert_eq!(reader.take(1).await, [wanted]);
    }
    // The end of one is not the others'.
    let (_, id, _) = watches.pop().unwrap();
    assert_eq!(end(&agent, &id).await, StatusCode::NO_CONTENT);
    fs::rename(real.join("one"), real.join("two")).unwrap();
    for (path, _, reader) in &mut watches {
        let wanted = moved(&path.join("one"), &path.join("two"), false);
        assert_eq!(reader.take(2).await, wanted);
    }
    agent.stop().await;
}

#[tokio::test]
async fn a_watch_that_nobody_reads_ends() {
    let agent = Start::without_browser()
        .with(["--watch-idle-seconds", "1"])
        .listening()
        .await;
    let folder = TempDir::new().unwrap();
    let (read, unread) = (
        watch(&agent, folder.path(), false).await,
        watch(&agent, folder.path(), false).await,
    );
    let mut reader = events(&agent, &read).await;
    until("the end of the one", async || {
        (metric(&agent, "berth_fs_watches").await == 1.0).then_some(())
    })
    .await;
    assert_eq!(end(&agent, &unread).await, StatusCode::NOT_FOUND);
    fs::File::create(folder.path().join("file")).unwrap();
    assert_eq!(reader.take(1).await[0]["name"], "file");
    agent.stop().await;
}

#[tokio::test]
async fn watches_of_one_directory_each_tell_everything_once() {
    let agent = agent().await;
    let folder = TempDir::new().unwrap();
    let below = folder.path().join("below");
    fs::create_dir(&below).unwrap();
    let mut readers = Vec::new();
    let mut ids = Vec::new();
    for (path, recursive) in [
        (folder.path(), false),
        (folder.path(), true),
        (&below, true),
        (folder.path(), true),
    ] {
        ids.push(watch(&agent, path, recursive).await);
        readers.push(events(&agent, ids.last().unwrap()).await);
    }
    // What one of them needed, the others still do.
    assert_eq!(
        end(&agent, &ids.pop().unwrap()).await,
        StatusCode::NO_CONTENT
    );
    let mut ended = readers.pop().unwrap();
    assert_eq!(ended.next().await, None);

    let file = below.join("file");
    fs::File::create(&file).unwrap();
    fs::remove_file(&file).unwrap();
    fs::remove_dir(&below).unwrap();
    fs::File::create(folder.path().join("last")).unwrap();
    let of_the_file = [event("CREATE", &file, false), event("DELETE", &file, false)];
    let of_the_folder = [
        event("DELETE", &below, true),
        event("CREATE", &folder.path().join("last"), false),
    ];
    assert_eq!(readers[0].take(2).await, of_the_folder);
    assert_eq!(readers[1].take(2).await, of_the_file);
    assert_eq!(readers[1].take(2).await, of_the_folder);
    assert_eq!(readers[2].take(2).await, of_the_file);
    assert_eq!(readers[2].take(1).await, of_the_folder[..1]);
    assert_eq!(readers[2].next().await, None);
    agent.stop().await;
}

#[tokio::test]
async fn a_directory_that_goes_ends_its_stream() {
    let agent = agent().await;
    let folder = TempDir::new().unwrap();
    for recursive in [false, true] {
        let (root, away) = (folder.path().join("root"), folder.path().join("away"));
        fs::create_dir(&root).unwrap();
        let id = watch(&agent, &root, recursive).await;
        let mut reader = events(&agent, &id).await;
        fs::remove_dir(&root).unwrap();
        assert_eq!(reader.take(1).await, [event("DELETE", &root, true)]);
        assert_eq!(reader.next().await, None);
        // Who comes late finds the same.
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

//! Client processes with a user and directories of their own (`--process-isolation`).

use std::{
    fs,
    os::{
        fd::AsRawFd,
        unix::fs::{MetadataExt, symlink},
    },
    path::Path,
};

use nix::unistd::Uid;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{
    agent::{Start, TestAgent},
    events::Events,
    page::Page,
    processes,
    spawned::{exec, exec_shell, executed, shell, spawn},
    wait::{in_time, until},
    websocket::Client,
};

/// The directories that all users can write to, and that a session has alone.
const PRIVATE: [&str; 4] = ["/tmp", "/var/tmp", "/dev/shm", "~"];

/// Returns an agent with isolation and without a browser. Only root can have one.
async fn agent() -> Option<TestAgent> {
    if !Uid::effective().is_root() {
        return None;
    }
    Some(Start::without_browser().isolated().listening().await)
}

async fn end(agent: &TestAgent, generation: u64) -> Value {
    let request = json!({ "generation": generation });
    agent.ok(agent.post("/session/end").json(&request)).await
}

async fn assert_clean_end(agent: &TestAgent, generation: u64) {
    let receipt = end(agent, generation).await;
    assert_eq!(receipt["remaining"], json!([]), "{receipt}");
    assert_eq!(receipt["tainted_by"], json!([]), "{receipt}");
    assert_eq!(receipt["clean"], true, "{receipt}");
}

async fn tainted_by(agent: &TestAgent) -> Value {
    agent.ok(agent.get("/session")).await["tainted_by"].clone()
}

/// Returns the user of client processes.
async fn uid(agent: &TestAgent) -> u32 {
    let output = exec_shell(agent, "id -u").await.stdout;
    output.trim().parse().expect("a number")
}

async fn write(agent: &TestAgent, path: impl AsRef<Path>, text: &'static str) -> StatusCode {
    let route = format!("/fs/write_file?path={}", path.as_ref().display());
    agent.answer(agent.put(&route).body(text)).await.0
}

async fn read(agent: &TestAgent, path: &str) -> Value {
    let route = format!("/fs/read_file?path={path}");
    agent.ok(agent.get(&route)).await
}

/// Asserts that no file system is mounted below the state directory, or for it.
fn assert_no_mount(agent: &TestAgent) {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let state = agent.state_dir().display().to_string();
    assert!(!mounts.contains(&state), "{mounts}");
}

#[tokio::test]
async fn processes_share_directories_that_no_other_session_has() {
    let Some(agent) = agent().await else { return };
    let name = format!("berth-private-{}", agent.pid());
    for directory in PRIVATE {
        let written = exec_shell(&agent, &format!("echo planted > {directory}/{name}")).await;
        assert_eq!(written.exit_code, 0, "{written:?}");
        let read = exec_shell(&agent, &format!("cat {directory}/{name}")).await;
        assert_eq!(read.stdout, "planted\n");
        assert!(!Path::new(directory).join(&name).exists(), "{directory}");
    }
    assert_no_mount(&agent);
    let first = uid(&agent).await;
    assert_clean_end(&agent, 1).await;
    assert!(!agent.session_dir().exists());
    assert_no_mount(&agent);
    for directory in PRIVATE {
        let found = exec_shell(&agent, &format!("cat {directory}/{name}")).await;
        assert_eq!(found.stdout, "", "{directory}");
    }
    assert_ne!(uid(&agent).await, first);
    agent.stop().await;
}

#[tokio::test]
async fn process_has_an_unprivileged_user_with_a_name_and_a_home() {
    let Some(agent) = agent().await else { return };
    let line = "id -un; id -gn; test $HOME = $(getent passwd $USER | cut -d: -f6) && pwd; \
        test -O $HOME && grep NoNewPrivs /proc/self/status; ls /root";
    let output = exec_shell(&agent, line).await;
    let home = agent.session_dir().join("client-home");
    let expected = format!("client\nclient\n{}\nNoNewPrivs:\t1\n", home.display());
    assert_eq!(output.stdout, expected, "{output:?}");
    assert!(output.stderr.contains("/root"), "{output:?}");
    assert_eq!(tainted_by(&agent).await, json!([]));
    agent.stop().await;
}

#[tokio::test]
async fn home_below_a_directory_of_root_can_be_entered() {
    if !Uid::effective().is_root() {
        return;
    }
    let start = Start::without_browser().isolated();
    let agent = start.with_directory_below("/root").listening().await;
    let output = exec_shell(&agent, "pwd; echo planted > file; cat ~/file; ls -A /root").await;
    let home = agent.session_dir().join("client-home");
    assert_eq!(output.stdout, format!("{}\nplanted\n", home.display()));
    // The machine's own directory is still there for root.
    let body = json!({"command": "ls", "args": ["-d", agent.state_dir()], "as_root": true});
    assert_eq!(exec(&agent, body).await.1["exit_code"], 0);
    assert_no_mount(&agent);
    agent.stop().await;
}

#[tokio::test]
async fn terminal_belongs_to_the_user() {
    let Some(agent) = agent().await else { return };
    let line = "test -O $(tty) && echo own > $(tty); stty size; exit 4";
    let body = json!({
        "command": "sh", "args": ["-c", line],
        "allocate_tty": true, "rows": 30, "cols": 90,
    });
    let process = spawn(&agent, body).await;
    let output = process.output().await;
    assert_eq!(output.stdout, "own\r\n30 90\r\n", "{output:?}");
    assert_eq!(output.exit_code, 4);
    agent.stop().await;
}

#[tokio::test]
async fn processes_use_the_display_of_their_session_also_after_its_restart() {
    if !Uid::effective().is_root() {
        return;
    }
    let agent = Start::on_screen().isolated().ready().await;
    // Prints the first byte of the X server's reply to a client without a cookie: 1 for access.
    let connect = "import os, socket\n\
        server = socket.socket(socket.AF_UNIX)\n\
        server.connect('/tmp/.X11-unix/X' + os.environ['DISPLAY'][1:])\n\
        server.sendall(b'l\\0\\x0b\\0' + bytes(8))\n\
        print(server.recv(1)[0])";
    let body = json!({"command": "python3", "args": ["-c", connect]});
    let connection = async || executed(&exec(&agent, body.clone()).await.1);
    for _ in 0..2 {
        let output = connection().await;
        assert_eq!(output.stdout, "1\n", "{output:?}");
    }
    let display = agent.display_pid().await;
    processes::signal(display, nix::sys::signal::Signal::SIGKILL);
    until("another display", async || {
        let health = agent.ok(agent.get("/health")).await;
        let pid = health["display"]["pid"].as_u64();
        pid.filter(|pid| *pid != u64::from(display))
    })
    .await;
    until("access to the display", async || {
        (connection().await.stdout == "1\n").then_some(())
    })
    .await;
    assert_eq!(tainted_by(&agent).await, json!([]));
    agent.stop().await;
}

#[tokio::test]
async fn file_routes_reach_the_files_of_processes_and_the_other_way_around() {
    let Some(agent) = agent().await else { return };
    let watch = json!({"path": "/tmp"});
    let watch = agent.ok(agent.post("/fs/watch").json(&watch)).await;
    let events = format!("/fs/watch/{}/events", watch["watch_id"].as_str().unwrap());
    let mut events = Events::open(agent.get(&events)).await;

    assert_eq!(
        write(&agent, "/tmp/file", "one\n").await,
        StatusCode::CREATED
    );
    let appended = exec_shell(&agent, "echo two >> /tmp/file; ln -s /tmp/file /tmp/link").await;
    assert_eq!(appended.exit_code, 0, "{appended:?}");
    assert_eq!(read(&agent, "/tmp/link").await, "one\ntwo\n");
    let found = until("an event", async || {
        let (_, event) = events.next().await.expect("an event");
        (event["path"] == "/tmp/link").then_some(event)
    });
    assert_eq!(found.await["type"], "CREATE");

    let lines = agent.get("/logs/stream?source=path&path=/tmp/link&follow=false");
    let lines = agent.ok(lines).await;
    assert!(lines.as_str().unwrap().contains("two"), "{lines}");

    let directory = json!({"path": "/tmp/made/deep"});
    agent
        .ok(agent.put("/fs/create_directory").json(&directory))
        .await;
    let moved = json!({"src_path": "/tmp/file", "dest_path": "/dev/shm/moved"});
    agent.ok(agent.put("/fs/move").json(&moved)).await;
    let line = "touch /tmp/made/deep/new && cat /dev/shm/moved && ls -A /tmp/made";
    let output = exec_shell(&agent, line).await;
    assert_eq!(output.stdout, "one\ntwo\ndeep\n", "{output:?}");
    assert_eq!(tainted_by(&agent).await, json!([]));
    assert!(!Path::new("/tmp/made/deep/new").exists());
    agent.stop().await;
}

#[tokio::test]
async fn uploaded_trees_belong_to_the_user() {
    let Some(agent) = agent().await else { return };
    let part = |text: &'static str| reqwest::multipart::Part::text(text).file_name("name");
    let form = reqwest::multipart::Form::new()
        .text("files.0.dest_path", "/tmp/up/deep/file")
        .part("files.0.file", part("uploaded"));
    agent.ok(agent.post("/fs/upload").multipart(form)).await;
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let options = zip::write::SimpleFileOptions::default();
    zip.start_file("inner/file", options).unwrap();
    let archive = zip.finish().unwrap().into_inner();
    let form = reqwest::multipart::Form::new()
        .text("dest_path", "/tmp/zip/deep")
        .part(
            "zip_file",
            reqwest::multipart::Part::bytes(archive).file_name("zip"),
        );
    agent.ok(agent.post("/fs/upload_zip").multipart(form)).await;
    let line = "find /tmp/up /tmp/zip ! -user client; find /tmp/up /tmp/zip -type f";
    let output = exec_shell(&agent, line).await;
    let expected = "/tmp/up/deep/file\n/tmp/zip/deep/inner/file\n";
    assert_eq!(output.stdout, expected, "{output:?}");
    assert_eq!(tainted_by(&agent).await, json!([]));
    agent.stop().await;
}

#[tokio::test]
async fn processes_that_escape_end_with_the_session_and_leave_it_clean() {
    let Some(agent) = agent().await else { return };
    let user = uid(&agent).await;
    // The last one has no mark, no parent and no session of the agent.
    let line = "nohup sleep 1000 > ~/nohup.out & setsid sleep 1000 & \
        (setsid env -i sh -c 'trap \"\" TERM HUP; sleep 1000 & wait' &) ; sleep 1000";
    shell(&agent, line).await;
    until("five processes", async || {
        let running = processes::of_user(user);
        (running.len() >= 5).then_some(())
    })
    .await;
    assert_clean_end(&agent, 1).await;
    assert_eq!(processes::of_user(user), [0; 0]);
    agent.stop().await;
}

#[tokio::test]
async fn root_and_named_users_share_the_directories_and_taint() {
    let Some(agent) = agent().await else { return };
    exec_shell(&agent, "echo 'id -u' > /tmp/script").await;
    assert_eq!(tainted_by(&agent).await, json!([]));
    for (user, expected) in [
        (json!({"as_root": true}), "0\n"),
        (json!({"as_user": "nobody"}), "65534\n"),
    ] {
        let mut body = json!({"command": "sh", "args": ["/tmp/script"]});
        body.as_object_mut()
            .unwrap()
            .extend(user.as_object().unwrap().clone());
        let output = executed(&exec(&agent, body).await.1);
        assert_eq!(output.stdout, expected, "{output:?}");
        assert_eq!(tainted_by(&agent).await, json!(["program"]));
    }
    agent.stop().await;
}

#[tokio::test]
async fn changed_file_outside_the_directories_of_the_session_taints() {
    let Some(agent) = agent().await else { return };
    let outside = TempDir::new_in("/var/lib").unwrap();
    let path = outside.path().display();
    let process = shell(&agent, "cd /tmp && exec sleep 1000").await;
    let own = [
        "/tmp/file",
        "/dev/shm/file",
        &format!("/proc/{}/cwd/file", process.pid),
    ];
    let foreign = [
        format!("{path}/file"),
        "/tmp/.X11-unix/berth-test".to_owned(),
        "/tmp/link/file".to_owned(),
    ];
    let mut generation = 1;
    for file in own {
        assert_eq!(
            write(&agent, file, "text").await,
            StatusCode::CREATED,
            "{file}"
        );
    }
    let _ = fs::create_dir("/tmp/.X11-unix");
    for file in foreign {
        let line = format!("ln -sfn {path} /tmp/link");
        exec_shell(&agent, &line).await;
        let before = tainted_by(&agent).await;
        assert_eq!(before, json!([]), "{file}");
        let status = write(&agent, &file, "text").await;
        assert_eq!(status, StatusCode::CREATED, "{file}");
        assert_eq!(tainted_by(&agent).await, json!(["file"]), "{file}");
        let removed = json!({ "path": file });
        agent.ok(agent.put("/fs/delete_file").json(&removed)).await;
        end(&agent, generation).await;
        generation += 1;
    }
    agent.stop().await;
}

#[tokio::test]
async fn browser_shares_the_directories_and_processes_its_downloads() {
    if !Uid::effective().is_root() {
        return;
    }
    let agent = Start::headless().isolated().ready().await;
    let downloads = agent.session_dir().join("downloads");
    let shared = json!({"path": "/tmp/saved", "mode": "777"});
    agent
        .ok(agent.put("/fs/create_directory").json(&shared))
        .await;
    for directory in [Path::new("/tmp/saved"), &downloads] {
        let mut browser = Client::connect(&agent.ws_url("/cdp")).await;
        let behavior = json!({"behavior": "allow", "downloadPath": directory});
        let answer = browser.call("Browser.setDownloadBehavior", behavior).await;
        assert!(answer["error"].is_null(), "{answer}");
        let save = "(() => { const link = document.createElement('a'); \
            link.href = 'data:text/plain,saved'; link.download = 'saved.txt'; link.click(); \
            return true })()";
        let mut page = Page::of(&agent).await;
        page.show("<p>").await;
        page.evaluate_as_user(save).await;
        let line = format!("cat {}/*.txt", directory.display());
        until("a saved file", async || {
            (exec_shell(&agent, &line).await.stdout == "saved").then_some(())
        })
        .await;
        drop(browser);
    }
    assert!(!Path::new("/tmp/saved").exists());
    assert_clean_end(&agent, 1).await;
    agent.stop().await;
}

#[tokio::test]
async fn killed_agent_leaves_no_process_and_no_mount() {
    let Some(agent) = agent().await else { return };
    let user = uid(&agent).await;
    exec_shell(&agent, "echo kept > /tmp/kept; echo kept > ~/kept").await;
    shell(&agent, "(env -i setsid sleep 1000 &); exec sleep 1000").await;
    until("two processes", async || {
        (processes::of_user(user).len() == 2).then_some(())
    })
    .await;
    let agent = TestAgent::again(agent.kill().await);
    let agent = agent.with(["--headless", "--chromium", "/bin/true"]);
    let agent = agent.isolated().listening().await;
    assert_no_mount(&agent);
    assert_eq!(processes::of_user(user), [0; 0]);
    // The session continues with its files and its user.
    let output = exec_shell(&agent, "cat /tmp/kept ~/kept; id -u").await;
    assert_eq!(output.stdout, format!("kept\nkept\n{user}\n"), "{output:?}");
    assert_clean_end(&agent, 1).await;
    agent.stop().await;
}

#[tokio::test]
async fn link_in_place_of_a_mount_point_leads_nowhere_after_a_restart() {
    let Some(agent) = agent().await else { return };
    let outside = TempDir::new_in("/var/lib").unwrap();
    let agent = TestAgent::again(agent.kill().await);
    let private = agent.state_dir().join("sessions/1/private/tmp");
    let shown = agent.state_dir();
    let first = shown
        .strip_prefix("/tmp")
        .unwrap()
        .components()
        .next()
        .unwrap();
    fs::remove_dir_all(private.join(first)).unwrap();
    symlink(outside.path(), private.join(first)).unwrap();
    let agent = agent.with(["--headless", "--chromium", "/bin/true"]);
    let agent = agent.isolated().listening().await;
    assert_eq!(exec_shell(&agent, "cd ~ && pwd").await.exit_code, 0);
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    agent.stop().await;
}

#[tokio::test]
async fn links_of_processes_lead_to_files_that_the_session_sees() {
    let Some(agent) = agent().await else { return };
    assert_eq!(
        write(&agent, "/tmp/file", "inside").await,
        StatusCode::CREATED
    );
    let program = shell(&agent, "cd /tmp && exec sleep 1000").await;
    for name in ["cwd/file", "root/tmp/file"] {
        let path = format!("/fs/read_file?path=/proc/{}/{name}", program.pid);
        until("the directory of the program", async || {
            let (status, text) = agent.answer(agent.get(&path)).await;
            (status == StatusCode::OK && text == "inside").then_some(())
        })
        .await;
    }
    // This test has another `/tmp`, like the programs of another session.
    let outside = tempfile::NamedTempFile::new_in("/tmp").unwrap();
    let own = format!("/proc/{}", std::process::id());
    for (path, expected) in [
        (
            format!("{own}/fd/{}", outside.as_file().as_raw_fd()),
            StatusCode::FORBIDDEN,
        ),
        (
            format!("{own}/root{}", outside.path().display()),
            StatusCode::NOT_FOUND,
        ),
    ] {
        let request = agent.get(&format!("/fs/read_file?path={path}"));
        let (status, answer) = agent.answer(request).await;
        assert_eq!(status, expected, "{path}: {answer}");
    }
    assert_eq!(tainted_by(&agent).await, json!([]));
    agent.stop().await;
}

#[tokio::test]
async fn required_isolation_that_is_impossible_is_an_error() {
    if !Uid::effective().is_root() {
        return;
    }
    let start = || Start::without_browser().without_right_to_mount();
    let output = in_time("the exit", start().isolated().command().output()).await;
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("--process-isolation"), "{error}");
    let agent = start()
        .with(["--process-isolation", "auto"])
        .listening()
        .await;
    assert!(
        agent
            .log()
            .contains("client processes run as the agent's user")
    );
    assert_eq!(uid(&agent).await, 0);
    assert_eq!(tainted_by(&agent).await, json!(["program"]));
    agent.stop().await;
}

#[tokio::test]
async fn named_user_runs_the_processes_and_is_not_root() {
    if !Uid::effective().is_root() {
        return;
    }
    let rejected = Start::without_browser().with(["--process-user", "root"]);
    let output = in_time("the exit", rejected.command().output())
        .await
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        error.contains("--process-user: must not be root"),
        "{error}"
    );
    let start = Start::without_browser().isolated();
    let agent = start.with(["--process-user", "nobody"]).listening().await;
    let output = exec_shell(&agent, "id -un; touch ~/file /tmp/file; stat -c %U ~/file").await;
    assert_eq!(output.stdout, "nobody\nnobody\n", "{output:?}");
    let owner = fs::metadata(agent.session_dir().join("client-home")).unwrap();
    assert_eq!(owner.uid(), processes::NOBODY);
    // Another session may have the same user.
    assert_eq!(tainted_by(&agent).await, json!(["program"]));
    agent.stop().await;
}

#[tokio::test]
async fn files_that_the_agent_trusts_are_not_the_sessions() {
    let Some(agent) = agent().await else { return };
    let session = agent.session_dir();
    let line = format!(
        "for path in /tmp /dev/shm ~ {} {}; do \
           awk -v path=$path '$5 == path {{ options = $6 }} END {{ print options }}' \
             /proc/self/mountinfo; done",
        session.join("downloads").display(),
        session.display()
    );
    let output = exec_shell(&agent, &line).await;
    let options: Vec<&str> = output.stdout.lines().collect();
    assert_eq!(options.len(), 5, "{output:?}");
    for options in options {
        assert!(options.contains("nosuid,nodev"), "{output:?}");
    }
    assert_eq!(tainted_by(&agent).await, json!([]));
    let status = write(&agent, session.join("run/browser.new"), "{}").await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    assert_eq!(tainted_by(&agent).await, json!([]));
    let status = write(&agent, session.join("home/new"), "text").await;
    assert!(status.is_success(), "{status}");
    assert_eq!(tainted_by(&agent).await, json!(["file"]));
    agent.stop().await;
}

#[tokio::test]
async fn shared_memory_is_limited_also_where_that_of_the_machine_is_not() {
    if !Uid::effective().is_root() {
        return;
    }
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap();
    let kibibytes = meminfo.split_whitespace().nth(1).unwrap();
    let memory: u64 = kibibytes.parse::<u64>().unwrap() * 1024;
    // Without a limit, not in memory, and with a limit.
    for (mount, limit) in [
        ("-t tmpfs -o size=0 none", memory / 2),
        ("--bind /opt", memory / 2),
        ("-t tmpfs -o size=8m none", 8 << 20),
    ] {
        let start = Start::without_browser().isolated();
        let agent = start.with_shared_memory(mount).listening().await;
        let output = exec_shell(&agent, "stat -f -c '%T %b %S' /dev/shm").await;
        let found: Vec<&str> = output.stdout.split_whitespace().collect();
        let bytes = found[1].parse::<u64>().unwrap() * found[2].parse::<u64>().unwrap();
        assert_eq!(found[0], "tmpfs", "{mount}: {output:?}");
        assert!((1..=limit).contains(&bytes), "{mount}: {output:?}");
        agent.stop().await;
    }
}

//! `POST /process/spawn` of the agent.

use std::{
    collections::HashSet,
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use nix::{sys::signal::Signal, unistd::User};
use reqwest::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::support::{
    agent::{Start, TestAgent},
    processes::{Process, is_alive, marked, naming, of_user, signal, status_field},
    python::run,
    scripts::metric,
    spawned::{Output, decode, exec, exec_shell, executed, rest_of, shell, spawn},
    wait::{in_time, until},
};

async fn agent() -> TestAgent {
    Start::without_browser().listening().await
}

async fn rejected(agent: &TestAgent, body: Value) -> (u16, Vec<String>) {
    let (status, response) = agent.answer(agent.post("/process/spawn").json(&body)).await;
    let mut fields: Vec<String> = response["details"]
        .as_array()
        .unwrap_or_else(|| panic!("{status}: {response} to {body:.300}"))
        .iter()
        .map(|detail| detail["code"].as_str().unwrap().to_owned())
        .collect();
    fields.sort_unstable();
    (status.as_u16(), fields)
}

#[tokio::test]
async fn process_gets_arguments_environment_and_directory() {
    let agent = agent().await;
    let directory = TempDir::new().unwrap();
    let line = r#"pwd; echo "$0 $1 $WORD"; echo oops >&2; exit 3"#;
    let process = spawn(
        &agent,
        json!({
            "command": "sh", "args": ["-c", line, "zero", "one two"],
            "cwd": directory.path(), "env": {"WORD": "a=b c"},
        }),
    )
    .await;
    let expected = Output {
        stdout: format!("{}\nzero one two a=b c\n", directory.path().display()),
        stderr: "oops\n".into(),
        exit_code: 3,
    };
    assert_eq!(process.output().await, expected);
    assert_eq!(process.exited().await, 3);
    // A later reader gets the same output.
    assert_eq!(process.output().await, expected);
    agent.stop().await;
}

#[tokio::test]
async fn environment_is_plain_without_the_agents_variables() {
    let agent = agent().await;
    let output = exec_shell(&agent, "env; pwd").await.stdout;
    for expected in ["PATH=", "HOME=", "USER=", "LOGNAME=", "SHELL="] {
        assert!(
            output.lines().any(|line| line.starts_with(expected)),
            "{output}"
        );
    }
    for secret in ["BERTH_", "CARGO", "RUST", "TERM=", "DISPLAY="] {
        assert!(
            !output.lines().any(|line| line.starts_with(secret)),
            "{output}"
        );
    }
    let home = output.lines().find_map(|line| line.strip_prefix("HOME="));
    assert_eq!(
        output.lines().last(),
        home,
        "the program starts in its home directory"
    );
    let terminal = json!({"command": "sh", "args": ["-c", "echo $TERM"], "allocate_tty": true});
    let terminal = spawn(&agent, terminal).await;
    assert_eq!(terminal.output().await.stdout, "xterm-256color\r\n");
    agent.stop().await;
}

#[tokio::test]
async fn invalid_launch_is_rejected_with_the_field_at_fault() {
    let agent = agent().await;
    let directory = TempDir::new().unwrap();
    let at = |name: &str| directory.path().join(name);
    fs::write(at("plain"), "no program").unwrap();
    fs::write(at("orphan"), "#!/no/such/interpreter\n").unwrap();
    fs::set_permissions(at("orphan"), fs::Permissions::from_mode(0o755)).unwrap();

    for command in [
        json!("no-such-program"),
        json!(at("missing")),
        json!(at("plain")),
        json!(at("orphan")),
        json!(directory.path()),
        json!(format!("{}/x", at("plain").display())),
        json!(""),
        json!("a\0b"),
        json!("x".repeat(4096)),
        json!(1),
        Value::Null,
    ] {
        let fields = rejected(&agent, json!({"command": command})).await;
        assert_eq!(fields, (400, vec!["command".to_owned()]), "{command}");
    }
    for cwd in [
        json!(at("missing")),
        json!(at("plain")),
        json!("relative"),
        json!(""),
        json!("/a\0b"),
        json!(format!("/{}", "x".repeat(5000))),
    ] {
        let fields = rejected(&agent, json!({"command": "true", "cwd": cwd})).await;
        assert_eq!(fields, (400, vec!["cwd".to_owned()]), "{cwd}");
    }
    let long = "x".repeat(128 << 10);
    for (field, value) in [
        ("args", json!(["a\0b"])),
        ("args", json!([long])),
        ("args", json!(vec!["x"; 4097])),
        ("args", json!(vec!["x".repeat(100_000); 11])),
        ("args", json!("-c")),
        ("env", json!({"": "x"})),
        ("env", json!({"A=B": "x"})),
        ("env", json!({"A\0": "x"})),
        ("env", json!({"A": "x\0"})),
        ("env", json!({"A": long})),
        ("env", json!({"A": 1})),
        ("as_user", json!("no-such-user")),
        ("as_user", json!("4294967294")),
        ("as_user", json!("")),
        ("as_root", json!("yes")),
        ("timeout_sec", json!(0)),
        ("timeout_sec", json!(86_401)),
        ("timeout_sec", json!(1.5)),
        ("rows", json!(0)),
        ("rows", json!(65_536)),
        ("cols", json!(0)),
        ("cols", json!(65_536)),
        ("allocate_tty", json!(1)),
    ] {
        let mut body = json!({"command": "true"});
        body[field] = value;
        let (status, fields) = rejected(&agent, body).await;
        assert_eq!(status, 400, "{field}");
        assert!(
            fields.iter().all(|name| name.starts_with(field)),
            "{fields:?}"
        );
    }
    let both = json!({"command": "true", "as_root": true, "as_user": "nobody"});
    assert_eq!(
        rejected(&agent, both).await,
        (400, vec!["as_root".to_owned()])
    );
    let all = json!({"args": 1, "cwd": "x", "rows": 0});
    let (_, fields) = rejected(&agent, all).await;
    assert_eq!(fields, ["args", "command", "cwd", "rows"]);

    assert_eq!(metric(&agent, "berth_processes").await, 0.0);
    agent.stop().await;
}

#[tokio::test]
async fn environment_values_appear_in_no_response_and_no_log() {
    let agent = agent().await;
    let secret = "the-secret-value";
    let body = json!({"command": "no-such-program", "env": {"TOKEN": secret}});
    let request = agent.post("/process/spawn").json(&body);
    let (_, response) = agent.answer(request).await;
    assert!(!response.to_string().contains(secret), "{response}");
    let process = spawn(
        &agent,
        json!({"command": "sh", "args": ["-c", "echo $TOKEN"], "env": {"TOKEN": secret}}),
    )
    .await;
    assert_eq!(process.output().await.stdout.trim(), secret);
    assert!(!agent.log().contains(secret));
    agent.stop().await;
}

#[tokio::test]
async fn as_user_sets_credentials_and_home() {
    let agent = agent().await;
    let line = "id -un; id -G; echo $USER $LOGNAME; cat /proc/self/status | grep CapEff";
    let body = json!({"command": "sh", "args": ["-c", line], "as_user": "nobody"});
    let process = spawn(&agent, body).await;
    let output = process.output().await;
    let lines: Vec<&str> = output.stdout.lines().collect();
    assert_eq!(lines[0], "nobody", "{output:?}");
    assert!(!lines[1].split(' ').any(|group| group == "0"), "{output:?}");
    assert_eq!(lines[2], "nobody nobody");
    assert_eq!(lines[3], "CapEff:\t0000000000000000");

    // The user may also open the terminal by its name.
    let body = json!({
        "command": "sh", "args": ["-c", "echo written > $(tty) && id -u"],
        "as_user": "65534", "allocate_tty": true, "cwd": "/",
    });
    assert_eq!(
        spawn(&agent, body).await.output().await.stdout,
        "written\r\n65534\r\n"
    );

    let body = json!({"command": "id", "args": ["-u"], "as_root": true});
    assert_eq!(spawn(&agent, body).await.output().await.stdout, "0\n");

    let private = TempDir::new().unwrap();
    fs::set_permissions(private.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let body = json!({"command": "true", "as_user": "nobody", "cwd": private.path()});
    assert_eq!(rejected(&agent, body).await, (400, vec!["cwd".to_owned()]));
    agent.stop().await;
}

#[tokio::test]
async fn mark_contains_nothing_that_other_users_can_read() {
    let agent = agent().await;
    let line = "echo $SPAWNED_PROCESS; cat /proc/self/cgroup";
    let process = shell(&agent, line).await;
    let output = process.output().await.stdout;
    let (mark, cgroups) = output.split_once('\n').unwrap();
    let parts: Vec<&str> = mark.split('.').collect();
    assert_eq!(parts.len(), 2, "{mark}");
    for part in parts {
        assert_ne!(part, process.id);
        assert!(!cgroups.contains(part), "{mark} and {cgroups}");
    }
    agent.stop().await;
}

/// Sends a signal to all other processes of its user, again and again.
const SIGNAL_PROCESSES: &str = "import os, signal, sys\n\
    while True:\n  \
        try: os.kill(-1, signal.Signals[sys.argv[1]])\n  \
        except ProcessLookupError: pass";
/// The user that stops its processes. No other test runs a program as this user.
const STOPPING_USER: &str = "games";

/// Starts a process of a user that signals all others. Returns the user as well.
fn signal_processes(user: &str, signal: Signal) -> (User, Child) {
    let user = User::from_name(user).unwrap().expect("a system user");
    let signalling = Command::new("setpriv")
        .arg(format!("--reuid={}", user.uid))
        .args(["--clear-groups", "/usr/bin/python3", "-c", SIGNAL_PROCESSES])
        .arg(signal.as_str())
        .kill_on_drop(true)
        .spawn();
    (user, signalling.unwrap())
}

/// Returns whether a process is stopped and has the agent's program, as before its exec.
fn is_stopped_before_exec(pid: u32) -> bool {
    // In this order: the program of a stopped process does not change.
    if !status_field(pid, "State").starts_with('T') {
        return false;
    }
    let program = fs::read_link(format!("/proc/{pid}/exe"));
    program.is_ok_and(|path| path == Path::new(env!("CARGO_BIN_EXE_berth")))
}

#[tokio::test]
async fn user_that_stops_its_starting_program_delays_no_other() {
    let agent = agent().await;
    let (user, mut stopping) = signal_processes(STOPPING_USER, Signal::SIGSTOP);
    let body = json!({"command": "true", "as_user": STOPPING_USER, "timeout_sec": 1});
    let (stopped, request) = loop {
        let request = agent.post("/process/exec").json(&body);
        let request = tokio::spawn(request.send());
        let stopped = until("a stopped program or a response", async || {
            let mut pids = of_user(user.uid.as_raw()).into_iter();
            let stopped = pids.find(|pid| is_stopped_before_exec(*pid));
            (stopped.is_some() || request.is_finished()).then_some(stopped)
        })
        .await;
        if let Some(stopped) = stopped {
            break (stopped, request);
        }
    };
    let descriptors = fs::read_dir(format!("/proc/{stopped}/fd")).unwrap();
    let targets: Vec<PathBuf> = descriptors
        .map(|entry| fs::read_link(entry.unwrap().path()).unwrap())
        .collect();
    let is_own = |path: &PathBuf| {
        path == Path::new("/dev/null") || path.to_string_lossy().starts_with("pipe:")
    };
    assert!(targets.iter().all(is_own), "{targets:?}");
    // The memory of the agent, which it uses, is not accessible for its user.
    stopping.kill().await.unwrap();
    let read_own = "sleep 60 & cat /proc/$!/environ > /dev/null || exit 9; kill $!";
    let script = format!("{read_own}; cat /proc/{stopped}/environ");
    let mut reading = Command::new("setpriv");
    reading.args([
        format!("--reuid={}", user.uid),
        format!("--regid={}", user.gid),
    ]);
    reading.args(["--clear-groups", "sh", "-c", &script]);
    let read = run(&mut reading).await;
    assert!(read.stdout.is_empty());
    assert_eq!(read.status.code(), Some(1), "{read:?}");
    let message = String::from_utf8(read.stderr).unwrap();
    let is_over = !is_alive(stopped);
    assert!(
        message.contains("Permission denied") || is_over,
        "{message}"
    );

    let output = in_time("another program", exec_shell(&agent, "echo up")).await;
    assert_eq!(output.stdout, "up\n");
    let response = in_time("the response", request).await.unwrap().unwrap();
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    let body: Value = response.json().await.unwrap();
    assert_eq!(body["message"], "the program was not executed within 5 s");
    until("the end of the stopped program", async || {
        (!is_alive(stopped)).then_some(())
    })
    .await;
    agent.stop().await;
}

/// The user that kills its processes. No other test runs a program as this user.
const KILLING_USER: &str = "news";

#[tokio::test]
async fn program_that_is_killed_before_it_is_executed_is_an_error() {
    let agent = agent().await;
    let (exec, spawn) = ("/process/exec", "/process/spawn");
    for (route, signal) in [
        (exec, Signal::SIGKILL),
        (exec, Signal::SIGTERM),
        (spawn, Signal::SIGKILL),
    ] {
        let (_, mut killing) = signal_processes(KILLING_USER, signal);
        let mut messages = HashSet::new();
        until("programs killed before and after", async || {
            let body = json!({"command": "sleep", "args": ["60"], "as_user": KILLING_USER});
            let (status, response) = agent.answer(agent.post(route).json(&body)).await;
            messages.insert(if status == StatusCode::SERVICE_UNAVAILABLE {
                response["message"].as_str().unwrap().to_owned()
            } else {
                assert!(status.is_success(), "{route} {signal}: {response}");
                let exit_code = (route == exec).then_some(128 + signal as i32);
                assert_eq!(response["exit_code"].as_i64(), exit_code.map(i64::from));
                "executed".to_owned()
            });
            (messages.len() > 1).then_some(())
        })
        .await;
        let before = "the program was killed before it was executed".to_owned();
        let expected = HashSet::from([before, "executed".to_owned()]);
        assert_eq!(messages, expected, "{route} {signal}");
        killing.kill().await.unwrap();
    }
    agent.stop().await;
}

/// Programs without a slash are searched for in the `PATH` of the request, as shells do.
#[tokio::test]
async fn program_is_found_in_its_path_and_scripts_need_no_interpreter() {
    let agent = agent().await;
    let directories = [TempDir::new().unwrap(), TempDir::new().unwrap()];
    let [first, second] = directories.each_ref().map(|directory| {
        let path = directory.path();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        path.to_str().unwrap()
    });
    let install = |path: String, contents: &str, mode: u32| {
        fs::write(&path, contents).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    };
    install(format!("{first}/tool"), "echo not executable", 0o644);
    install(format!("{first}/denied"), "echo not executable", 0o644);
    install(format!("{second}/tool"), "echo \"$0 $# $1 $WORD\"", 0o755);
    let body = |command: &str| {
        let env = json!({"PATH": format!("/no/such:{first}:{second}"), "WORD": "word"});
        json!({"command": command, "args": ["a b", "c"], "env": env})
    };
    let (_, response) = exec(&agent, body("tool")).await;
    let expected = format!("{second}/tool 2 a b word\n");
    assert_eq!(executed(&response).stdout, expected);
    for (command, reason) in [
        ("denied", "is not executable by that user"),
        ("missing", "does not exist"),
        ("/etc/passwd/tool", "path component that is not a directory"),
        (&"n".repeat(256), "is longer than the limit of the system"),
    ] {
        let (status, response) = exec(&agent, body(command)).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        let text = response.to_string();
        assert!(text.contains(reason), "{text}");
    }
    agent.stop().await;
}

#[tokio::test]
async fn program_is_a_child_of_the_agent_and_has_nothing_of_it() {
    let agent = agent().await;
    let line = "echo $PPID; read line || echo no input; ls /proc/self/fd; ulimit -c";
    let own = exec_shell(&agent, line).await;
    // The fourth descriptor is the directory that `ls` reads.
    let expected = format!("{}\nno input\n0\n1\n2\n3\n0\n", agent.pid());
    assert_eq!((own.stdout, own.exit_code), (expected, 0));
    let read = async |path: &str| {
        let body = json!({"command": "cat", "args": [path]});
        executed(&exec(&agent, body).await.1)
    };
    let status = read("/proc/self/status").await.stdout;
    let of_program = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.expect("a field").trim_matches([':', '\t']).to_owned()
    };
    for name in ["SigBlk", "SigIgn", "SigCgt", "SigPnd", "ShdPnd"] {
        assert_eq!(of_program(name), "0000000000000000", "{name}");
    }
    for name in ["Umask", "CapEff", "Groups"] {
        let of_agent = status_field(agent.pid(), name);
        assert_eq!(of_program(name).trim(), of_agent, "{name}");
    }
    // The timer of its start.
    let timers = read("/proc/self/timers").await;
    assert_eq!((timers.stdout.as_str(), timers.exit_code), ("", 0));
    agent.stop().await;
}

/// By default an idle thread of the runtime ends after 10 s, and its programs with it.
#[tokio::test]
async fn program_outlives_the_idle_time_of_threads() {
    let agent = agent().await;
    // At once, so that some of the threads are idle afterwards.
    let programs = (0..6).map(|_| exec_shell(&agent, "sleep 12; echo alive"));
    for output in futures::future::join_all(programs).await {
        assert_eq!(output.stdout, "alive\n");
    }
    agent.stop().await;
}

#[tokio::test]
async fn other_user_can_open_its_pipes_by_name() {
    let agent = agent().await;
    let line = "cat /dev/stdin > /dev/stdout; echo err > /dev/stderr";
    let body = json!({"command": "sh", "args": ["-c", line], "as_user": "nobody"});
    let process = spawn(&agent, body.clone()).await;
    process.write("out\n", true).await;
    let expected = Output {
        stdout: "out\n".into(),
        stderr: "err\n".into(),
        exit_code: 0,
    };
    assert_eq!(process.output().await, expected);

    let owner = || fs::metadata("/dev/null").unwrap().uid();
    let owner_before = owner();
    let (_, response) = exec(&agent, body).await;
    assert_eq!(executed(&response).stderr, "err\n");
    assert_eq!(
        owner(),
        owner_before,
        "the null device belongs to all programs"
    );
    agent.stop().await;
}

#[tokio::test]
async fn other_user_gets_access_to_the_display() {
    let agent = Start::on_screen().ready().await;
    // Prints the first byte of the X server's reply to a client without a cookie: 1 for access.
    let connect = "import os, socket\n\
        server = socket.socket(socket.AF_UNIX)\n\
        server.connect('/tmp/.X11-unix/X' + os.environ['DISPLAY'][1:])\n\
        server.sendall(b'l\\0\\x0b\\0' + bytes(8))\n\
        print(server.recv(1)[0], os.environ.get('XAUTHORITY'))";
    let connection = async |as_user: Value| {
        let body = json!({"command": "python3", "args": ["-c", connect], "as_user": as_user});
        executed(&exec(&agent, body).await.1).stdout
    };
    let own = connection(Value::Null).await;
    let cookie = own
        .strip_prefix("0 ")
        .expect("a client without a cookie has no access");
    assert!(fs::exists(cookie.trim()).unwrap(), "{own}");
    assert_eq!(connection(json!("nobody")).await, "1 None\n");
    let after = connection(Value::Null).await;
    assert_eq!(after, own, "only the other user has access");
    agent.stop().await;
}

#[tokio::test]
async fn timeout_ends_a_process_and_its_children() {
    let agent = agent().await;
    let line =
        "trap '' TERM; echo $$; (trap '' TERM; echo $BASHPID; while :; do sleep 1; done) & wait";
    let body = json!({"command": "bash", "args": ["-c", line], "timeout_sec": 5});
    let process = spawn(&agent, body).await;
    let output = process.output().await;
    assert_eq!(output.exit_code, 137);
    let pids: Vec<u32> = output
        .stdout
        .lines()
        .map(|pid| pid.parse().unwrap())
        .collect();
    assert_eq!(pids.len(), 2, "{output:?}");
    until_ended(&pids).await;
    let body = json!({"command": "sleep", "args": ["1000"], "timeout_sec": 1});
    let exits = spawn(&agent, body).await;
    assert_eq!(exits.output().await.exit_code, 143);
    agent.stop().await;
}

#[tokio::test]
async fn timeout_ends_background_processes_after_the_leader_exited() {
    let agent = agent().await;
    let line = "trap '' TERM; sleep 1000 & echo $!; exit 3";
    let body = json!({"command": "sh", "args": ["-c", line], "timeout_sec": 2});
    let output = spawn(&agent, body).await.output().await;
    let pid = output.stdout.trim().parse().unwrap();
    assert_eq!(output.exit_code, 3);
    until_ended(&[pid]).await;
    agent.stop().await;
}

#[tokio::test]
async fn exited_process_holds_no_descriptors() {
    let agent = agent().await;
    let open = || {
        let open = fs::read_dir(format!("/proc/{}/fd", agent.pid())).unwrap();
        let targets = open
            .flatten()
            .filter_map(|fd| fs::read_link(fd.path()).ok());
        let kinds = targets.map(|target| target.to_string_lossy().into_owned());
        let is_process_fd = |target: &String| target.contains("ptmx") || target.contains("[pidfd]");
        kinds.filter(is_process_fd).count()
    };
    for _ in 0..10 {
        let body = json!({"command": "true", "allocate_tty": true});
        assert_eq!(spawn(&agent, body).await.exited().await, 0);
    }
    // The count is compared with zero and not with the count before: the agent restarts its
    // browser repeatedly, each time with a descriptor.
    until("the descriptors to be closed", async || {
        (open() == 0).then_some(())
    })
    .await;
    agent.stop().await;
}

#[tokio::test]
async fn process_limit_is_429_until_a_process_ends() {
    let agent = Start::without_browser()
        .with(["--max-processes", "2"])
        .listening()
        .await;
    let first = shell(&agent, "sleep 1000").await;
    let _second = shell(&agent, "sleep 1000").await;
    let third = json!({"command": "true"});
    let request = agent.post("/process/spawn").json(&third);
    let (status, response) = agent.answer(request).await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS, "{response}");
    let request = agent.post("/process/exec").json(&third);
    assert_eq!(agent.answer(request).await.0, StatusCode::TOO_MANY_REQUESTS);
    first.kill("KILL").await;
    until("a free permit", async || {
        let request = agent.post("/process/exec").json(&third);
        (agent.answer(request).await.0 == StatusCode::OK).then_some(())
    })
    .await;
    agent.stop().await;
}

/// Starts a tree that ignores SIGTERM: in one session, in another one, and without parents.
/// Returns the pids.
async fn stubborn_tree(agent: &TestAgent) -> Vec<u32> {
    let line = "trap '' TERM HUP; \
        sleep 1001 & echo $!; \
        setsid sh -c 'trap \"\" TERM HUP; echo $$; sleep 1002; sleep 1003' & \
        (setsid sh -c 'trap \"\" TERM HUP; echo $$; sleep 1004; sleep 1005' &) ; \
        echo $$; echo ready; while :; do wait; done";
    let body = json!({"command": "bash", "args": ["-c", line]});
    let process = spawn(agent, body).await;
    let mut events = process.events().await;
    let mut text = String::new();
    while text.lines().count() < 5 {
        let (_, event) = events.next().await.expect("more output");
        text.push_str(&String::from_utf8_lossy(&decode(&event)));
    }
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

async fn until_ended(pids: &[u32]) {
    until("all processes to end", async || {
        (!pids.iter().any(|pid| is_alive(*pid))).then_some(())
    })
    .await;
}

#[tokio::test]
async fn all_processes_end_when_the_agent_stops() {
    let agent = agent().await;
    let pids = stubborn_tree(&agent).await;
    assert_eq!(pids.len(), 4);
    assert!(pids.iter().all(|pid| is_alive(*pid)));
    agent.stop().await;
    until_ended(&pids).await;
}

#[tokio::test]
async fn processes_of_a_killed_agent_end_at_the_next_start() {
    let agent = agent().await;
    let pids = stubborn_tree(&agent).await;
    let state_dir = agent.kill().await;
    let agent = TestAgent::again(state_dir)
        .with(["--headless", "--chromium", "/bin/true"])
        .listening()
        .await;
    until_ended(&pids).await;
    agent.stop().await;
}

#[tokio::test]
async fn no_zombie_remains_in_any_order_of_exits() {
    let agent = agent().await;
    let process = shell(&agent, "sh -c 'sleep 0.2' & exit 5").await;
    assert_eq!(process.output().await.exit_code, 5);
    let killed = shell(&agent, "exec sleep 1000").await;
    signal(killed.pid, Signal::SIGSEGV);
    assert_eq!(killed.output().await.exit_code, 128 + 11);
    let real_time = shell(&agent, "kill -s RTMIN+1 $$").await;
    let code = real_time.output().await.exit_code;
    assert!(code > 128 + 31, "{code}");
    until("the zombies to be reaped", async || {
        let gone = |pid: u32| !fs::exists(format!("/proc/{pid}")).unwrap();
        [process.pid, killed.pid, real_time.pid]
            .into_iter()
            .all(gone)
            .then_some(())
    })
    .await;
    // The program in place of Chromium is started again and again.
    until("no process but the agent", async || {
        let others = naming(&agent.state_dir());
        let is_agent = |process: &Process| process.pid == agent.pid();
        others.iter().all(is_agent).then_some(())
    })
    .await;
    agent.stop().await;
}

#[tokio::test]
async fn agent_survives_a_fork_bomb() {
    let agent = agent().await;
    // The bomb doubles nine times to 512 waiting processes, some in their own sessions.
    let bomb = "bomb() { [ $1 -gt 0 ] || exec sleep 1000; \
        bomb $(($1-1)) & if [ $1 = 5 ]; then export -f bomb; setsid bash -c \"bomb $(($1-1))\" & \
        else bomb $(($1-1)) & fi; wait; }; echo $SPAWNED_PROCESS; bomb 9";
    let body = json!({"command": "bash", "args": ["-c", bomb]});
    let process = spawn(&agent, body).await;
    let mut events = process.events().await;
    let (_, event) = events.next().await.expect("the mark");
    let mark = String::from_utf8(decode(&event)).unwrap();
    let count = || marked(mark.trim());
    until("300 processes", async || (count() >= 300).then_some(())).await;
    assert_eq!(agent.answer(agent.get("/health")).await.0, StatusCode::OK);
    // The agent keeps killing what survives the five seconds of the request.
    process.post("kill", json!({"signal": "KILL"})).await;
    assert_eq!(rest_of(&mut events).await.exit_code, 137);
    until("no process to be left", async || {
        (count() == 0).then_some(())
    })
    .await;
    assert_eq!(exec_shell(&agent, "echo alive").await.stdout, "alive\n");
    agent.stop().await;
}

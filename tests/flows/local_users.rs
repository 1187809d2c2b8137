//! Another local user of the machine: an agent that is root gives no access.

use std::{fs, path::Path};

use nix::unistd::Uid;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::support::{
    agent::{Start, TestAgent},
    processes::{Process, command_as_nobody, naming},
    sockets::{tcp_listeners, unix_listeners},
    wait::in_time,
};

/// The system's interpreter, which every user can run.
const PYTHON: &str = "/usr/bin/python3";
/// Prints the paths, processes and addresses of its arguments that it reaches, one per line.
const REACH: &str = r#"
import errno, os, socket, sys, urllib.request

def reads(path):
    return os.listdir(path) is not None if os.path.isdir(path) else open(path, 'rb').read(1) is not None

def writes(path):
    return os.close(os.open(path, os.O_WRONLY)) is None

def signals(pid):
    return os.kill(int(pid), 0) is None

def opens(display):
    server = socket.socket(socket.AF_UNIX)
    server.connect(display)
    server.sendall(b'l\0\x0b\0' + bytes(8))
    return server.recv(1) == b'\x01'

def connects(name):
    address = '\0' + name[1:] if name.startswith('@') else name
    for kind in socket.SOCK_STREAM, socket.SOCK_SEQPACKET:
        try:
            return socket.socket(socket.AF_UNIX, kind).connect(address) is None
        except OSError as error:
            if error.errno != errno.EPROTOTYPE:
                raise

def fetches(url):
    return urllib.request.urlopen(url).status == 200

for argument in sys.argv[1:]:
    action, target = argument.split(' ', 1)
    try:
        if globals()[action](target):
            print(argument)
    except OSError:
        pass
"#;

/// Returns which of the actions succeed for `nobody`, or for this test's user.
async fn reached(as_nobody: bool, actions: &[String]) -> Vec<String> {
    let mut command = match as_nobody {
        true => command_as_nobody(PYTHON),
        false => Command::new(PYTHON),
    };
    command.args(["-c", REACH]).args(actions).kill_on_drop(true);
    let output = in_time("the attempts", command.output()).await.unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let lines = String::from_utf8(output.stdout).unwrap();
    lines.lines().map(str::to_owned).collect()
}

/// Adds a directory and everything in it.
fn add_tree(path: &Path, paths: &mut Vec<String>) {
    paths.push(path.display().to_string());
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => add_tree(&entry.path(), paths),
            Ok(kind) if kind.is_file() => paths.push(entry.path().display().to_string()),
            _ => {}
        }
    }
}

#[tokio::test]
async fn local_user_reaches_no_file_process_display_or_route() {
    if !Uid::effective().is_root() {
        return;
    }
    // The directory above can be entered, so that only the agent's own modes protect its files.
    let start = Start::on_screen().with_directory_mode(0o711);
    let agent = start.ready().await;
    let show = json!({"command": "sh", "args": ["-c", "echo $DISPLAY $XAUTHORITY"]});
    let shown = agent.ok(agent.post("/process/exec").json(&show)).await;
    let shown = base64_text(&shown["stdout_b64"]);
    let (display, cookie) = shown.trim().split_once(' ').unwrap();

    let mut paths = Vec::new();
    add_tree(&agent.state_dir(), &mut paths);
    paths.push(cookie.to_owned());
    let chromium = agent.chromium_number("pid").await;
    let pids = [
        u64::from(agent.pid()),
        u64::from(agent.display_pid().await),
        chromium,
    ];
    for pid in pids {
        paths.extend(["environ", "mem", "fd", "cwd"].map(|name| format!("/proc/{pid}/{name}")));
    }
    let mut actions: Vec<String> = Vec::new();
    for path in paths {
        actions.extend([format!("reads {path}"), format!("writes {path}")]);
    }
    actions.extend(pids.map(|pid| format!("signals {pid}")));
    let others = [
        format!("opens /tmp/.X11-unix/X{}", display.trim_start_matches(':')),
        format!("fetches {}", agent.url("/chromium")),
    ];
    actions.extend(others);

    assert_eq!(reached(true, &actions).await, Vec::<String>::new());
    // A control: the owner's attempts succeed.
    let own = reached(false, &actions).await;
    for expected in [
        format!("reads {cookie}"),
        format!("reads {}", agent.state_dir().join("run/lock").display()),
        format!(
            "writes {}",
            agent.session_dir().join("user-data/Local State").display()
        ),
        format!("reads /proc/{chromium}/environ"),
        format!("signals {}", agent.pid()),
    ] {
        assert!(own.contains(&expected), "{expected}");
    }
    agent.stop().await;
}

/// Returns the processes of the browser: those of the agent without itself and its X server.
async fn browser_processes(agent: &TestAgent) -> Vec<Process> {
    let others = [agent.pid(), agent.display_pid().await];
    let mut processes = naming(&agent.state_dir());
    processes.retain(|process| !others.contains(&process.pid));
    let chromium = agent.chromium_number("pid").await;
    let is_chromium = |process: &Process| u64::from(process.pid) == chromium;
    assert!(processes.iter().any(is_chromium), "{processes:?}");
    processes
}

#[tokio::test]
async fn local_user_connects_to_no_socket_of_the_browser() {
    if !Uid::effective().is_root() {
        return;
    }
    let start = Start::on_screen().with_directory_mode(0o711);
    let agent = start.ready().await;
    let processes = browser_processes(&agent).await;
    let pids = processes.iter().map(|process| process.pid);
    let mut actions: Vec<String> = pids
        .flat_map(unix_listeners)
        .map(|name| format!("connects {name}"))
        .collect();
    actions.sort();
    actions.dedup();
    println!("{actions:?}");
    assert_eq!(reached(true, &actions).await, Vec::<String>::new());
    // A control: Chromium accepts connections of root, at least to the lock of its profile.
    let own = reached(false, &actions).await;
    let singleton = own
        .iter()
        .any(|action| action.ends_with("/SingletonSocket"));
    assert!(singleton, "{own:?} of {actions:?}");
    agent.stop().await;
}

#[tokio::test]
async fn browser_listens_on_no_port() {
    let agent = Start::on_screen().ready().await;
    let processes = browser_processes(&agent).await;
    let listening = processes
        .iter()
        .filter(|process| !tcp_listeners(process.pid).is_empty());
    let listening: Vec<_> = listening.collect();
    assert!(listening.is_empty(), "{listening:?}");
    let port_file = agent.session_dir().join("user-data/DevToolsActivePort");
    assert!(!port_file.exists(), "{}", port_file.display());
    // A control: the agent's own socket is found.
    assert_eq!(tcp_listeners(agent.pid()).len(), 1);
    agent.stop().await;
}

fn base64_text(value: &Value) -> String {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    String::from_utf8(STANDARD.decode(value.as_str().unwrap()).unwrap()).unwrap()
}

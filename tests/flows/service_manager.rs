//! Agent and control under a service manager.

use std::{
    net::TcpListener,
    os::unix::net::UnixListener,
    process::{Command, Stdio},
    slice,
};

use nix::sys::signal::Signal;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    process::Child,
};

use crate::support::{
    agent::Start,
    dev::berth,
    printed::print,
    processes,
    service_manager::{Notifications, with_sockets},
    spawned::exec_shell,
    state::State,
    wait::in_time,
    websocket::Client,
};

/// The variable with the timeout of the watchdog, in microseconds.
const WATCHDOG: &str = "WATCHDOG_USEC";
const NOTIFY_SOCKET: &str = "NOTIFY_SOCKET";

#[tokio::test]
async fn agent_notifies_of_its_browser_is_watched_and_stops() {
    let manager = Notifications::listen();
    let path = manager.path();
    let start = Start::headless()
        .with_variable(NOTIFY_SOCKET, path.to_str().unwrap())
        .with_variable(WATCHDOG, "2000000");
    let agent = start.listening().await;
    let first = manager.next().await;
    assert_eq!(first[0], "READY=1");
    assert_eq!(first[1], "STATUS=The browser is starting.");
    manager.status("The browser is running: Chrome/").await;
    manager.until(|one| one == "WATCHDOG=1").await;
    let chromium = agent.chromium_number("pid").await;
    processes::signal(u32::try_from(chromium).unwrap(), Signal::SIGKILL);
    manager.status("The browser is restarting: ").await;
    manager.status("The browser is running: Chrome/").await;
    // Pings go on.
    manager.until(|one| one == "WATCHDOG=1").await;
    // A client process could otherwise speak for the agent. Pings are read meanwhile, because the
    // socket has room for few.
    let (environment, _) = tokio::join!(
        exec_shell(&agent, "env"),
        manager.until(|one| one == "WATCHDOG=1")
    );
    let environment = environment.stdout;
    assert!(environment.contains("PATH="), "{environment}");
    assert!(!environment.contains(NOTIFY_SOCKET), "{environment}");
    let _client = Client::connect(&agent.ws_url("/cdp")).await;
    agent.request_restart();
    manager
        .status("To be replaced when nothing else is in use. The browser is running: Chrome/")
        .await;
    tokio::join!(agent.stop(), manager.until(|one| one == "STOPPING=1"));
}

#[tokio::test]
async fn agent_that_continues_with_another_program_does_not_stop() {
    let manager = Notifications::listen();
    let path = manager.path();
    let start = Start::headless().with_variable(NOTIFY_SOCKET, path.to_str().unwrap());
    let agent = start.ready().await;
    manager.until(|one| one == "READY=1").await;
    agent.request_restart();
    let ready_again = manager.until(|one| {
        assert_ne!(one, "STOPPING=1");
        one == "READY=1"
    });
    ready_again.await;
    agent.stop().await;
}

#[tokio::test]
async fn agent_without_control_notifies_of_the_cause() {
    let manager = Notifications::listen();
    let path = manager.path();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap();
    let control = format!("http://{}", closed.local_addr().unwrap());
    drop(closed);
    let start = Start::without_browser()
        .without_token()
        .with(["--control-url", &control])
        .with_variable(NOTIFY_SOCKET, path.to_str().unwrap())
        .with_variable("BERTH_AGENT_JOIN_TOKEN", "an-unknown-join-token");
    let agent = start.listening().await;
    manager
        .status("Cannot register at control or report to it: ")
        .await;
    agent.stop().await;
}

#[tokio::test]
async fn passed_socket_is_served_and_refuses_nobody_during_a_restart() {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let state = State::new();
    let manager = Notifications::listen();
    let start = || {
        let mut command = control(&state);
        command.env(NOTIFY_SOCKET, manager.path());
        tokio::process::Command::from(with_sockets(&command, slice::from_ref(&socket)))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap()
    };
    let first = start();
    let ready = manager.next().await;
    assert_eq!(ready[0], "READY=1");
    let listening = format!("STATUS=Listening on {address}.");
    assert!(ready[1].starts_with(&listening), "{ready:?}");
    let answer = health(TcpStream::connect(address).await.unwrap()).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");

    stop(first).await;
    manager.until(|one| one == "STOPPING=1").await;
    let waiting = TcpStream::connect(address).await.unwrap();
    let second = start();
    let answer = health(waiting).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    stop(second).await;
}

#[tokio::test]
async fn several_or_other_sockets_are_refused() {
    let state = State::new();
    let directory = tempfile::tempdir().unwrap();
    let tcp = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let unix = UnixListener::bind(directory.path().join("socket")).unwrap();
    for (command, expected) in [
        (with_sockets(&control(&state), &tcp), "passed 2 sockets"),
        (
            with_sockets(&control(&state), &[unix]),
            "the socket of the service manager cannot be used",
        ),
    ] {
        let refused = print(command).await;
        assert_eq!(refused.status.code(), Some(1), "{}", refused.stderr);
        assert!(refused.stderr.contains(expected), "{}", refused.stderr);
    }
    assert!(!state.path().exists());
}

/// Returns the command of a control server with another address than that of a passed socket.
fn control(state: &State) -> Command {
    let mut command = berth(&["control", "--listen", "127.0.0.1:1", "--state-dir"]);
    command.arg(state.path()).envs(state.variables());
    command
}

/// Requests `/health` on a connection, and returns the response.
async fn health(mut connection: TcpStream) -> String {
    let request = b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    connection.write_all(request).await.unwrap();
    let mut response = String::new();
    let read = connection.read_to_string(&mut response);
    in_time("the response", read).await.unwrap();
    response
}

async fn stop(mut server: Child) {
    processes::signal(server.id().unwrap(), Signal::SIGTERM);
    let status = in_time("the end of the server", server.wait()).await;
    assert!(status.unwrap().success());
}

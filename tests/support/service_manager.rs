//! A service manager that receives notifications and passes listening sockets, as systemd does.

use std::{
    os::fd::{AsFd, AsRawFd},
    path::PathBuf,
    process::Command,
};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use tempfile::TempDir;
use tokio::net::UnixDatagram;

use super::wait::in_time;

/// The socket for the notifications of a service.
pub struct Notifications {
    directory: TempDir,
    socket: UnixDatagram,
}

impl Notifications {
    pub fn listen() -> Notifications {
        let directory = TempDir::with_prefix("berth-test-").unwrap();
        let socket = UnixDatagram::bind(directory.path().join("notify")).unwrap();
        Notifications { directory, socket }
    }

    /// Returns the value of `NOTIFY_SOCKET`.
    pub fn path(&self) -> PathBuf {
        self.directory.path().join("notify")
    }

    /// Returns the assignments of the next notification.
    pub async fn next(&self) -> Vec<String> {
        let mut buffer = [0; 4096];
        let received = in_time("a notification", self.socket.recv(&mut buffer)).await;
        let text = std::str::from_utf8(&buffer[..received.unwrap()]).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    /// Waits until an assignment matches, and returns it.
    pub async fn until(&self, matches: impl Fn(&str) -> bool) -> String {
        let search = async {
            loop {
                let assignments = self.next().await;
                if let Some(found) = assignments.into_iter().find(|one| matches(one)) {
                    return found;
                }
            }
        };
        in_time("a notification of this kind", search).await
    }

    /// Waits for a status that contains the text, and returns it.
    pub async fn status(&self, text: &str) -> String {
        self.until(|one| one.starts_with("STATUS=") && one.contains(text))
            .await
    }
}

/// Returns the command of a service that gets the sockets from descriptor 3 on. They may be passed
/// to several commands, one after another.
pub fn with_sockets<S: AsFd>(service: &Command, sockets: &[S]) -> Command {
    let mut redirections = String::new();
    for (index, socket) in sockets.iter().enumerate() {
        let socket = socket.as_fd();
        fcntl(socket, FcntlArg::F_SETFD(FdFlag::empty())).unwrap();
        let descriptor = socket.as_raw_fd();
        redirections += &format!("exec {}<&{descriptor}; ", 3 + index);
    }
    let script = format!(
        r#"{redirections}export LISTEN_FDS={} LISTEN_PID=$$; exec "$0" "$@""#,
        sockets.len()
    );
    let mut command = Command::new("bash");
    command.args(["-c", &script]);
    command.arg(service.get_program()).args(service.get_args());
    for (name, value) in service.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

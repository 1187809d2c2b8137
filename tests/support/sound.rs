//! Runs a PulseAudio server.

use std::process::Stdio;

use tempfile::TempDir;
use tokio::{
    net::UnixStream,
    process::{Child, Command},
};

use super::wait::until;

/// PulseAudio with one null sink.
pub struct SoundServer {
    directory: TempDir,
    child: Child,
}

impl SoundServer {
    pub async fn start() -> Self {
        let directory = TempDir::new().unwrap();
        let socket = directory.path().join("native");
        let clients = format!(
            "module-native-protocol-unix auth-anonymous=1 socket={}",
            socket.display()
        );
        let child = Command::new("pulseaudio")
            .args([
                "-n",
                "--daemonize=no",
                "--use-pid-file=no",
                "--exit-idle-time=-1",
            ])
            .args(["--load=module-null-sink", &format!("--load={clients}")])
            .env("HOME", directory.path())
            .env("XDG_RUNTIME_DIR", directory.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("pulseaudio is installed");
        let server = Self { directory, child };
        until("the sound server", async || {
            UnixStream::connect(&socket).await.ok()
        })
        .await;
        server
    }

    /// Returns the address in the form of `PULSE_SERVER`.
    pub fn address(&self) -> String {
        format!("unix:{}", self.directory.path().join("native").display())
    }

    pub async fn stop(mut self) {
        self.child.kill().await.unwrap();
    }
}

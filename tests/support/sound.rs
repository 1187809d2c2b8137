//! A sound server of a test's own.

use std::process::Stdio;

use tempfile::TempDir;
use tokio::{
    net::UnixStream,
    process::{Child, Command},
};

use super::wait::until;

/// PulseAudio with one output, which nobody hears.
pub struct SoundServer {
    folder: TempDir,
    child: Child,
}

impl SoundServer {
    pub async fn start() -> Self {
        let folder = TempDir::new().unwrap();
        let socket = folder.path().join("native");
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
            .env("HOME", folder.path())
            .env("XDG_RUNTIME_DIR", folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("pulseaudio is there");
        let server = Self { folder, child };
        until("the sound server", async || {
            UnixStream::connect(&socket).await.ok()
        })
        .await;
        server
    }

    /// As in `PULSE_SERVER`.
    pub fn address(&self) -> String {
        format!("unix:{}", self.folder.path().join("native").display())
    }

    pub async fn stop(mut self) {
        self.child.kill().await.unwrap();
    }
}

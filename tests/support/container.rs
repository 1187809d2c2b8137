//! Debian machines that boot systemd, in containers of systemd-nspawn. What they write is
//! discarded.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use nix::sys::signal::Signal;
use serde_json::Value;
use tokio::process::Child;

use super::{
    files::directory_of,
    printed::{Printed, print},
    processes,
    wait::{in_time, until},
};

/// The path of the packages in a container.
pub const PACKAGES: &str = "/packages";

/// A running container. All of it is killed when it is dropped.
pub struct Container {
    nspawn: Child,
    /// Its first process, as seen from outside.
    leader: u32,
}

fn directory(variable: &str) -> PathBuf {
    directory_of(variable, "make deb-test")
}

/// Returns the directory of the packages under test.
pub fn packages() -> PathBuf {
    directory("BERTH_TEST_PACKAGES")
}

impl Container {
    /// Boots a container that has the directory as [`PACKAGES`].
    pub async fn boot(packages: &Path) -> Container {
        let nspawn = tokio::process::Command::new("systemd-nspawn")
            .arg("--directory")
            .arg(directory("BERTH_TEST_CONTAINER"))
            .arg(format!("--bind-ro={}:{PACKAGES}", packages.display()))
            .args(["--boot", "--quiet", "--volatile=overlay"])
            .args(["--private-network", "--register=no", "--keep-unit"])
            .args(["--machine", &format!("berth-test-{}", std::process::id())])
            // Containers share the root file system, which none of them changes.
            .env("SYSTEMD_NSPAWN_LOCK", "0")
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("systemd-nspawn is installed");
        let pid = nspawn.id().expect("it runs");
        // Its first child only prepares the container.
        let is_systemd = |child: &u32| processes::status_field(*child, "Name") == "systemd";
        let leader = until("the first process of a container", async || {
            processes::children(pid).into_iter().find(is_systemd)
        });
        let leader = leader.await;
        let container = Container { nspawn, leader };
        until("a booted container", async || {
            let state = container.output("systemctl is-system-running").await.stdout;
            // After a failed unit it is `degraded` for ever.
            match state.trim() {
                "degraded" => panic!("{}", container.run("systemctl --failed").await),
                state => (state == "running").then_some(()),
            }
        })
        .await;
        container
    }

    /// Returns the command of a program of this machine which is to use the container's network.
    pub fn with_network(&self, program: &str) -> tokio::process::Command {
        let mut command = tokio::process::Command::new("nsenter");
        command.arg(format!("--target={}", self.leader));
        command.args(["--net", "--", program]);
        command
    }

    /// Runs a shell script in the container.
    pub async fn output(&self, script: &str) -> Printed {
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--target={}", self.leader))
            .args(["--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup"])
            .args(["--root", "--wd", "--", "env", "-i", "LANG=C.UTF-8"])
            .arg("PATH=/usr/sbin:/usr/bin:/sbin:/bin")
            .args(["sh", "-euc", script]);
        print(command).await
    }

    /// Runs a shell script, which must succeed, and returns its standard output.
    pub async fn run(&self, script: &str) -> String {
        let printed = self.output(script).await;
        assert!(
            printed.status.success(),
            "{script}\n{}\n{}\n{}",
            printed.stdout,
            printed.stderr,
            self.output("journalctl --no-pager --lines 100")
                .await
                .stdout
        );
        printed.stdout
    }

    /// Returns a property of a unit, such as `ActiveState`.
    pub async fn property(&self, unit: &str, property: &str) -> String {
        let show = format!("systemctl show --value --property {property} {unit}");
        self.run(&show).await.trim().to_owned()
    }

    /// Sends a request to control in the container, and returns the JSON of its response.
    pub async fn request(&self, key: &str, method: &str, path: &str, body: &Value) -> Value {
        let script = format!(
            "curl --silent --show-error --max-time 60 --request {method} --json '{}' \
             --header 'Authorization: Bearer {key}' http://127.0.0.1:8080{path}",
            body.to_string().replace('\'', r"'\''")
        );
        let answer = self.run(&script).await;
        match answer.is_empty() {
            true => Value::Null,
            false => serde_json::from_str(&answer).unwrap_or_else(|_| panic!("{answer}")),
        }
    }

    /// Shuts the machine down.
    pub async fn stop(mut self) {
        self.run("systemctl poweroff").await;
        let status = in_time("the end of a container", self.nspawn.wait()).await;
        assert!(status.unwrap().success());
        assert!(!processes::is_alive(self.leader));
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // With its first process all others end, unlike with systemd-nspawn.
        if processes::is_alive(self.leader) {
            processes::signal(self.leader, Signal::SIGKILL);
        }
    }
}

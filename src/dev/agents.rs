//! Agents on this machine that join the registered fleet by token, as virtual machines would.

use std::{
    ffi::OsString,
    fs::DirBuilder,
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    time::Duration,
};

use chrono::{TimeDelta, Utc};
use secrecy::{ExposeSecret, SecretString};
use tokio::process::Command;

use super::DevError;
use crate::{
    backoff::Backoff,
    control::{Started, keys::Identity},
    shutdown::Shutdown,
    state_dir::mode_around_chromium,
    system::process::{
        child::{Child, Stdout},
        environment::Inherited,
    },
};

/// The directory below the state directory with one directory for each agent.
const DIRECTORY: &str = "agents";
/// The lifetime of the join token. An agent of an earlier run needs none.
const TOKEN_LIFETIME: TimeDelta = TimeDelta::hours(1);
/// The first and the longest delay before an agent that has exited is started again.
const RESTART_DELAY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// The time in which an agent must exit.
const STOP_GRACE_PERIOD: Duration = Duration::from_secs(15);

/// The command that starts one agent.
struct AgentCommand {
    program: PathBuf,
    options: Vec<OsString>,
    control_url: String,
    state_dir: PathBuf,
    join_token: SecretString,
}

/// Starts `count` agents, which run until shutdown. They join on behalf of `caller`.
pub(super) async fn start(
    started: &Started,
    caller: &Identity,
    count: u32,
) -> Result<(), DevError> {
    if count == 0 {
        return Ok(());
    }
    let join_tokens = &started.control.join_tokens;
    let expires_at = Some(Utc::now() + TOKEN_LIFETIME);
    let created = join_tokens.create(caller, count, expires_at, Default::default());
    let (_, join_token) = created.await?;
    let fleet = started.local_fleet();
    for number in 1..=count {
        let name = number.to_string();
        let state_dir = started.state_dir().path().join(DIRECTORY).join(name);
        prepare(&state_dir).map_err(|source| DevError::AgentDirectory {
            path: state_dir.display().to_string(),
            source,
        })?;
        let command = AgentCommand {
            program: fleet.agent_program.clone(),
            options: fleet.agent_options.clone(),
            control_url: started.local_url(),
            state_dir,
            join_token: join_token.clone(),
        };
        let shutdown = started.control.shutdown.clone();
        shutdown.clone().spawn(command.run(shutdown));
    }
    Ok(())
}

/// Creates a directory in which Chromium's user reaches its own.
fn prepare(directory: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.mode(mode_around_chromium()).recursive(true);
    builder.create(directory)
}

impl AgentCommand {
    /// Runs the agent until shutdown, and starts it again when it exits.
    async fn run(self, shutdown: Shutdown) {
        let mut delays = Backoff::new(RESTART_DELAY.0, RESTART_DELAY.1);
        loop {
            match self.spawn().await {
                Ok(mut child) => {
                    tokio::select! {
                        status = child.wait() => {
                            let tail = child.tail();
                            tracing::warn!(?status, tail, "an agent has exited");
                        }
                        () = shutdown.requested() => {
                            if let Err(error) = child.terminate(STOP_GRACE_PERIOD).await {
                                tracing::error!(%error, "cannot stop an agent");
                            }
                            return;
                        }
                    }
                }
                Err(error) => tracing::error!(%error, "cannot start an agent"),
            }
            if !shutdown.sleep(delays.next_delay()).await {
                return;
            }
        }
    }

    async fn spawn(&self) -> io::Result<Child> {
        let mut command = Command::new(&self.program);
        command
            .arg("agent")
            // The URL is one of this machine, whatever address control listens on.
            .args(["--listen=127.0.0.1:0", "--allow-plain-http"])
            .arg("--control-url")
            .arg(&self.control_url)
            .arg("--state-dir")
            .arg(&self.state_dir)
            .args(&self.options)
            .env("BERTH_AGENT_JOIN_TOKEN", self.join_token.expose_secret());
        // Control copies the log of its own agents only.
        let ignore = Box::new(|_: &str| None);
        let (log, stdout) = (Inherited::Helper, Stdout::Log);
        let spawned = Child::spawn_with_log_parser("agent", command, log, stdout, ignore);
        Ok(spawned.await?.0)
    }
}

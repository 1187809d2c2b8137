//! Starts the process of an agent.

use std::{ffi::OsString, io, net::SocketAddr, path::PathBuf, time::Duration};

use serde::Deserialize;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    process::{ChildStdout, Command},
    time::timeout,
};

use super::{HostStartError, LaunchOptions, agent_log, session_record::SessionRecord};
use crate::{
    api::ids::HostId,
    system::process::{
        child::{Child, LogParser, Stdout},
        environment::Inherited,
    },
};

/// The time in which an agent must report its address, which it does before it starts anything.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(15);
/// The most bytes of the line in which an agent reports its address.
const MAX_ADDRESS_LINE: u64 = 4096;

/// The command that starts one agent, the first time and after each exit.
pub(super) struct AgentCommand {
    pub(super) host: HostId,
    pub(super) session: SessionRecord,
    pub(super) launch: LaunchOptions,
    pub(super) program: PathBuf,
    pub(super) options: Vec<OsString>,
    pub(super) token_file: PathBuf,
    pub(super) state_dir: PathBuf,
}

impl AgentCommand {
    /// Starts the agent and returns when it listens.
    pub(super) async fn start(&self) -> Result<(Child, SocketAddr), HostStartError> {
        let (host, session) = (self.host.clone(), self.session.clone());
        let log: LogParser = Box::new(move |line| agent_log::copy_line(&host, &session, line));
        let command = self.command();
        let spawned =
            Child::spawn_with_log_parser("agent", command, Inherited::Helper, Stdout::Pipe, log)
                .await;
        let (mut child, stdout) = spawned.map_err(|source| HostStartError::Spawn {
            program: self.program.display().to_string(),
            source,
        })?;
        let Some(stdout) = stdout else {
            let reason = "no standard output".to_owned();
            return Err(HostStartError::NoAddress(reason));
        };
        match timeout(LISTEN_TIMEOUT, read_address(stdout)).await {
            Ok(Ok(Some(address))) => Ok((child, address)),
            Ok(Ok(None)) => Err(wait_for_exit(&mut child).await),
            Ok(Err(error)) => Err(HostStartError::NoAddress(error.to_string())),
            Err(_) => {
                let reason = format!("no output within {LISTEN_TIMEOUT:?}");
                Err(HostStartError::NoAddress(reason))
            }
        }
    }

    fn command(&self) -> Command {
        let LaunchOptions { mode, viewport } = &self.launch;
        let mut command = Command::new(&self.program);
        command
            .arg("agent")
            .args(["--listen=127.0.0.1:0", "--json", "--behind-control"])
            .arg("--token-file")
            .arg(&self.token_file)
            .arg("--state-dir")
            .arg(&self.state_dir)
            .arg(format!("--viewport={viewport}"));
        // An environment variable, because it overrides the configuration file with either value.
        command.env("BERTH_AGENT_HEADLESS", mode.headless.to_string());
        if mode.kiosk_mode {
            command.arg("--chromium-flag=--kiosk");
        }
        command.args(&self.options);
        command
    }
}

/// Waits for the exit of an agent that has closed its standard output. It reports the reason on
/// standard error.
async fn wait_for_exit(child: &mut Child) -> HostStartError {
    let status = match timeout(LISTEN_TIMEOUT, child.wait()).await {
        Ok(Ok(status)) => status.to_string(),
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("still running after {LISTEN_TIMEOUT:?}"),
    };
    let tail = child.tail();
    HostStartError::Exited { status, tail }
}

/// The line that an agent prints when it listens.
#[derive(Deserialize)]
struct Announcement {
    base_url: url::Url,
}

/// Reads the address from the first line of an agent's output. Returns `None` if there is no line.
async fn read_address(stdout: ChildStdout) -> io::Result<Option<SocketAddr>> {
    let mut output = BufReader::new(stdout);
    let mut line = String::new();
    (&mut output)
        .take(MAX_ADDRESS_LINE)
        .read_line(&mut line)
        .await?;
    if line.is_empty() {
        return Ok(None);
    }
    // Later output is discarded, because a full pipe would stall the agent.
    tokio::spawn(async move { tokio::io::copy(&mut output, &mut tokio::io::sink()).await });
    let announcement: Announcement = serde_json::from_str(&line).map_err(io::Error::other)?;
    let address = announcement.base_url.socket_addrs(|| None)?;
    Ok(address.into_iter().next())
}

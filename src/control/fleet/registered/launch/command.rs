//! Runs the commands that launch and destroy machines.
//!
//! A command is a program without arguments. Its environment names the launch; the join token, the
//! only secret, is on its standard input. It has a deadline, after which its process group is
//! killed, as when it exits or control ends.

use std::{
    io::{self, PipeReader, Write},
    path::Path,
    process::Stdio,
    sync::atomic::{AtomicUsize, Ordering},
};

use secrecy::{ExposeSecret, SecretString};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::{ChildStdout, Command},
    time::timeout,
};

use super::{EngineId, LaunchConfig, engine_id::InvalidEngineId};
use crate::{
    api::ids::LaunchId,
    control::store::HostLaunchRow,
    shutdown::Shutdown,
    system::process::{
        child::{Child, LogParser, Stdout, describe_exit},
        environment::Inherited,
    },
};

/// The most bytes that a launch command prints on standard output.
const MAX_OUTPUT: u64 = 1024;
/// The most lines of standard error that are logged.
const MAX_LOG_LINES: usize = 100;
/// The most bytes of each of these lines.
const MAX_LOG_LINE: usize = 1024;
/// Takes the place of the join token in the log.
const REDACTED: &str = "[join token]";

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum CommandError {
    #[error("cannot start the command: {0}")]
    Spawn(io::Error),
    #[error("the command has ended with {0}")]
    Exit(String),
    #[error("the command did not exit, with its standard output closed, within {0} s")]
    Timeout(u64),
    #[error("the output of the command is longer than {MAX_OUTPUT} bytes")]
    LongOutput,
    #[error("cannot read the output of the command: {0}")]
    Output(io::Error),
    #[error("the output of the command is not one line with the id of the machine: {0}")]
    EngineId(#[from] InvalidEngineId),
    #[error("the output of the command contains the join token")]
    Token,
    #[error("the server is shutting down")]
    Shutdown,
}

/// Runs the commands of the settings.
pub(super) struct LaunchCommands {
    pub(super) config: LaunchConfig,
    /// The URL at which agents reach control.
    pub(super) control_url: String,
    pub(super) shutdown: Shutdown,
}

impl LaunchCommands {
    /// Launches a machine whose agent joins with the token. Returns the engine's id of it. When
    /// this fails, the engine may nevertheless have the machine.
    pub(super) async fn launch(
        &self,
        row: &HostLaunchRow,
        token: &SecretString,
    ) -> Result<EngineId, CommandError> {
        let (mode, viewport) = (row.options.mode, row.options.viewport);
        let mut command = command(&self.config.launch_command, &row.id);
        command
            .env("BERTH_LAUNCH_CONTROL_URL", &self.control_url)
            .env("BERTH_LAUNCH_HEADLESS", mode.headless.to_string())
            .env("BERTH_LAUNCH_KIOSK_MODE", mode.kiosk_mode.to_string())
            .env("BERTH_LAUNCH_VIEWPORT", viewport.to_string())
            .env(
                "BERTH_LAUNCH_SECONDS",
                self.config.command_timeout.as_secs().to_string(),
            );
        let stdin = token_input(token).map_err(CommandError::Spawn)?;
        let name = "launch command";
        let log = log_parser(name, &row.id, Some(token.clone()));
        let (child, stdout) = spawn(name, command, stdin.into(), log).await?;
        let output = self.complete(child, read_output(stdout)).await?;
        let text = String::from_utf8_lossy(&output);
        if text.contains(token.expose_secret()) {
            return Err(CommandError::Token);
        }
        let line = text.strip_suffix('\n').unwrap_or(&text);
        Ok(line.strip_suffix('\r').unwrap_or(line).parse()?)
    }

    /// Destroys the machine of a launch, if there is one.
    pub(super) async fn destroy(&self, row: &HostLaunchRow) -> Result<(), CommandError> {
        let mut command = command(&self.config.destroy_command, &row.id);
        if let Some(engine_id) = &row.life.engine_id {
            command.env("BERTH_LAUNCH_ENGINE_ID", engine_id.as_str());
        }
        let name = "destroy command";
        let log = log_parser(name, &row.id, None);
        let (child, stdout) = spawn(name, command, Stdio::null(), log).await?;
        self.complete(child, discard_output(stdout)).await
    }

    /// Waits until the command has exited with success, and its output is read. Kills its process
    /// group in any case.
    async fn complete<T>(
        &self,
        mut child: Child,
        reading: impl Future<Output = Result<T, CommandError>>,
    ) -> Result<T, CommandError> {
        let ending = async {
            let exit = async {
                let status = child.wait().await;
                match &status {
                    Ok(exit) if exit.success() => Ok(()),
                    _ => Err(CommandError::Exit(describe_exit(status))),
                }
            };
            let (output, ()) = tokio::try_join!(reading, exit)?;
            Ok(output)
        };
        let limit = self.config.command_timeout;
        tokio::select! {
            ended = timeout(limit, ending) => {
                ended.unwrap_or(Err(CommandError::Timeout(limit.as_secs())))
            }
            () = self.shutdown.requested() => Err(CommandError::Shutdown),
        }
    }
}

fn command(program: &Path, launch: &LaunchId) -> Command {
    let mut command = Command::new(program);
    command.env("BERTH_LAUNCH_ID", launch.as_str());
    command
}

async fn spawn(
    name: &'static str,
    command: Command,
    stdin: Stdio,
    log: LogParser,
) -> Result<(Child, Option<ChildStdout>), CommandError> {
    let (inherited, stdout) = (Inherited::Helper, Stdout::Pipe);
    Child::spawn_with_stdin_and_log_parser(name, command, inherited, stdin, stdout, log)
        .await
        .map_err(CommandError::Spawn)
}

/// Returns a pipe with the join token as one line of JSON.
fn token_input(token: &SecretString) -> io::Result<PipeReader> {
    let (reader, mut writer) = io::pipe()?;
    let input = serde_json::json!({ "join_token": token.expose_secret() });
    // Shorter than the capacity of a pipe, so that this does not block.
    writeln!(writer, "{input}")?;
    Ok(reader)
}

/// Returns a parser that logs the first lines, without the join token.
fn log_parser(command: &'static str, launch: &LaunchId, token: Option<SecretString>) -> LogParser {
    let (launch, logged) = (launch.clone(), AtomicUsize::new(0));
    Box::new(move |line| {
        let mut text = match &token {
            Some(token) => line.replace(token.expose_secret(), REDACTED),
            None => line.to_owned(),
        };
        text.truncate(text.floor_char_boundary(MAX_LOG_LINE));
        match logged.fetch_add(1, Ordering::Relaxed) {
            count if count < MAX_LOG_LINES => tracing::info!(%launch, command, "{text}"),
            MAX_LOG_LINES => {
                tracing::warn!(%launch, command, "further output is not logged");
            }
            _ => {}
        }
        Some(text)
    })
}

async fn read_output(stdout: Option<impl AsyncRead + Unpin>) -> Result<Vec<u8>, CommandError> {
    let mut output = Vec::new();
    if let Some(stdout) = stdout {
        let mut limited = stdout.take(MAX_OUTPUT + 1);
        let read = limited.read_to_end(&mut output).await;
        read.map_err(CommandError::Output)?;
    }
    match output.len() as u64 > MAX_OUTPUT {
        true => Err(CommandError::LongOutput),
        false => Ok(output),
    }
}

async fn discard_output(stdout: Option<impl AsyncRead + Unpin>) -> Result<(), CommandError> {
    if let Some(mut stdout) = stdout {
        let discarded = tokio::io::copy(&mut stdout, &mut tokio::io::sink()).await;
        discarded.map_err(CommandError::Output)?;
    }
    Ok(())
}

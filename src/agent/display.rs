//! The screen: an Xvfb of our own, reachable only with our cookie.

use std::{
    fs, io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    process::{ChildStdout, Command},
    time,
};

use crate::{
    agent::settings::Config,
    api::viewport::Viewport,
    system::child::{Child, Stdout},
};

const START_DEADLINE: Duration = Duration::from_secs(20);
const END_GRACE: Duration = Duration::from_secs(2);
const DEPTH: u32 = 24;

#[derive(Debug, thiserror::Error)]
pub enum DisplayError {
    #[error("the X server could not be started: {0}")]
    Spawn(#[from] io::Error),
    #[error("the X server ended while starting: {0}")]
    Ended(String),
    #[error("the X server was not ready within {} s", START_DEADLINE.as_secs())]
    Deadline,
}

/// A running X server.
pub struct Display {
    child: Child,
    /// `:0`.
    name: String,
    authority: PathBuf,
}

impl Display {
    pub async fn start(config: &Config, viewport: Viewport) -> Result<Self, DisplayError> {
        let authority = config.state_dir.run().join("Xauthority");
        write_authority(&authority)?;
        remove_dead_locks(Path::new("/tmp"));
        let mut command = Command::new(&config.xvfb);
        command
            // The server picks a free number itself and says it: two that start at once cannot meet.
            .args(["-displayfd", "1"])
            .args(["-screen", "0"])
            .arg(format!("{}x{}x{DEPTH}", viewport.width, viewport.height))
            .args(["-nolisten", "tcp", "-noreset", "-auth"])
            .arg(&authority);
        let (mut child, stdout) = Child::spawn("xvfb", command, Stdout::Take).await?;
        let stdout = stdout.ok_or_else(|| io::Error::from(io::ErrorKind::BrokenPipe))?;
        let number = tokio::select! {
            number = time::timeout(START_DEADLINE, read_number(stdout)) => number,
            status = child.wait() => {
                return Err(DisplayError::Ended(format!("{}: {}", describe(status), child.tail())));
            }
        };
        let number = match number {
            Ok(Ok(number)) => number,
            Ok(Err(error)) => {
                return Err(DisplayError::Ended(format!("{error}: {}", child.tail())));
            }
            Err(_) => return Err(DisplayError::Deadline),
        };
        Ok(Self {
            child,
            name: format!(":{number}"),
            authority,
        })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn authority(&self) -> &Path {
        &self.authority
    }

    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// Resolves with the reason when the server ends.
    pub async fn ended(&mut self) -> String {
        let status = self.child.wait().await;
        format!("the X server ended ({})", describe(status))
    }

    pub async fn end(self) {
        let _ = self.child.end(END_GRACE).await;
    }
}

fn describe(status: io::Result<std::process::ExitStatus>) -> String {
    match status {
        Ok(status) => status.to_string(),
        Err(error) => error.to_string(),
    }
}

/// The number on the first line; what may follow is read on, so that the server never waits for us.
async fn read_number(stdout: ChildStdout) -> io::Result<u32> {
    const LONGEST: u64 = 16;
    let mut reader = BufReader::new(stdout);
    let mut line = String::new();
    (&mut reader).take(LONGEST).read_line(&mut line).await?;
    let number = line.trim().parse().map_err(|_| {
        io::Error::other(format!("it told no display number but `{}`", line.trim()))
    })?;
    tokio::spawn(async move { tokio::io::copy(&mut reader, &mut tokio::io::sink()).await });
    Ok(number)
}

/// A fresh cookie for any display number: the file holds no other.
fn write_authority(path: &Path) -> io::Result<()> {
    use io::Write;
    const FAMILY_WILD: u16 = 0xffff;
    const NAME: &[u8] = b"MIT-MAGIC-COOKIE-1";
    let mut cookie = [0; 16];
    getrandom::fill(&mut cookie).map_err(io::Error::other)?;

    let mut entry = FAMILY_WILD.to_be_bytes().to_vec();
    // Address and display number are empty: they match all.
    for part in [&[][..], &[], NAME, &cookie] {
        entry.extend((part.len() as u16).to_be_bytes());
        entry.extend(part);
    }
    // Removed first: a file that was left open to others would stay so.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?
        .write_all(&entry)
}

/// Removes lock files whose process is gone or is no X server any more. The server itself removes only those of the first kind, and
/// gives up on a number that was given to another process since.
fn remove_dead_locks(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_lock = name.to_str().is_some_and(|name| {
            name.strip_prefix(".X")
                .and_then(|rest| rest.strip_suffix("-lock"))
                .is_some_and(|number| {
                    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
                })
        });
        if is_lock && !held_by_x_server(&entry.path()) {
            tracing::info!(lock = %entry.path().display(), "removed a stale X lock");
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn held_by_x_server(lock: &Path) -> bool {
    let Ok(content) = fs::read_to_string(lock) else {
        // Not ours to judge.
        return true;
    };
    let Ok(pid) = content.trim().parse::<u32>() else {
        // Being written at this moment, or torn by a crash; the server treats it well itself.
        return true;
    };
    fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.starts_with('X'))
}

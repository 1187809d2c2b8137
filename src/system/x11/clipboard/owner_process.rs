//! The handle of the child process that owns the clipboard.

use std::{io, path::Path, process::Stdio};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::{Child, ChildStdin, ChildStdout, Command},
    task::JoinHandle,
};

use super::{COMMAND, event, request};
use crate::system::{
    process::{child, environment::Inherited},
    x11::server::DisplayAccess,
};

/// Bytes of the child's error output that are kept.
const MAX_DIAGNOSTICS: u64 = 1024;

#[derive(Debug, thiserror::Error)]
pub enum OwnerError {
    #[error("cannot start the clipboard owner process: {0}")]
    Start(io::Error),
    #[error("the clipboard owner process has exited ({status}): {stderr}")]
    Exited { status: String, stderr: String },
}

/// The way a text is offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OfferMode {
    /// Replaces any owner.
    Replace,
    /// Only if the clipboard has no owner.
    Restore,
}

/// Whether the child owns the clipboard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ownership {
    Acquired,
    /// The last offered text is not on the clipboard any more.
    Lost,
}

/// A running child for one screen. It is killed when this is dropped, and exits with its screen and
/// with this process.
pub struct OwnerProcess {
    child: Child,
    input: ChildStdin,
    events: ChildStdout,
    stderr: JoinHandle<String>,
    access: DisplayAccess,
}

impl OwnerProcess {
    /// Starts the child. `authority` is the file with the display's cookie.
    pub async fn start(access: DisplayAccess, authority: &Path) -> Result<Self, OwnerError> {
        let mut command = Command::new(child::OWN_PROGRAM);
        command
            .arg0("berth")
            .arg(COMMAND)
            .env("DISPLAY", format!(":{}", access.number))
            .env("XAUTHORITY", authority)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let child = child::spawn(command, Inherited::Plain).await;
        let mut child = child.map_err(OwnerError::Start)?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(input), Some(events), Some(errors)) = pipes else {
            return Err(OwnerError::Start(io::ErrorKind::BrokenPipe.into()));
        };
        let stderr = tokio::spawn(async move {
            let mut text = Vec::new();
            // A read error still leaves the text read before.
            let _ = errors.take(MAX_DIAGNOSTICS).read_to_end(&mut text).await;
            String::from_utf8_lossy(&text).trim_end().to_owned()
        });
        Ok(Self {
            child,
            input,
            events,
            stderr,
            access,
        })
    }

    pub fn access(&self) -> &DisplayAccess {
        &self.access
    }

    /// Offers `text` and returns whether the clipboard was acquired. Not cancel-safe: if the future
    /// is dropped, a partial request may have been sent, and the process must be dropped as well.
    pub async fn offer(&mut self, text: &str, mode: OfferMode) -> Result<Ownership, OwnerError> {
        let sent = self.send(text, mode).await;
        match sent {
            Ok(()) => loop {
                match (self.next().await?, mode) {
                    // An event from before the offer.
                    (Ownership::Lost, OfferMode::Replace) => {}
                    (ownership, _) => return Ok(ownership),
                }
            },
            Err(_) => Err(self.exit_error().await),
        }
    }

    async fn send(&mut self, text: &str, mode: OfferMode) -> io::Result<()> {
        let kind = match mode {
            OfferMode::Replace => request::OFFER,
            OfferMode::Restore => request::RESTORE,
        };
        let length = u32::try_from(text.len()).map_err(io::Error::other)?;
        let mut header = vec![kind];
        header.extend(length.to_le_bytes());
        self.input.write_all(&header).await?;
        self.input.write_all(text.as_bytes()).await?;
        self.input.flush().await
    }

    /// Returns the next change of ownership. Cancel-safe.
    pub async fn next(&mut self) -> Result<Ownership, OwnerError> {
        let mut event = [0];
        match self.events.read(&mut event).await {
            Ok(1..) if event[0] == event::ACQUIRED => Ok(Ownership::Acquired),
            Ok(1..) => Ok(Ownership::Lost),
            Ok(0) | Err(_) => Err(self.exit_error().await),
        }
    }

    async fn exit_error(&mut self) -> OwnerError {
        // It has closed a pipe, so it is useless even if it is still running.
        let _ = self.child.start_kill();
        let status = child::describe_exit(self.child.wait().await);
        let stderr = (&mut self.stderr).await.unwrap_or_default();
        OwnerError::Exited { status, stderr }
    }

    pub async fn kill(mut self) {
        let _ = self.child.kill().await;
    }
}

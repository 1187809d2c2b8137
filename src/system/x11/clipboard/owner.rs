//! The child that owns the clipboard, as its parent sees it.

use std::{io, path::Path, process::Stdio};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::{Child, ChildStdin, ChildStdout, Command},
    task::JoinHandle,
};

use super::{COMMAND, event, request};
use crate::system::{process::child, x11::server::DisplayAccess};

/// Also where the file of the running program was replaced or removed since.
const OWN_PROGRAM: &str = "/proc/self/exe";
/// What is kept of what it says when it fails.
const MAX_DIAGNOSTICS: u64 = 1024;

#[derive(Debug, thiserror::Error)]
pub enum OwnerError {
    #[error("the clipboard's process cannot be started: {0}")]
    Start(io::Error),
    #[error("the clipboard's process has ended ({status}): {said}")]
    Ended { status: String, said: String },
}

/// How a text is offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// Whoever has the clipboard now.
    Take,
    /// Only where it is nobody's.
    Restore,
}

/// Whose the clipboard is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offered {
    Ours,
    /// Somebody else's or nobody's: what we offered last is not on it any more.
    Lost,
}

/// A running child on one screen. It dies with this value, with its screen and with this process.
pub struct Owner {
    child: Child,
    input: ChildStdin,
    events: ChildStdout,
    said: JoinHandle<String>,
    screen: DisplayAccess,
}

impl Owner {
    /// Starts it on `screen`, whose cookie lies in `authority`.
    pub async fn start(screen: DisplayAccess, authority: &Path) -> Result<Self, OwnerError> {
        let mut command = Command::new(OWN_PROGRAM);
        command
            .arg0("berth")
            .arg(COMMAND)
            .env_clear()
            .env("DISPLAY", format!(":{}", screen.number))
            .env("XAUTHORITY", authority)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut child = child::spawn(command).await.map_err(OwnerError::Start)?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(input), Some(events), Some(stderr)) = pipes else {
            return Err(OwnerError::Start(io::ErrorKind::BrokenPipe.into()));
        };
        let said = tokio::spawn(async move {
            let mut said = Vec::new();
            // What there is of it is told, whatever ended it.
            let _ = stderr.take(MAX_DIAGNOSTICS).read_to_end(&mut said).await;
            String::from_utf8_lossy(&said).trim_end().to_owned()
        });
        Ok(Self {
            child,
            input,
            events,
            said,
            screen,
        })
    }

    pub fn screen(&self) -> &DisplayAccess {
        &self.screen
    }

    /// Has it offer `text`, and waits for what came of it. Where the returned future is dropped, half a message may have been sent: end it then.
    pub async fn offer(&mut self, text: &str, how: Offer) -> Result<Offered, OwnerError> {
        let sent = self.send(text, how).await;
        match sent {
            Ok(()) => loop {
                match (self.next().await?, how) {
                    // Somebody else was faster, which is over.
                    (Offered::Lost, Offer::Take) => {}
                    (offered, _) => return Ok(offered),
                }
            },
            Err(_) => Err(self.ended().await),
        }
    }

    async fn send(&mut self, text: &str, how: Offer) -> io::Result<()> {
        let what = match how {
            Offer::Take => request::TAKE,
            Offer::Restore => request::RESTORE,
        };
        let length = u32::try_from(text.len()).map_err(io::Error::other)?;
        let mut header = vec![what];
        header.extend(length.to_le_bytes());
        self.input.write_all(&header).await?;
        self.input.write_all(text.as_bytes()).await?;
        self.input.flush().await
    }

    /// The next change of the clipboard's owner. Cancel-safe.
    pub async fn next(&mut self) -> Result<Offered, OwnerError> {
        let mut told = [0];
        match self.events.read(&mut told).await {
            Ok(1..) if told[0] == event::OURS => Ok(Offered::Ours),
            Ok(1..) => Ok(Offered::Lost),
            Ok(0) | Err(_) => Err(self.ended().await),
        }
    }

    async fn ended(&mut self) -> OwnerError {
        // It has closed its end; should it still live, it is of no use.
        let _ = self.child.start_kill();
        let status = child::describe_exit(self.child.wait().await);
        let said = (&mut self.said).await.unwrap_or_default();
        OwnerError::Ended { status, said }
    }

    /// Ends it.
    pub async fn kill(mut self) {
        let _ = self.child.kill().await;
    }
}

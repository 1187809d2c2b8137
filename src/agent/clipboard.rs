//! The clipboard of the browser's screen.
//!
//! The last written text is owned by one task. It has a child process offer the text, and restarts
//! that process when it dies or when the screen changes.
//!
//! ```text
//!  write ──► queue ──► OfferTask ──► OwnerProcess ──► X server ◄── read, watch
//!                         ▲  │
//!          browser state ─┘  └──► OfferedText: the fallback for reads while nothing owns the
//!                                 clipboard
//! ```
//!
//! Each read asks the current owner over its own connection: an owner that does not respond delays
//! only those who read from it, and these up to a timeout.

use std::{path::Path, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{
    sync::{Semaphore, mpsc, oneshot, watch},
    task::spawn_blocking,
    time::{Instant, timeout},
};

use super::{
    chromium::{BrowserState, Chromium, NoScreen},
    optional_sleep::sleep_until_some,
};
use crate::{
    api::clipboard::MAX_TEXT,
    backoff::Backoff,
    shutdown::Shutdown,
    system::{
        sync::waker::WakeOnDrop,
        x11::clipboard::{
            ClipboardContent, OfferMode, OwnerError, OwnerProcess, Ownership, ReadError,
            SelectionWatch, read,
        },
    },
};

/// The time the clipboard's owner may take to send its text.
pub const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// Additional time to connect and clean up.
const READ_GRACE_PERIOD: Duration = Duration::from_secs(1);
/// The number of concurrent reads. Each occupies a thread until its timeout.
pub const MAX_READS: usize = 16;
/// The time the child process may take to start and own the clipboard, normally some ten
/// milliseconds.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// The number of queued writes.
pub const MAX_WRITES: usize = 16;
/// The delays between attempts to offer the text again.
const FIRST_RESTORE_DELAY: Duration = Duration::from_millis(100);
const MAX_RESTORE_DELAY: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub enum ClipboardError {
    #[error(transparent)]
    NoScreen(#[from] NoScreen),
    #[error("the text is larger than {MAX_TEXT} bytes")]
    TooLarge(usize),
    #[error("concurrent clipboard read limit reached ({MAX_READS})")]
    TooManyReads,
    #[error("the clipboard write queue is full ({MAX_WRITES})")]
    TooManyWrites,
    #[error("the clipboard was not acquired within {} s", .0.as_secs())]
    WriteTimeout(Duration),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("cannot write the clipboard")]
    Write(#[source] OwnerError),
    #[error("the agent is shutting down")]
    ShuttingDown,
}

/// The handle of the clipboard. Clones share it.
#[derive(Clone)]
pub struct Clipboard {
    chromium: Chromium,
    reads: Arc<Semaphore>,
    writes: mpsc::Sender<WriteRequest>,
    offered: OfferedText,
}

struct WriteRequest {
    text: Arc<str>,
    reply: oneshot::Sender<Result<(), ClipboardError>>,
}

/// The last written text, until something else is put on the clipboard.
#[derive(Clone, Default)]
struct OfferedText(Arc<Mutex<Option<Arc<str>>>>);

impl OfferedText {
    fn get(&self) -> Option<Arc<str>> {
        self.0.lock().clone()
    }

    fn set(&self, text: Option<Arc<str>>) {
        *self.0.lock() = text;
    }
}

impl Clipboard {
    /// Starts the task that owns the written text, at first that of the program before. `authority`
    /// is the file with the display's cookie.
    pub fn start(
        chromium: Chromium,
        authority: &Path,
        text: Option<String>,
        shutdown: &Shutdown,
    ) -> Self {
        let (writes, write_receiver) = mpsc::channel(MAX_WRITES);
        let offered = OfferedText::default();
        offered.set(text.map(Into::into));
        let task = OfferTask {
            state: chromium.watch(),
            chromium: chromium.clone(),
            authority: authority.into(),
            shutdown: shutdown.clone(),
            writes: write_receiver,
            offered: offered.clone(),
            owner: None,
            retry_at: None,
            backoff: Backoff::new(FIRST_RESTORE_DELAY, MAX_RESTORE_DELAY),
        };
        shutdown.spawn(task.run());
        Self {
            chromium,
            reads: Arc::new(Semaphore::new(MAX_READS)),
            writes,
            offered,
        }
    }

    /// Returns the last written text, unless something else was put on the clipboard.
    pub(super) fn written_text(&self) -> Option<String> {
        self.offered.get().map(|text| text.to_string())
    }

    /// Returns the text on the clipboard, or an empty string if there is none.
    pub async fn read(&self) -> Result<String, ClipboardError> {
        let access = self.chromium.screen()?;
        let permit = self.reads.clone().try_acquire_owned();
        let permit = permit.map_err(|_| ClipboardError::TooManyReads)?;
        let reading = spawn_blocking(move || {
            let _permit = permit;
            read(&access, READ_TIMEOUT)
        });
        // If even connecting blocks, the thread keeps running, and keeps its permit.
        match timeout(READ_TIMEOUT + READ_GRACE_PERIOD, reading).await {
            Ok(Ok(Ok(ClipboardContent::Text(text)))) => Ok(text),
            Ok(Ok(Ok(ClipboardContent::NotText))) => Ok(String::new()),
            // The written text is about to be offered again.
            Ok(Ok(Ok(ClipboardContent::Unowned))) => {
                Ok(self.offered.get().as_deref().unwrap_or("").into())
            }
            Ok(Ok(Err(error))) => Err(error.into()),
            Ok(Err(_)) => Err(ClipboardError::ShuttingDown),
            Err(_) => Err(ReadError::Timeout(READ_TIMEOUT).into()),
        }
    }

    /// Starts watching for what any program puts on the clipboard from now on.
    pub async fn watch(&self) -> Result<ClipboardWatch, ClipboardError> {
        let access = self.chromium.screen()?;
        let opening = spawn_blocking(move || SelectionWatch::open(&access));
        match timeout(READ_TIMEOUT + READ_GRACE_PERIOD, opening).await {
            Ok(Ok(Ok(selection))) => Ok(ClipboardWatch {
                clipboard: self.clone(),
                selection,
            }),
            Ok(Ok(Err(error))) => Err(ReadError::from(error).into()),
            Ok(Err(_)) => Err(ClipboardError::ShuttingDown),
            Err(_) => Err(ReadError::Timeout(READ_TIMEOUT).into()),
        }
    }

    /// Puts `text` on the clipboard, where it stays until something else is put there.
    pub async fn write(&self, text: String) -> Result<(), ClipboardError> {
        if text.len() > MAX_TEXT {
            return Err(ClipboardError::TooLarge(text.len()));
        }
        let (reply, result) = oneshot::channel();
        let text = text.into();
        self.writes
            .try_send(WriteRequest { text, reply })
            .map_err(|error| match error {
                mpsc::error::TrySendError::Full(_) => ClipboardError::TooManyWrites,
                mpsc::error::TrySendError::Closed(_) => ClipboardError::ShuttingDown,
            })?;
        result.await.unwrap_or(Err(ClipboardError::ShuttingDown))
    }
}

/// Watches for the next text on the clipboard.
pub struct ClipboardWatch {
    clipboard: Clipboard,
    selection: SelectionWatch,
}

impl ClipboardWatch {
    /// Returns the next text that is put on the clipboard (empty if it is not text), or `None` if
    /// there is none within `limit`.
    pub async fn next(self, limit: Duration) -> Result<Option<String>, ClipboardError> {
        let Self {
            clipboard,
            selection,
        } = self;
        // Ends the waiting thread if this future is dropped.
        let _wake = WakeOnDrop(selection.waker());
        let waiting = spawn_blocking(move || selection.wait(limit));
        match waiting.await {
            Ok(Ok(true)) => clipboard.read().await.map(Some),
            Ok(Ok(false)) => Ok(None),
            Ok(Err(error)) => Err(ReadError::from(error).into()),
            Err(_) => Err(ClipboardError::ShuttingDown),
        }
    }
}

/// The task that owns the child process, and with it the written text.
struct OfferTask {
    chromium: Chromium,
    state: watch::Receiver<BrowserState>,
    authority: Arc<Path>,
    shutdown: Shutdown,
    writes: mpsc::Receiver<WriteRequest>,
    offered: OfferedText,
    owner: Option<OwnerProcess>,
    /// When to try again to offer the text.
    retry_at: Option<Instant>,
    backoff: Backoff,
}

impl OfferTask {
    async fn run(mut self) {
        let shutdown = self.shutdown.clone();
        loop {
            tokio::select! {
                biased;
                () = shutdown.requested() => break,
                event = next_event(&mut self.owner) => self.handle_event(event),
                write = self.writes.recv() => match write {
                    Some(write) => self.write(write).await,
                    None => break,
                },
                () = sleep_until_some(self.retry_at) => self.restore().await,
                changed = self.state.changed() => match changed {
                    Ok(()) => self.restore().await,
                    Err(_) => break,
                },
            }
        }
        if let Some(owner) = self.owner {
            owner.kill().await;
        }
    }

    fn handle_event(&mut self, event: Result<Ownership, OwnerError>) {
        match event {
            Ok(Ownership::Acquired) => {}
            Ok(Ownership::Lost) => self.offered.set(None),
            Err(error) => {
                tracing::warn!(%error, "clipboard owner process exited");
                self.owner = None;
                self.backoff.reset();
                self.retry_at = Some(Instant::now());
            }
        }
    }

    async fn write(&mut self, write: WriteRequest) {
        // The caller has gone and does not rely on the text.
        if write.reply.is_closed() {
            return;
        }
        let shutdown = self.shutdown.clone();
        let result = tokio::select! {
            result = self.replace(&write.text) => result,
            () = shutdown.requested() => Err(ClipboardError::ShuttingDown),
        };
        if result.is_ok() {
            self.offered.set(Some(write.text));
        }
        let _ = write.reply.send(result);
    }

    async fn replace(&mut self, text: &str) -> Result<(), ClipboardError> {
        let had_process = self.owner.is_some();
        match self.offer(text, OfferMode::Replace).await {
            // The process may have died unnoticed before. A new one is started.
            Err(ClipboardError::Write(_)) if had_process => {
                self.offer(text, OfferMode::Replace).await
            }
            result => result,
        }
        .map(drop)
    }

    /// Offers the text again after its process has died or the screen has changed, unless something
    /// else was copied since.
    async fn restore(&mut self) {
        if self.retry_at.take().is_none() {
            self.backoff.reset();
        }
        let Some(text) = self.offered.get() else {
            return;
        };
        // The next change of the browser's state leads here again.
        let Ok(access) = self.chromium.screen() else {
            return;
        };
        if self
            .owner
            .as_ref()
            .is_some_and(|owner| *owner.access() == access)
        {
            return;
        }
        match self.offer(&text, OfferMode::Restore).await {
            Ok(Ownership::Acquired) => {}
            Ok(Ownership::Lost) => self.offered.set(None),
            Err(error) => {
                tracing::warn!(%error, "cannot offer the clipboard text again yet");
                self.retry_at = Some(Instant::now() + self.backoff.next_delay());
            }
        }
    }

    /// Offers `text` on the current screen. Starts a process if there is none, and ends one that
    /// failed.
    async fn offer(&mut self, text: &str, mode: OfferMode) -> Result<Ownership, ClipboardError> {
        let access = self.chromium.screen()?;
        let existing = self.owner.take().filter(|owner| *owner.access() == access);
        let offer = async {
            let mut owner = match existing {
                Some(owner) => owner,
                None => OwnerProcess::start(access, &self.authority).await?,
            };
            let ownership = owner.offer(text, mode).await?;
            Ok((owner, ownership))
        };
        match timeout(WRITE_TIMEOUT, offer).await {
            Ok(Ok((owner, ownership))) => {
                self.owner = Some(owner);
                Ok(ownership)
            }
            Ok(Err(error)) => Err(ClipboardError::Write(error)),
            Err(_) => Err(ClipboardError::WriteTimeout(WRITE_TIMEOUT)),
        }
    }
}

async fn next_event(owner: &mut Option<OwnerProcess>) -> Result<Ownership, OwnerError> {
    match owner {
        Some(owner) => owner.next().await,
        None => std::future::pending().await,
    }
}

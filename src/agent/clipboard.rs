//! The clipboard of the browser's screen.
//!
//! What was written is kept by one task, which has a child process offer it and starts that again when it dies, or when the screen is
//! another one. Reading asks whoever has the clipboard, each time on a connection of its own: an owner that does not answer
//! keeps nobody waiting but those who read from it, and these not for ever.

use std::{path::Path, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{
    sync::{Semaphore, mpsc, oneshot, watch},
    task::spawn_blocking,
    time::{Instant, sleep_until, timeout},
};

use super::chromium::{BrowserState, Chromium, NoScreen};
use crate::{
    api::clipboard::MAX_TEXT,
    shutdown::Shutdown,
    system::{
        sync::waker::WakeOnDrop,
        x11::clipboard::{Changes, Offer, Offered, Owner, OwnerError, ReadError, Selection, read},
    },
};

/// How long the program that has the clipboard may take to give what is on it.
pub const READ_LIMIT: Duration = Duration::from_secs(5);
/// Beyond that, for what is done before and after it.
const READ_MARGIN: Duration = Duration::from_secs(1);
/// Texts that are read at once. Each has a thread until its time is over.
pub const MAX_READS: usize = 16;
/// For a process to start and take the clipboard, which are some ten milliseconds.
const WRITE_LIMIT: Duration = Duration::from_secs(10);
/// Texts that may wait to be written, each for the one before it.
pub const MAX_WRITES: usize = 16;
/// Between attempts to offer again what is not offered any more.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub enum ClipboardError {
    #[error(transparent)]
    NoScreen(#[from] NoScreen),
    #[error("the clipboard takes {MAX_TEXT} bytes of text at most")]
    TooLarge(usize),
    #[error("{MAX_READS} requests are reading the clipboard already")]
    TooManyReads,
    #[error("{MAX_WRITES} texts wait to be written to the clipboard already")]
    TooManyWrites,
    #[error("the clipboard was not taken within {} s", .0.as_secs())]
    NotTaken(Duration),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("the clipboard could not be written")]
    Write(#[source] OwnerError),
    #[error("the agent is being stopped")]
    Stopping,
}

/// The handle; a task owns what was written.
#[derive(Clone)]
pub struct Clipboard {
    chromium: Chromium,
    reads: Arc<Semaphore>,
    writes: mpsc::Sender<Write>,
    offered: SharedText,
}

struct Write {
    text: Arc<str>,
    reply: oneshot::Sender<Result<(), ClipboardError>>,
}

/// What was written last, as long as nothing else has been on the clipboard since.
#[derive(Clone, Default)]
struct SharedText(Arc<Mutex<Option<Arc<str>>>>);

impl SharedText {
    fn get(&self) -> Option<Arc<str>> {
        self.0.lock().clone()
    }

    fn set(&self, text: Option<Arc<str>>) {
        *self.0.lock() = text;
    }
}

impl Clipboard {
    /// Begins to keep what is written. `authority` is the file with the screen's cookie.
    pub fn start(chromium: Chromium, authority: &Path, shutdown: &Shutdown) -> Self {
        let (writes, queue) = mpsc::channel(MAX_WRITES);
        let offered = SharedText::default();
        let keeper = Keeper {
            state: chromium.watch(),
            chromium: chromium.clone(),
            authority: authority.into(),
            shutdown: shutdown.clone(),
            writes: queue,
            offered: offered.clone(),
            owner: None,
            again: None,
        };
        shutdown.spawn(keeper.run());
        Self {
            chromium,
            reads: Arc::new(Semaphore::new(MAX_READS)),
            writes,
            offered,
        }
    }

    /// The text on the clipboard; empty where there is none.
    pub async fn read(&self) -> Result<String, ClipboardError> {
        let screen = self.chromium.screen()?;
        let turn = self.reads.clone().try_acquire_owned();
        let turn = turn.map_err(|_| ClipboardError::TooManyReads)?;
        let reading = spawn_blocking(move || {
            let _turn = turn;
            read(&screen, READ_LIMIT)
        });
        // A screen that does not even take a connection keeps the thread, and its turn.
        match timeout(READ_LIMIT + READ_MARGIN, reading).await {
            Ok(Ok(Ok(Selection::Text(text)))) => Ok(text),
            Ok(Ok(Ok(Selection::NoText))) => Ok(String::new()),
            // What was written is about to be offered again.
            Ok(Ok(Ok(Selection::Nobodys))) => {
                Ok(self.offered.get().as_deref().unwrap_or("").into())
            }
            Ok(Ok(Err(error))) => Err(error.into()),
            Ok(Err(_)) => Err(ClipboardError::Stopping),
            Err(_) => Err(ReadError::NoAnswer(READ_LIMIT).into()),
        }
    }

    /// Has what is put on the clipboard from now on told, whoever does that.
    pub async fn watch(&self) -> Result<Watch, ClipboardError> {
        let screen = self.chromium.screen()?;
        let opening = spawn_blocking(move || Changes::open(&screen));
        match timeout(READ_LIMIT + READ_MARGIN, opening).await {
            Ok(Ok(Ok(changes))) => Ok(Watch {
                clipboard: self.clone(),
                changes,
            }),
            Ok(Ok(Err(error))) => Err(ReadError::from(error).into()),
            Ok(Err(_)) => Err(ClipboardError::Stopping),
            Err(_) => Err(ReadError::NoAnswer(READ_LIMIT).into()),
        }
    }

    /// Puts `text` on the clipboard, where it stays until something else is put there.
    pub async fn write(&self, text: String) -> Result<(), ClipboardError> {
        if text.len() > MAX_TEXT {
            return Err(ClipboardError::TooLarge(text.len()));
        }
        let (reply, written) = oneshot::channel();
        let text = text.into();
        self.writes
            .try_send(Write { text, reply })
            .map_err(|error| match error {
                mpsc::error::TrySendError::Full(_) => ClipboardError::TooManyWrites,
                mpsc::error::TrySendError::Closed(_) => ClipboardError::Stopping,
            })?;
        written.await.unwrap_or(Err(ClipboardError::Stopping))
    }
}

/// What is put on the clipboard.
pub struct Watch {
    clipboard: Clipboard,
    changes: Changes,
}

impl Watch {
    /// The text that is put there next, empty where it is no text; nothing where nothing is put there within `limit`.
    pub async fn next(self, limit: Duration) -> Result<Option<String>, ClipboardError> {
        let Self { clipboard, changes } = self;
        // Once nobody waits for it any more, the thread that does is to end.
        let _bell = WakeOnDrop(changes.waker());
        let waiting = spawn_blocking(move || changes.wait(limit));
        match waiting.await {
            Ok(Ok(true)) => clipboard.read().await.map(Some),
            Ok(Ok(false)) => Ok(None),
            Ok(Err(error)) => Err(ReadError::from(error).into()),
            Err(_) => Err(ClipboardError::Stopping),
        }
    }
}

/// The task: the one that starts, asks and ends the process that owns the clipboard.
struct Keeper {
    chromium: Chromium,
    state: watch::Receiver<BrowserState>,
    authority: Arc<Path>,
    shutdown: Shutdown,
    writes: mpsc::Receiver<Write>,
    offered: SharedText,
    owner: Option<Owner>,
    /// When to try again to offer the text, and how long to wait after that.
    again: Option<(Instant, Duration)>,
}

impl Keeper {
    async fn run(mut self) {
        let shutdown = self.shutdown.clone();
        loop {
            tokio::select! {
                biased;
                () = shutdown.stopped() => break,
                told = next(&mut self.owner) => self.told(told),
                write = self.writes.recv() => match write {
                    Some(write) => self.write(write).await,
                    None => break,
                },
                () = due(self.again) => self.restore().await,
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

    fn told(&mut self, told: Result<Offered, OwnerError>) {
        match told {
            Ok(Offered::Ours) => {}
            Ok(Offered::Lost) => self.offered.set(None),
            Err(error) => {
                tracing::warn!(%error, "the clipboard's owner has gone");
                self.owner = None;
                self.again = Some((Instant::now(), FIRST_PAUSE));
            }
        }
    }

    async fn write(&mut self, write: Write) {
        // Nobody waits for it any more, and nobody was told that it is there.
        if write.reply.is_closed() {
            return;
        }
        let shutdown = self.shutdown.clone();
        let written = tokio::select! {
            written = self.take(&write.text) => written,
            () = shutdown.stopped() => Err(ClipboardError::Stopping),
        };
        if written.is_ok() {
            self.offered.set(Some(write.text));
        }
        let _ = write.reply.send(written);
    }

    async fn take(&mut self, text: &str) -> Result<(), ClipboardError> {
        let had_one = self.owner.is_some();
        match self.offer(text, Offer::Take).await {
            // It may have been dead for a moment.
            Err(ClipboardError::Write(_)) if had_one => self.offer(text, Offer::Take).await,
            taken => taken,
        }
        .map(drop)
    }

    /// Offers again what nobody has replaced, where the process that did so has died or the screen is another one.
    async fn restore(&mut self) {
        let pause = self.again.take().map_or(FIRST_PAUSE, |(_, pause)| pause);
        let Some(text) = self.offered.get() else {
            return;
        };
        // The next screen is told by the browser's state.
        let Ok(screen) = self.chromium.screen() else {
            return;
        };
        if self
            .owner
            .as_ref()
            .is_some_and(|owner| *owner.screen() == screen)
        {
            return;
        }
        match self.offer(&text, Offer::Restore).await {
            Ok(Offered::Ours) => {}
            Ok(Offered::Lost) => self.offered.set(None),
            Err(error) => {
                tracing::warn!(%error, "the clipboard's text cannot be offered again yet");
                let next = (pause * 2).min(LONGEST_PAUSE);
                self.again = Some((Instant::now() + pause, next));
            }
        }
    }

    /// Has the owner of this screen offer `text`; one is started where there is none. One that failed is ended.
    async fn offer(&mut self, text: &str, how: Offer) -> Result<Offered, ClipboardError> {
        let screen = self.chromium.screen()?;
        let fitting = self.owner.take().filter(|owner| *owner.screen() == screen);
        let offering = async {
            let mut owner = match fitting {
                Some(owner) => owner,
                None => Owner::start(screen, &self.authority).await?,
            };
            let offered = owner.offer(text, how).await?;
            Ok((owner, offered))
        };
        match timeout(WRITE_LIMIT, offering).await {
            Ok(Ok((owner, offered))) => {
                self.owner = Some(owner);
                Ok(offered)
            }
            Ok(Err(error)) => Err(ClipboardError::Write(error)),
            Err(_) => Err(ClipboardError::NotTaken(WRITE_LIMIT)),
        }
    }
}

async fn next(owner: &mut Option<Owner>) -> Result<Offered, OwnerError> {
    match owner {
        Some(owner) => owner.next().await,
        None => std::future::pending().await,
    }
}

async fn due(again: Option<(Instant, Duration)>) {
    match again {
        Some((when, _)) => sleep_until(when).await,
        None => std::future::pending().await,
    }
}

//! A reader of a file that grows and may be truncated, replaced, deleted and created again.
//!
//! ```text
//! FileReader ── step (on a blocking thread) ──► FileSource ──► OpenFile: file and offset
//!     ▲                                             └────────► PathWatches ──► inotify
//!     └────────────────── `changed` is notified ─────────────────────┘
//! ```
//!
//! [`source`] decides which file the path currently leads to and what to read; this module splits
//! the bytes into lines and turns them into events.

use std::{collections::VecDeque, io, path::PathBuf, sync::Arc, time::Duration};

use tokio::{
    runtime::Handle,
    sync::Notify,
    task::spawn_blocking,
    time::{Instant, sleep_until},
};

use super::{OpenLogError, PositionedEvent, line_event, notice, position::Position};
use crate::{
    agent::fs::files::FileError,
    api::logs::{LogEvent, LogEventKind},
    lines::{Line, LineBuffer},
    system::files::{root::RootDirectory, watcher::SharedWatcher},
};

mod open_file;
mod path_watches;
mod source;

use source::{FileSource, Step};

/// The time that the start of a line waits for the rest before it is sent as a partial line.
const PARTIAL_LINE_DELAY: Duration = Duration::from_secs(1);

/// Reads a file's lines at the pace at which they are requested.
pub(super) struct FileReader {
    /// `None` while a blocking thread uses it.
    source: Option<FileSource>,
    changed: Arc<Notify>,
    lines: LineBuffer,
    last_read_at: Instant,
    pending: VecDeque<PositionedEvent>,
    is_ended: bool,
}

impl FileReader {
    /// Opens a file. With a `watcher` the reader follows it; otherwise it ends at the current end
    /// of the file. Reading starts at the start, or at the position `last`.
    pub(super) async fn open(
        root: RootDirectory,
        path: PathBuf,
        watcher: Option<SharedWatcher>,
        last: Option<u64>,
    ) -> Result<Self, OpenLogError> {
        let changed = Arc::new(Notify::new());
        let source_changed = changed.clone();
        let last = last.map(Position::from);
        let opened =
            spawn_blocking(move || FileSource::open((root, path), watcher, source_changed, last))
                .await;
        let (source, is_another_file) =
            opened.map_err(|error| FileError::Other(io::Error::other(error)))??;
        let mut reader = FileReader {
            source: Some(source),
            changed,
            lines: LineBuffer::default(),
            last_read_at: Instant::now(),
            pending: VecDeque::new(),
            is_ended: false,
        };
        if is_another_file {
            reader.restart(source::ANOTHER_FILE);
        }
        Ok(reader)
    }

    pub(super) async fn next(&mut self) -> Option<PositionedEvent> {
        loop {
            if let Some(line) = self.lines.next_line() {
                return Some(self.positioned_line(line));
            }
            if let Some(event) = self.pending.pop_front() {
                return Some(event);
            }
            if self.is_ended {
                return None;
            }
            match self.step().await {
                Step::Bytes(bytes) => {
                    self.lines.push(&bytes);
                    self.last_read_at = Instant::now();
                }
                Step::Restarted(reason) => self.restart(&reason),
                Step::Ended(reason) => self.end(&reason),
                Step::Idle => {
                    if let Some(partial) = self.wait_for_change().await {
                        return Some(self.positioned_line(partial));
                    }
                }
            }
        }
    }

    async fn step(&mut self) -> Step {
        let Some(mut source) = self.source.take() else {
            return Step::Ended("the file cannot be read any more".to_owned());
        };
        let stepping = spawn_blocking(move || {
            let step = source.step();
            (source, step)
        });
        match stepping.await {
            Ok((source, step)) => {
                self.source = Some(source);
                step
            }
            Err(error) => Step::Ended(error.to_string()),
        }
    }

    /// Waits for a change. Returns the start of an incomplete line that has waited long enough.
    async fn wait_for_change(&mut self) -> Option<Line> {
        let changed = self.changed.notified();
        if self.lines.partial_len() == 0 {
            changed.await;
            return None;
        }
        tokio::select! {
            () = changed => None,
            () = sleep_until(self.last_read_at + PARTIAL_LINE_DELAY) => self.lines.take_partial(),
        }
    }

    fn restart(&mut self, reason: &str) {
        self.flush();
        self.queue(notice(LogEventKind::Restart, reason));
    }

    fn end(&mut self, reason: &str) {
        self.flush();
        self.is_ended = true;
        self.queue(notice(LogEventKind::End, reason));
    }

    /// Queues the rest of a line that will not be completed.
    fn flush(&mut self) {
        if let Some(rest) = self.lines.take_rest() {
            self.queue(line_event(rest));
        }
    }

    fn queue(&mut self, event: LogEvent) {
        let event = (self.position(), event);
        self.pending.push_back(event);
    }

    fn positioned_line(&self, line: Line) -> PositionedEvent {
        (self.position(), line_event(line))
    }

    /// Returns the position after the lines that were returned.
    fn position(&self) -> u64 {
        let source = self.source.as_ref();
        let position = source.and_then(|source| source.position(self.lines.buffered() as u64));
        position.map_or(0, u64::from)
    }
}

impl Drop for FileReader {
    fn drop(&mut self) {
        // Ending a watch may block on the locks of other watches.
        if let Some(source) = self.source.take()
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn_blocking(move || drop(source));
        }
    }
}

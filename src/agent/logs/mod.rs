//! The service behind `GET /logs/stream`: files, and the output of the agent's programs and of the
//! agent itself, read while they are written.
//!
//! ```text
//! GET /logs/stream ─► Logs::open ─► LogReader ┬─ file::FileReader: follows a path (inotify)
//!                                             └─ ProgramLogReader: follows a ProgramLog
//!
//! Chromium, Xvfb ─► lines ─┬─► ProgramLog (bounded memory, survives restarts of the program)
//! agent's own log ─────────┘
//! ```
//!
//! Every event has a [`Position`](position::Position) as its SSE id, from which a later reader
//! resumes. [`Logs`] owns the program logs and limits the number of readers; each reader owns its
//! open file.

use std::sync::Arc;

use chrono::Utc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::fs::files::FileError;
use crate::{
    api::logs::{LogEvent, LogEventKind, LogQuery, LogSource, SupervisorProcess},
    lines::Line,
    system::files::watcher::{SharedWatcher, WatchError},
};

mod file;
mod position;
mod program_log;

use file::FileReader;
use position::SourceId;
pub use program_log::ProgramLog;
use program_log::ProgramLogReader;

/// The message of the last event for a reader that does not follow the log.
const END_OF_LOG: &str = "end of the log";
/// The limit on concurrent readers.
pub const MAX_READERS: usize = 64;

#[derive(Debug, thiserror::Error)]
pub enum OpenLogError {
    #[error("log reader limit reached ({MAX_READERS})")]
    LimitReached,
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Watch(#[from] WatchError),
}

/// The logs of this agent; clones share them.
#[derive(Debug, Clone)]
pub struct Logs {
    pub chromium: ProgramLog,
    pub xvfb: ProgramLog,
    agent: ProgramLog,
    /// Distinguishes this run of the agent from others.
    run_id: SourceId,
    readers: Arc<Semaphore>,
    watcher: SharedWatcher,
}

/// An event, with the position to resume from after it.
pub type PositionedEvent = (u64, LogEvent);

/// A reader of one log.
pub struct LogReader {
    source: SourceReader,
    _permit: OwnedSemaphorePermit,
}

enum SourceReader {
    File(Box<FileReader>),
    Program(ProgramLogReader),
}

impl Logs {
    /// `agent` is the agent's own log.
    #[must_use]
    pub fn new(agent: ProgramLog, watcher: SharedWatcher) -> Self {
        Logs {
            chromium: ProgramLog::default(),
            xvfb: ProgramLog::default(),
            agent,
            run_id: SourceId::random(),
            readers: Arc::new(Semaphore::new(MAX_READERS)),
            watcher,
        }
    }

    /// Opens a log, to be read from its start or after the event with the position `last`.
    ///
    /// # Errors
    /// If there is no such log, or the limit of readers is reached.
    pub async fn open(
        &self,
        query: LogQuery,
        last: Option<u64>,
    ) -> Result<LogReader, OpenLogError> {
        let permit = self.readers.clone().try_acquire_owned();
        let permit = permit.map_err(|_| OpenLogError::LimitReached)?;
        let source = match query.source {
            LogSource::Path(path) => {
                let watcher = query.follow.then(|| self.watcher.clone());
                let (root, path) = (self.watcher.root().clone(), path.as_path().to_owned());
                let reader = FileReader::open(root, path, watcher, last).await?;
                SourceReader::File(Box::new(reader))
            }
            LogSource::Supervisor(process) => {
                let log = match process {
                    SupervisorProcess::Chromium => &self.chromium,
                    SupervisorProcess::Xvfb => &self.xvfb,
                    SupervisorProcess::Agent => &self.agent,
                };
                SourceReader::Program(log.reader(self.run_id, query.follow, last))
            }
        };
        Ok(LogReader {
            source,
            _permit: permit,
        })
    }
}

impl LogReader {
    /// Waits for the next event; `None` after the last.
    pub async fn next(&mut self) -> Option<PositionedEvent> {
        match &mut self.source {
            SourceReader::File(file) => file.next().await,
            SourceReader::Program(log) => log.next().await,
        }
    }
}

fn line_event(line: Line) -> LogEvent {
    LogEvent {
        event: LogEventKind::Log,
        timestamp: Utc::now().into(),
        message: line.text,
        partial: line.partial,
        missed: None,
    }
}

/// Returns an event that is not a line of the log.
fn notice(event: LogEventKind, message: impl Into<String>) -> LogEvent {
    LogEvent {
        event,
        timestamp: Utc::now().into(),
        message: message.into(),
        partial: false,
        missed: None,
    }
}

//! Logs to be read while they are written: files, and what the agent's programs and the agent itself print.

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
use position::Mark;
pub use program_log::ProgramLog;
use program_log::ProgramLogReader;

/// What the end says where nobody waits for more.
const ALL_FOR_NOW: &str = "this is all for now";
/// Logs that may be read at once.
pub const MAX_READERS: usize = 64;

#[derive(Debug, thiserror::Error)]
pub enum OpenLogError {
    #[error("{MAX_READERS} logs are being read, which is the limit")]
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
    /// Tells this run of the agent from others.
    mark: Mark,
    readers: Arc<Semaphore>,
    watcher: SharedWatcher,
}

/// An event, and what to say to go on behind it.
pub type Told = (u64, LogEvent);

/// A log that is being read.
pub struct LogReader {
    log: Kind,
    _place: OwnedSemaphorePermit,
}

enum Kind {
    File(Box<FileReader>),
    Program(ProgramLogReader),
}

impl Logs {
    /// `agent` is what the agent's own log goes to.
    #[must_use]
    pub fn new(agent: ProgramLog, watcher: SharedWatcher) -> Self {
        Logs {
            chromium: ProgramLog::default(),
            xvfb: ProgramLog::default(),
            agent,
            mark: Mark::random(),
            readers: Arc::new(Semaphore::new(MAX_READERS)),
            watcher,
        }
    }

    /// Begins to read a log, behind the event that was the `last` to be told.
    ///
    /// # Errors
    /// Where there is no such log, or as many are being read as may.
    pub async fn open(
        &self,
        query: LogQuery,
        last: Option<u64>,
    ) -> Result<LogReader, OpenLogError> {
        let place = self.readers.clone().try_acquire_owned();
        let place = place.map_err(|_| OpenLogError::LimitReached)?;
        let log = match query.source {
            LogSource::Path(path) => {
                let watcher = query.follow.then(|| self.watcher.clone());
                let path = path.as_path().to_owned();
                Kind::File(Box::new(FileReader::open(path, watcher, last).await?))
            }
            LogSource::Supervisor(process) => {
                let printed = match process {
                    SupervisorProcess::Chromium => &self.chromium,
                    SupervisorProcess::Xvfb => &self.xvfb,
                    SupervisorProcess::Agent => &self.agent,
                };
                Kind::Program(printed.read(self.mark, query.follow, last))
            }
        };
        Ok(LogReader { log, _place: place })
    }
}

impl LogReader {
    /// Waits for what comes next; `None` after the end.
    pub async fn next(&mut self) -> Option<Told> {
        match &mut self.log {
            Kind::File(file) => file.next().await,
            Kind::Program(printed) => printed.next().await,
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

fn notice(event: LogEventKind, message: impl Into<String>) -> LogEvent {
    LogEvent {
        event,
        timestamp: Utc::now().into(),
        message: message.into(),
        partial: false,
        missed: None,
    }
}

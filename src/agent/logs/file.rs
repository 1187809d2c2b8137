//! One reader of a file that grows, is truncated, replaced, deleted and made again.

use std::{collections::VecDeque, io, path::PathBuf, sync::Arc, time::Duration};

use tokio::{
    runtime::Handle,
    sync::Notify,
    task::spawn_blocking,
    time::{Instant, sleep_until},
};

use super::{OpenLogError, Told, line_event, notice, position::Position};
use crate::{
    agent::fs::files::FileError,
    api::logs::{LogEvent, LogEventKind},
    lines::{Line, Lines},
    system::files::watcher::SharedWatcher,
};

mod source;

use source::{Source, Step};

/// How long the beginning of a line waits for the rest before it is told alone.
const PATIENCE: Duration = Duration::from_secs(1);

/// Reads a file's lines at the pace in which they are asked for.
pub struct FileReader {
    /// Away while it is being asked, beside the server's own threads.
    source: Option<Source>,
    changed: Arc<Notify>,
    lines: Lines,
    /// When something was last read.
    fed: Instant,
    waiting: VecDeque<Told>,
    ended: bool,
}

impl FileReader {
    /// Stays with the file where there is a `watcher`.
    pub async fn open(
        path: PathBuf,
        watcher: Option<SharedWatcher>,
        last: Option<u64>,
    ) -> Result<Self, OpenLogError> {
        let changed = Arc::new(Notify::new());
        let told = changed.clone();
        let last = last.map(Position::from);
        let opened = spawn_blocking(move || Source::open(path, watcher, told, last)).await;
        let (source, is_another) =
            opened.map_err(|error| FileError::Other(io::Error::other(error)))??;
        let mut reader = FileReader {
            source: Some(source),
            changed,
            lines: Lines::default(),
            fed: Instant::now(),
            waiting: VecDeque::new(),
            ended: false,
        };
        if is_another {
            reader.restart(source::ANOTHER_FILE);
        }
        Ok(reader)
    }

    pub async fn next(&mut self) -> Option<Told> {
        loop {
            if let Some(line) = self.lines.next_line() {
                return Some(self.told(line));
            }
            if let Some(told) = self.waiting.pop_front() {
                return Some(told);
            }
            if self.ended {
                return None;
            }
            match self.step().await {
                Step::Bytes(bytes) => {
                    self.lines.push(&bytes);
                    self.fed = Instant::now();
                }
                Step::Restarted(why) => self.restart(&why),
                Step::Ended(why) => self.end(&why),
                Step::Quiet => {
                    if let Some(part) = self.wait().await {
                        return Some(self.told(part));
                    }
                }
            }
        }
    }

    async fn step(&mut self) -> Step {
        let Some(mut source) = self.source.take() else {
            return Step::Ended("the file cannot be read any more".to_owned());
        };
        let stepped = spawn_blocking(move || {
            let step = source.step();
            (source, step)
        });
        match stepped.await {
            Ok((source, step)) => {
                self.source = Some(source);
                step
            }
            Err(error) => Step::Ended(error.to_string()),
        }
    }

    /// Waits until something has changed; gives the beginning of a line that has waited for its end long enough.
    async fn wait(&mut self) -> Option<Line> {
        let changed = self.changed.notified();
        if self.lines.part_len() == 0 {
            changed.await;
            return None;
        }
        tokio::select! {
            () = changed => None,
            () = sleep_until(self.fed + PATIENCE) => self.lines.part(),
        }
    }

    fn restart(&mut self, why: &str) {
        self.flush();
        let event = notice(LogEventKind::Restart, why);
        self.queue(event);
    }

    fn end(&mut self, why: &str) {
        self.flush();
        self.ended = true;
        let event = notice(LogEventKind::End, why);
        self.queue(event);
    }

    /// Tells what is left of a line whose end will not come.
    fn flush(&mut self) {
        if let Some(rest) = self.lines.rest() {
            self.queue(line_event(rest));
        }
    }

    fn queue(&mut self, event: LogEvent) {
        let told = (self.position(), event);
        self.waiting.push_back(told);
    }

    fn told(&self, line: Line) -> Told {
        (self.position(), line_event(line))
    }

    /// Behind what has been given of the lines.
    fn position(&self) -> u64 {
        let source = self.source.as_ref();
        let position = source.and_then(|source| source.position(self.lines.held() as u64));
        position.map_or(0, u64::from)
    }
}

impl Drop for FileReader {
    fn drop(&mut self) {
        // To end a watch may be to wait for others.
        if let Some(source) = self.source.take()
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn_blocking(move || drop(source));
        }
    }
}

//! The output of a program, kept in bounded memory across restarts of the program.

use std::{
    mem,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use super::{
    END_OF_LOG, PositionedEvent, line_event, notice,
    position::{Position, SourceId},
};
use crate::{
    api::logs::{LogEvent, LogEventKind},
    lines::Line,
    streams::{self, Bounds, Entry, Log, Reader, TryNext},
    system::process::child::Listener,
};

/// The limit on stored lines per program.
const LOG_BOUNDS: Bounds = Bounds {
    entries: 1 << 14,
    weight: 2 << 20,
};
/// The estimated size of a line without its text.
const LINE_BYTES: usize = 64;

/// The lines of one program; clones share them.
#[derive(Debug, Clone)]
pub struct ProgramLog {
    lines: Log<Arc<LogEvent>>,
    /// The id of the last line that is not shown.
    hidden: Arc<AtomicU64>,
}

/// A reader of a program's log.
pub(super) struct ProgramLogReader {
    lines: Reader<Arc<LogEvent>>,
    run_id: SourceId,
    /// The id of the last line to read, for a reader that does not follow the log.
    end: Option<u64>,
    /// The id of the last line that was read.
    offset: u64,
    /// Whether the reader's position is from another run of the agent, which is still to be
    /// reported.
    restarted: bool,
    is_ended: bool,
}

impl Default for ProgramLog {
    fn default() -> Self {
        ProgramLog {
            lines: Log::new(LOG_BOUNDS),
            hidden: Arc::default(),
        }
    }
}

impl ProgramLog {
    /// Adds a line without waiting.
    pub fn add(&self, line: Line) {
        let weight = line.text.len() + LINE_BYTES;
        self.lines.append(Arc::new(line_event(line)), weight);
    }

    /// Hides all present lines from later readers.
    pub fn hide_past(&self) {
        self.hidden.store(self.lines.newest_id(), Ordering::Relaxed);
    }

    /// Returns a listener that adds everything a child process prints.
    #[must_use]
    pub fn listener(&self) -> Listener {
        let log = self.clone();
        Arc::new(move |line| log.add(line.clone()))
    }

    /// Returns a function that adds text consisting of complete lines.
    pub fn line_writer(&self) -> impl Fn(&str) + Send + Sync + use<> {
        let log = self.clone();
        move |text| {
            for line in text.lines() {
                // Not split at the maximum line length: the agent bounds its own lines.
                log.add(Line {
                    text: line.to_owned(),
                    partial: false,
                });
            }
        }
    }

    pub(super) fn reader(
        &self,
        run_id: SourceId,
        follow: bool,
        last: Option<u64>,
    ) -> ProgramLogReader {
        let last = last.map(Position::from);
        let newest = self.lines.newest_id();
        let (from, offset, restarted) = match last {
            Some(position) if position.source == run_id => {
                let offset = position.offset.min(newest);
                (streams::StartAt::After(offset), offset, false)
            }
            other => match self.hidden.load(Ordering::Relaxed) {
                0 => (streams::StartAt::Oldest, 0, other.is_some()),
                hidden => (streams::StartAt::After(hidden), hidden, other.is_some()),
            },
        };
        ProgramLogReader {
            lines: self.lines.reader(from),
            run_id,
            end: (!follow).then_some(newest),
            offset,
            restarted,
            is_ended: false,
        }
    }
}

impl ProgramLogReader {
    pub(super) async fn next(&mut self) -> Option<PositionedEvent> {
        if mem::take(&mut self.restarted) {
            let event = notice(LogEventKind::Restart, "the agent was restarted");
            return Some(self.with_position(event));
        }
        if self.is_ended {
            return None;
        }
        let entry = match self.end {
            None => self.lines.next().await,
            Some(end) if self.offset >= end => None,
            Some(_) => match self.lines.try_next() {
                TryNext::Entry(entry) => Some(entry),
                TryNext::Empty | TryNext::Closed => None,
            },
        };
        let event = match entry {
            Some(Entry::Item { id, item }) => {
                self.offset = id;
                LogEvent::clone(&item)
            }
            Some(Entry::Gap { id, missed }) => {
                self.offset = id;
                LogEvent {
                    missed: Some(missed),
                    ..notice(LogEventKind::Gap, format!("{missed} lines were dropped"))
                }
            }
            None => {
                self.is_ended = true;
                notice(LogEventKind::End, END_OF_LOG)
            }
        };
        Some(self.with_position(event))
    }

    fn with_position(&self, event: LogEvent) -> PositionedEvent {
        let position = Position {
            source: self.run_id,
            offset: self.offset,
        };
        (position.into(), event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: String) -> Line {
        Line {
            text,
            partial: false,
        }
    }

    #[tokio::test]
    async fn slow_reader_gets_gap_with_number_of_dropped_lines() {
        let run_id = SourceId::random();
        let log = ProgramLog::default();
        let mut reader = log.reader(run_id, true, None);
        let lines = LOG_BOUNDS.entries as u64 + 10;
        for n in 1..=lines {
            log.add(line(n.to_string()));
        }
        let (id, event) = reader.next().await.unwrap();
        assert_eq!(event.event, LogEventKind::Gap);
        assert_eq!(event.missed, Some(10));
        assert_eq!(Position::from(id).offset, 10);
        let (_, event) = reader.next().await.unwrap();
        assert_eq!(event.message, "11");
    }

    #[tokio::test]
    async fn reader_without_follow_ends_at_line_that_was_newest_when_opened() {
        let run_id = SourceId::random();
        let log = ProgramLog::default();
        log.add(line("one".to_owned()));
        let mut reader = log.reader(run_id, false, None);
        log.add(line("two".to_owned()));
        assert_eq!(reader.next().await.unwrap().1.message, "one");
        assert_eq!(reader.next().await.unwrap().1.event, LogEventKind::End);
        assert!(reader.next().await.is_none());
    }
}

//! What a program has printed, kept in bounded memory while the program comes and goes.

use std::sync::Arc;

use super::{
    ALL_FOR_NOW, Told, line_event, notice,
    position::{Mark, Position},
};
use crate::{
    api::logs::{LogEvent, LogEventKind},
    lines::Line,
    streams::{self, Bounds, Entry, Log, Look, Reader},
    system::process::child::Listener,
};

/// What is kept of one program, in lines and in bytes.
const KEPT: Bounds = Bounds {
    entries: 1 << 14,
    weight: 2 << 20,
};
/// What a line takes besides its text.
const LINE_BYTES: usize = 64;

/// The lines of one program; clones share them.
#[derive(Debug, Clone)]
pub struct ProgramLog {
    lines: Log<Arc<LogEvent>>,
}

/// Reads them.
pub struct ProgramLogReader {
    lines: Reader<Arc<LogEvent>>,
    mark: Mark,
    /// The id of the last line to be read, where the reader does not stay.
    until: Option<u64>,
    at: u64,
    /// The reader was behind a line of another run of the agent.
    elsewhere: bool,
    ended: bool,
}

impl Default for ProgramLog {
    fn default() -> Self {
        ProgramLog {
            lines: Log::new(KEPT),
        }
    }
}

impl ProgramLog {
    /// Adds a line. It never waits.
    pub fn add(&self, line: Line) {
        let weight = line.text.len() + LINE_BYTES;
        self.lines.append(Arc::new(line_event(line)), weight);
    }

    /// What adds all that a child prints.
    #[must_use]
    pub fn listener(&self) -> Listener {
        let printed = self.clone();
        Arc::new(move |line| printed.add(line.clone()))
    }

    /// What adds text that comes line by line.
    pub fn line_writer(&self) -> impl Fn(&str) + Send + Sync + use<> {
        let printed = self.clone();
        move |text| {
            for line in text.lines() {
                // What is longer than a line may be is the log's own, and bounded by it.
                printed.add(Line {
                    text: line.to_owned(),
                    partial: false,
                });
            }
        }
    }

    pub(super) fn read(&self, mark: Mark, follow: bool, last: Option<u64>) -> ProgramLogReader {
        let last = last.map(Position::from);
        let newest = self.lines.newest();
        let (from, at, elsewhere) = match last {
            Some(position) if position.mark == mark => {
                let at = position.offset.min(newest);
                (streams::From::After(at), at, false)
            }
            other => (streams::From::Oldest, 0, other.is_some()),
        };
        ProgramLogReader {
            lines: self.lines.reader(from),
            mark,
            until: (!follow).then_some(newest),
            at,
            elsewhere,
            ended: false,
        }
    }
}

impl ProgramLogReader {
    pub async fn next(&mut self) -> Option<Told> {
        if std::mem::take(&mut self.elsewhere) {
            let event = notice(LogEventKind::Restart, "the agent has been started again");
            return Some(self.told(event));
        }
        if self.ended {
            return None;
        }
        let entry = match self.until {
            None => self.lines.next().await,
            Some(until) if self.at >= until => None,
            Some(_) => match self.lines.look() {
                Look::Entry(entry) => Some(entry),
                Look::Nothing | Look::End => None,
            },
        };
        let event = match entry {
            Some(Entry::Item { id, item }) => {
                self.at = id;
                LogEvent::clone(&item)
            }
            Some(Entry::Gap { id, missed }) => {
                self.at = id;
                LogEvent {
                    missed: Some(missed),
                    ..notice(LogEventKind::Gap, format!("{missed} lines were dropped"))
                }
            }
            None => {
                self.ended = true;
                notice(LogEventKind::End, ALL_FOR_NOW)
            }
        };
        Some(self.told(event))
    }

    fn told(&self, event: LogEvent) -> Told {
        let position = Position {
            mark: self.mark,
            offset: self.at,
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
    async fn who_falls_behind_is_told_how_much_was_dropped() {
        let mark = Mark::random();
        let printed = ProgramLog::default();
        let mut reader = printed.read(mark, true, None);
        let lines = KEPT.entries as u64 + 10;
        for n in 1..=lines {
            printed.add(line(n.to_string()));
        }
        let (id, event) = reader.next().await.unwrap();
        assert_eq!(event.event, LogEventKind::Gap);
        assert_eq!(event.missed, Some(10));
        assert_eq!(Position::from(id).offset, 10);
        let (_, event) = reader.next().await.unwrap();
        assert_eq!(event.message, "11");
    }

    #[tokio::test]
    async fn who_does_not_stay_reads_what_there_was_when_it_came() {
        let mark = Mark::random();
        let printed = ProgramLog::default();
        printed.add(line("one".to_owned()));
        let mut reader = printed.read(mark, false, None);
        printed.add(line("two".to_owned()));
        assert_eq!(reader.next().await.unwrap().1.message, "one");
        assert_eq!(reader.next().await.unwrap().1.event, LogEventKind::End);
        assert!(reader.next().await.is_none());
    }
}

//! One process, as its clients see it.

use std::{
    future::Future,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use chrono::{DateTime, Utc};
use nix::sys::signal::Signal;
use parking_lot::{Mutex, MutexGuard};
use tokio::{
    sync::{Notify, watch},
    time,
};

use super::{
    input::{Input, StdinError},
    output::{Outlets, OutputLog},
};
use crate::{
    api::{
        ids::ProcessId,
        process::{KillSignal, ProcessEvent},
    },
    streams::{self, Reader},
    system::{
        process::pty::{Terminal, TerminalSize},
        process::session::{Leader, ProcessSession, Streams},
        process::tree::{self, ProcessSnapshot},
    },
};

/// How old what is told of a process may be.
const STATUS_AGE: Duration = Duration::from_millis(50);
/// The shortest time over which a share of the processor means something: the kernel counts in hundredths of a second.
const MIN_WINDOW: Duration = Duration::from_millis(500);
/// For the end of a process to be noticed that has been killed.
const NOTICE_LIMIT: Duration = Duration::from_secs(1);

#[derive(Debug, thiserror::Error)]
pub enum ResizeError {
    #[error("the process has no terminal")]
    NoTerminal,
    #[error("the process has exited")]
    Exited,
    #[error("the terminal cannot be resized: {0}")]
    Failed(#[from] io::Error),
}

#[derive(Debug, thiserror::Error)]
pub enum SignalError {
    #[error("something of it has not died within five seconds; that goes on being killed")]
    Survives,
    #[error("processes cannot be looked at: {0}")]
    Look(#[from] io::Error),
}

/// How a process is doing.
#[derive(Debug, Clone, Copy)]
pub struct Status {
    /// `None` while it runs.
    pub exit_code: Option<i32>,
    /// 100 is one core.
    pub cpu_percent: f64,
    pub resident_bytes: u64,
}

/// A process that was started for a client.
#[derive(Debug)]
pub struct Process {
    pub id: ProcessId,
    pub started_at: DateTime<Utc>,
    pub(super) leader: Arc<Leader>,
    /// The mark that all of its tree bears.
    mark: String,
    log: OutputLog,
    input: Input,
    has_terminal: bool,
    /// Until it has exited.
    terminal: Mutex<Option<Arc<Terminal>>>,
    exit: watch::Sender<Option<i32>>,
    /// It may be over with what is left of it.
    pub(super) signalled: Notify,
    /// All of it is to be killed, as often as it takes.
    condemned: AtomicBool,
    begun: Instant,
    processor: Mutex<Processor>,
}

/// The processor time at two earlier looks, the later of which may be too short ago to compare with.
#[derive(Debug)]
struct Processor {
    before: (Instant, Duration),
    last: (Instant, Duration),
}

impl Process {
    pub fn new(
        id: ProcessId,
        mark: String,
        session: ProcessSession,
        log: OutputLog,
    ) -> (Self, Outlets) {
        let (input, terminal, outlets) = match session.streams {
            Streams::Pipes {
                stdin,
                stdout,
                stderr,
            } => (Input::pipe(stdin), None, Outlets::Pipes { stdout, stderr }),
            Streams::Terminal { terminal, slave } => {
                let terminal = Arc::new(terminal);
                let outlets = Outlets::Terminal {
                    terminal: terminal.clone(),
                    slave,
                };
                (Input::terminal(terminal.clone()), Some(terminal), outlets)
            }
        };
        let begun = Instant::now();
        let nothing = (begun, Duration::ZERO);
        let process = Process {
            id,
            started_at: Utc::now(),
            leader: Arc::new(session.leader),
            mark,
            log,
            input,
            has_terminal: terminal.is_some(),
            terminal: Mutex::new(terminal),
            exit: watch::Sender::new(None),
            signalled: Notify::new(),
            condemned: AtomicBool::new(false),
            begun,
            processor: Mutex::new(Processor {
                before: nothing,
                last: nothing,
            }),
        };
        (process, outlets)
    }

    #[must_use]
    pub fn pid(&self) -> u32 {
        self.leader.pid()
    }

    #[must_use]
    pub fn exit_code(&self) -> Option<i32> {
        *self.exit.borrow()
    }

    #[must_use]
    pub fn has_terminal(&self) -> bool {
        self.has_terminal
    }

    /// Its output, and its exit as the last of it.
    #[must_use]
    pub fn output(&self, from: streams::From) -> Reader<Arc<ProcessEvent>> {
        self.log.reader(from)
    }

    /// # Errors
    /// Where /proc cannot be read.
    pub async fn status(&self) -> io::Result<Status> {
        let now = Instant::now();
        // One from before its start would not know it.
        let recent = now.checked_sub(STATUS_AGE).unwrap_or(now);
        let snapshot = ProcessSnapshot::since(recent.max(self.begun)).await?;
        // Once it is reaped its number may be another's.
        let usage = match Leader::pin(&self.leader) {
            Some(_pin) => snapshot.usage(self.pid()),
            None => tree::Usage::default(),
        };
        let mut processor = self.processor.lock();
        Ok(Status {
            exit_code: self.exit_code(),
            cpu_percent: processor.share(now, usage.cpu),
            resident_bytes: usage.resident_bytes,
        })
    }

    /// Signals it and all it has started. After a kill, nothing of that is left, as far as the kernel lets it go.
    ///
    /// # Errors
    /// Where /proc cannot be read, or something has survived.
    pub async fn signal(&self, signal: KillSignal) -> Result<(), SignalError> {
        let signal = match signal {
            KillSignal::Term => Signal::SIGTERM,
            KillSignal::Int => Signal::SIGINT,
            KillSignal::Hup => Signal::SIGHUP,
            KillSignal::Kill => {
                if !self.kill().await? {
                    return Err(SignalError::Survives);
                }
                let _ = time::timeout(NOTICE_LIMIT, self.exited()).await;
                return Ok(());
            }
        };
        let signalled = tree::signal_tree(self.leader.clone(), signal).await;
        self.signalled.notify_one();
        Ok(signalled?)
    }

    /// Kills all of it; whether that has succeeded.
    pub(super) async fn kill(&self) -> io::Result<bool> {
        self.condemn();
        let killed = tree::kill_tree(self.leader.clone(), self.mark.clone()).await;
        if let Ok(true) = killed {
            self.condemned.store(false, Ordering::Relaxed);
        }
        self.signalled.notify_one();
        killed
    }

    /// Has the keeper kill all of it.
    pub(super) fn condemn(&self) {
        self.condemned.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_condemned(&self) -> bool {
        self.condemned.load(Ordering::Relaxed)
    }

    /// # Errors
    /// Where there is nothing to be resized.
    pub fn resize(&self, size: TerminalSize) -> Result<(), ResizeError> {
        if !self.has_terminal {
            return Err(ResizeError::NoTerminal);
        }
        let terminal = self.terminal().clone().ok_or(ResizeError::Exited)?;
        Ok(terminal.resize(size)?)
    }

    /// Writes to its standard input what it takes within five seconds, and says how much that was.
    ///
    /// # Errors
    /// Where nothing can be written any more.
    pub async fn write_stdin(&self, data: &[u8], and_end: bool) -> Result<usize, StdinError> {
        if self.exit_code().is_some() {
            return Err(StdinError::Exited);
        }
        self.input.write(data, and_end, self.exited()).await
    }

    /// Writes all of it to its standard input in one turn. Takes as long as the process takes to read it: to be dropped where that is
    /// too long.
    ///
    /// # Errors
    /// Where nothing can be written any more.
    pub async fn write_stdin_whole(&self, data: &[u8]) -> Result<(), StdinError> {
        if self.exit_code().is_some() {
            return Err(StdinError::Exited);
        }
        self.input.write_whole(data, self.exited()).await
    }

    /// Resolves once it has exited.
    pub fn exited(&self) -> impl Future<Output = ()> + use<> {
        let mut exit = self.exit.subscribe();
        async move {
            // The sender lives as long as the process; without it there is nothing to wait for.
            let _ = exit.wait_for(Option::is_some).await;
        }
    }

    /// Its descriptors go; what it wrote stays.
    pub(super) async fn set_exited(&self, code: i32) {
        self.exit.send_replace(Some(code));
        self.terminal().take();
        self.input.close().await;
    }

    fn terminal(&self) -> MutexGuard<'_, Option<Arc<Terminal>>> {
        self.terminal.lock()
    }
}

impl Processor {
    /// What has been computed per time, in per cent, since a look that is at least [`MIN_WINDOW`] ago; since the start where there is none.
    fn share(&mut self, now: Instant, computed: Duration) -> f64 {
        if now.saturating_duration_since(self.last.0) >= MIN_WINDOW {
            self.before = std::mem::replace(&mut self.last, (now, computed));
        }
        let window = now.saturating_duration_since(self.before.0).as_secs_f64();
        // Processes that ended without being waited for have taken their time with them.
        let more = computed.saturating_sub(self.before.1).as_secs_f64();
        if window > 0.0 {
            (more / window * 1000.0).round() / 10.0
        } else {
            0.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_of_the_time_since_the_last_look_that_was_long_enough_ago() {
        let begun = Instant::now();
        let at = |millis| begun + Duration::from_millis(millis);
        let computed = Duration::from_millis;
        let mut processor = Processor {
            before: (begun, Duration::ZERO),
            last: (begun, Duration::ZERO),
        };
        let mut share = |now, millis| processor.share(at(now), computed(millis));
        assert_eq!(share(0, 0), 0.0);
        assert_eq!(share(100, 50), 50.0);
        assert_eq!(share(1000, 1000), 100.0);
        // Too soon after that one: still since the start.
        assert_eq!(share(1100, 1000), 90.9);
        assert_eq!(share(2000, 3000), 200.0);
        // What is gone takes its time with it, and none is owed.
        assert_eq!(share(3000, 1000), 0.0);
    }
}

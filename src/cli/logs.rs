//! Logging: output format, filter and redaction.
//!
//! ```text
//! event ─▶ filter of `--log` ─┬─ without SENSITIVE_TARGETS ─┬▶ queue ─▶ thread ─▶ standard error
//!                             │                             └▶ journal
//!                             └─ only this program's ───────▶ LogSink (kept for readers)
//! ```
//!
//! Standard error may be a pipe that is not read. Lines for it wait in a bounded queue, and those
//! that find it full are dropped and counted, so that logging never blocks.

use std::{
    io::{self, IsTerminal, Write},
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::{
    EnvFilter, Layer,
    field::RecordFields,
    filter::{FilterExt, LevelFilter, filter_fn},
    fmt::{
        self, FormatFields,
        format::{DefaultFields, Writer},
    },
    layer::{Filter, SubscriberExt},
    util::SubscriberInitExt,
};

use crate::control::fleet::AGENT_LOG_TARGET;

/// Set by systemd to `device:inode` of the stream that it gave its service.
const JOURNAL_VARIABLE: &str = "JOURNAL_STREAM";

/// The most lines that wait to be written to standard error.
const MAX_QUEUED_LINES: usize = 4096;
/// The pause after lines were written. Those of the meantime are written at once, and no thread is
/// woken for each.
const BATCH_INTERVAL: Duration = Duration::from_millis(10);
/// The most bytes that are written at once, unless a line has more. A pipe does not mix them with
/// those of another program.
const BATCH_BYTES: usize = 4096;
/// The longest wait at the exit for standard error to be read.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(2);
/// Between two reports of dropped lines.
const REPORT_INTERVAL: Duration = Duration::from_secs(5);

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// Journald under systemd, otherwise text
    Auto,
    /// Text on standard error
    Text,
    /// JSON lines on standard error
    Json,
    /// The systemd journal, with fields
    Journald,
}

/// Receives each line that is logged. It must not log itself.
pub type LogSink = Arc<dyn Fn(&str) + Send + Sync>;

/// Owns the thread that writes log lines. Dropping it waits a bounded time for the queued ones.
#[must_use]
pub struct LogGuard {
    /// `None` if lines go to the journal.
    stderr: Option<StderrLog>,
}

struct StderrLog {
    worker: Option<WorkerGuard>,
    dropped: ErrorCounter,
}

/// Initializes logging for the process. Lines of this program, without those of libraries, also go
/// to `sink`. Panics are logged, because the standard message would block on an unread pipe.
///
/// # Errors
/// Fails if the filter is invalid or the journal is unreachable.
pub fn init_logging(
    filter: &str,
    format: LogFormat,
    sink: Option<LogSink>,
) -> io::Result<LogGuard> {
    let filter = parse(filter)?;
    let (layer, stderr) = output_layer(format)?;
    tracing_subscriber::registry()
        .with(layer.with_filter(filter.clone().and(redact())))
        .with(sink.map(|sink| sink_layer(sink).with_filter(filter)))
        .init();
    std::panic::set_hook(Box::new(|panic| tracing::error!(%panic, "thread panicked")));
    Ok(LogGuard { stderr })
}

impl LogGuard {
    /// Returns a task that publishes how many lines were dropped, as a metric and, whenever there
    /// were some, as a log line. It never ends.
    pub fn report_dropped_lines(&self) -> impl Future<Output = ()> + Send + use<> {
        let counter = self.stderr.as_ref().map(|log| log.dropped.clone());
        async move {
            let Some(counter) = counter else { return };
            let mut ticks = tokio::time::interval(REPORT_INTERVAL);
            let mut reported = 0;
            loop {
                ticks.tick().await;
                let dropped = counter.dropped_lines() as u64;
                metrics::counter!("berth_log_lines_dropped_total").absolute(dropped);
                if dropped > reported {
                    let lines = dropped - reported;
                    tracing::warn!(
                        lines,
                        "log lines dropped: standard error was not read in time"
                    );
                    reported = dropped;
                }
            }
        }
    }
}

impl Drop for StderrLog {
    fn drop(&mut self) {
        let worker = self.worker.take();
        with_output_timeout(move || drop(worker));
    }
}

/// Prints a line to standard error. Waits for [`OUTPUT_TIMEOUT`] at most if it is a pipe that is
/// not read.
pub fn print_error(line: String) {
    with_output_timeout(move || {
        let _ = writeln!(io::stderr(), "{line}");
    });
}

/// Runs `write` on a thread of its own and waits for [`OUTPUT_TIMEOUT`] at most.
fn with_output_timeout(write: impl FnOnce() + Send + 'static) {
    let (done, finished) = mpsc::sync_channel(1);
    let started = thread::Builder::new().spawn(move || {
        write();
        let _ = done.send(());
    });
    if started.is_ok() {
        let _ = finished.recv_timeout(OUTPUT_TIMEOUT);
    }
}

/// Parses a filter, and adds that the lines of agents pass, which have the same filter.
fn parse(filter: &str) -> io::Result<EnvFilter> {
    let filter = EnvFilter::try_new(filter).map_err(io::Error::other)?;
    // A level that no agent uses would make libraries prepare messages that are never logged.
    let level = filter.max_level_hint().unwrap_or(LevelFilter::TRACE);
    let agents = format!("{AGENT_LOG_TARGET}={level}").parse();
    Ok(filter.add_directive(agents.map_err(io::Error::other)?))
}

/// Libraries whose log messages contain typed keys or clipboard contents. Their messages are never
/// logged, whatever the filter allows.
const SENSITIVE_TARGETS: [&str; 6] = [
    "enigo",
    "arboard",
    "chromiumoxide",
    "tungstenite",
    "tokio_tungstenite",
    "async_tungstenite",
];

/// Returns a filter that drops the events of [`SENSITIVE_TARGETS`].
fn redact<S>() -> impl Filter<S> {
    filter_fn(|metadata| {
        let library = metadata.target().split("::").next().unwrap_or_default();
        !SENSITIVE_TARGETS.contains(&library)
    })
    // Without a hint, the level of the other filter would be unknown as well.
    .with_max_level_hint(LevelFilter::TRACE)
}

type AnyLayer = Box<dyn Layer<tracing_subscriber::Registry> + Send + Sync>;

fn output_layer(format: LogFormat) -> io::Result<(AnyLayer, Option<StderrLog>)> {
    match format {
        LogFormat::Auto if stderr_is_journal() => output_layer(LogFormat::Journald),
        LogFormat::Auto | LogFormat::Text => {
            let (writer, log) = StderrLog::start();
            let layer = fmt::layer().with_writer(writer);
            let layer = layer.with_ansi(io::stderr().is_terminal()).boxed();
            Ok((layer, Some(log)))
        }
        LogFormat::Json => {
            let (writer, log) = StderrLog::start();
            let layer = fmt::layer().json().with_writer(writer).boxed();
            Ok((layer, Some(log)))
        }
        LogFormat::Journald => Ok((tracing_journald::layer()?.boxed(), None)),
    }
}

impl StderrLog {
    /// Starts the thread that writes the lines.
    fn start() -> (NonBlocking, StderrLog) {
        let (writer, worker) = NonBlockingBuilder::default()
            .lossy(true)
            .buffered_lines_limit(MAX_QUEUED_LINES)
            .thread_name("log")
            .finish(Batches(Vec::with_capacity(BATCH_BYTES)));
        let dropped = writer.error_counter();
        let worker = Some(worker);
        (writer, StderrLog { worker, dropped })
    }
}

/// Writes queued lines at once. The thread flushes when there are no more. Lines that cannot be
/// written are dropped: an error would keep the thread from ending.
struct Batches(Vec<u8>);

impl Batches {
    fn write_out(&mut self) {
        let _ = io::stderr().write_all(&self.0);
        self.0.clear();
    }
}

impl Write for Batches {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.0.len() + line.len() > BATCH_BYTES {
            self.write_out();
        }
        self.0.extend_from_slice(line);
        Ok(line.len())
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "on the thread of the log, which runs no tasks"
    )]
    fn flush(&mut self) -> io::Result<()> {
        self.write_out();
        thread::sleep(BATCH_INTERVAL);
        Ok(())
    }
}

/// Formats events as text without a time, which the sink adds.
///
/// Events of libraries are left out: some concern the connection through which a client reads this
/// log, so that each line sent would cause another.
fn sink_layer<S>(sink: LogSink) -> impl Layer<S>
where
    S: tracing::Subscriber + for<'a> tracing_subscriber::registry::LookupSpan<'a>,
{
    fmt::layer()
        .with_writer(move || SinkWriter(sink.clone()))
        .fmt_fields(PlainFields)
        .with_ansi(false)
        .without_time()
        .with_filter(filter_fn(|metadata| {
            metadata.target().split("::").next() == Some(env!("CARGO_CRATE_NAME"))
        }))
}

struct SinkWriter(LogSink);

impl Write for SinkWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0(&String::from_utf8_lossy(line));
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Formats fields like the default formatter.
///
/// A separate type is needed: layers with the same field formatter share the formatted fields of a
/// span, so the sink would get the colours of the terminal.
struct PlainFields;

impl<'writer> FormatFields<'writer> for PlainFields {
    fn format_fields<R: RecordFields>(
        &self,
        writer: Writer<'writer>,
        fields: R,
    ) -> std::fmt::Result {
        DefaultFields::new().format_fields(writer, fields)
    }
}

/// Compares the variable with standard error: terminals started from a service inherit the
/// variable, so that its presence proves nothing.
#[expect(clippy::disallowed_methods, reason = "set by systemd, not by a user")]
fn stderr_is_journal() -> bool {
    let Ok(journal) = std::env::var(JOURNAL_VARIABLE) else {
        return false;
    };
    nix::sys::stat::fstat(io::stderr())
        .is_ok_and(|stat| journal == format!("{}:{}", stat.st_dev, stat.st_ino))
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::Registry;

    use super::*;

    #[test]
    fn level_of_the_filter_is_known_to_libraries() {
        for (filter, level) in [
            ("info", LevelFilter::INFO),
            ("warn,berth=debug", LevelFilter::DEBUG),
            ("off", LevelFilter::OFF),
        ] {
            let combined = parse(filter).unwrap().and(redact());
            let hint = Filter::<Registry>::max_level_hint(&combined);
            assert_eq!(hint, Some(level), "{filter}");
        }
    }
}

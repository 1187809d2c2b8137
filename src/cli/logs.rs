//! Logging: output format, filter and redaction.
//!
//! ```text
//! event ─▶ filter of `--log` ─┬─ without SENSITIVE_TARGETS ─▶ journal, text or JSON
//!                             └─ only this program's ───────▶ LogSink (kept for readers)
//! ```

use std::{
    io::{self, IsTerminal, Write},
    sync::Arc,
};

use tracing_subscriber::{
    EnvFilter, Layer,
    field::RecordFields,
    filter::{FilterExt, filter_fn},
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

/// Initializes logging for the process. Lines of this program, without those of libraries, also go
/// to `sink`.
///
/// # Errors
/// Fails if the filter is invalid or the journal is unreachable.
pub fn init_logging(filter: &str, format: LogFormat, sink: Option<LogSink>) -> io::Result<()> {
    tracing_subscriber::registry()
        .with(output_layer(format)?.with_filter(parse(filter)?.and(redact())))
        .with(match sink {
            Some(sink) => Some(sink_layer(sink).with_filter(parse(filter)?)),
            None => None,
        })
        .init();
    Ok(())
}

fn parse(filter: &str) -> io::Result<EnvFilter> {
    let agents = format!("{AGENT_LOG_TARGET}=trace").parse();
    let filter = EnvFilter::try_new(filter).map_err(io::Error::other)?;
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
}

type AnyLayer = Box<dyn Layer<tracing_subscriber::Registry> + Send + Sync>;

fn output_layer(format: LogFormat) -> io::Result<AnyLayer> {
    match format {
        LogFormat::Auto if stderr_is_journal() => output_layer(LogFormat::Journald),
        LogFormat::Auto | LogFormat::Text => Ok(fmt::layer()
            .with_writer(io::stderr)
            .with_ansi(io::stderr().is_terminal())
            .boxed()),
        LogFormat::Json => Ok(fmt::layer().json().with_writer(io::stderr).boxed()),
        LogFormat::Journald => Ok(tracing_journald::layer()?.boxed()),
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

//! Where log lines go.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;

use tracing_subscriber::field::RecordFields;
use tracing_subscriber::filter::{FilterExt, filter_fn};
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::{DefaultFields, Writer};
use tracing_subscriber::layer::{Filter, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, fmt};

use crate::control::fleet::AGENT_LOG_TARGET;

/// systemd sets it to `device:inode` of the stream it gave its service.
const JOURNAL_VARIABLE: &str = "JOURNAL_STREAM";

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// The journal under systemd, else text
    Auto,
    Text,
    Json,
    Journald,
}

/// Is given each line that is logged, to keep it. It must not log itself.
pub type Keep = Arc<dyn Fn(&str) + Send + Sync>;

/// Starts logging for the whole process. What this program itself says, and no library, is also given to `keep`.
///
/// # Errors
/// Where the filter cannot be read, or the journal cannot be reached.
pub fn start_logs(filter: &str, format: LogFormat, keep: Option<Keep>) -> io::Result<()> {
    tracing_subscriber::registry()
        .with(layer(format)?.with_filter(parse(filter)?.and(discreet())))
        .with(match keep {
            Some(keep) => Some(keeping(keep).with_filter(parse(filter)?)),
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

/// What these log is what is typed, key by key, and what is in the clipboard, or messages with that in them: it goes nowhere, whatever
/// the filter says.
const TELLTALES: [&str; 6] = [
    "enigo",
    "arboard",
    "chromiumoxide",
    "tungstenite",
    "tokio_tungstenite",
    "async_tungstenite",
];

fn discreet<S>() -> impl Filter<S> {
    filter_fn(|metadata| {
        let library = metadata.target().split("::").next().unwrap_or_default();
        !TELLTALES.contains(&library)
    })
}

type AnyLayer = Box<dyn Layer<tracing_subscriber::Registry> + Send + Sync>;

fn layer(format: LogFormat) -> io::Result<AnyLayer> {
    match format {
        LogFormat::Auto if stderr_is_journal() => layer(LogFormat::Journald),
        LogFormat::Auto | LogFormat::Text => Ok(fmt::layer()
            .with_writer(io::stderr)
            .with_ansi(io::stderr().is_terminal())
            .boxed()),
        LogFormat::Json => Ok(fmt::layer().json().with_writer(io::stderr).boxed()),
        LogFormat::Journald => Ok(tracing_journald::layer()?.boxed()),
    }
}

/// Lines as text without a time, which their keeper knows. What libraries say is left out: some of it would be about the very
/// connection through which the line is read, and that without end.
fn keeping<S>(keep: Keep) -> impl Layer<S>
where
    S: tracing::Subscriber + for<'a> tracing_subscriber::registry::LookupSpan<'a>,
{
    fmt::layer()
        .with_writer(move || Keeper(keep.clone()))
        .fmt_fields(PlainFields)
        .with_ansi(false)
        .without_time()
        .with_filter(filter_fn(|metadata| {
            metadata.target().split("::").next() == Some(env!("CARGO_CRATE_NAME"))
        }))
}

struct Keeper(Keep);

impl Write for Keeper {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0(&String::from_utf8_lossy(line));
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// As by default. Layers whose fields are of one type would share what the first of them has written of a span, colours included.
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

/// The variable alone tells nothing: terminals started from a service inherit it.
fn stderr_is_journal() -> bool {
    let Ok(journal) = std::env::var(JOURNAL_VARIABLE) else {
        return false;
    };
    nix::sys::stat::fstat(io::stderr())
        .is_ok_and(|stat| journal == format!("{}:{}", stat.st_dev, stat.st_ino))
}

//! Where log lines go.

use std::io::{self, IsTerminal};

use tracing_subscriber::layer::SubscriberExt;
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

/// Starts logging for the whole process.
///
/// # Errors
/// Where the filter cannot be read, or the journal cannot be reached.
pub fn start_logs(filter: &str, format: LogFormat) -> io::Result<()> {
    let agents = format!("{AGENT_LOG_TARGET}=trace").parse();
    let filter = EnvFilter::try_new(filter)
        .map_err(io::Error::other)?
        .add_directive(agents.map_err(io::Error::other)?);
    tracing_subscriber::registry()
        .with(layer(format)?.with_filter(filter))
        .init();
    Ok(())
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

/// The variable alone tells nothing: terminals started from a service inherit it.
fn stderr_is_journal() -> bool {
    let Ok(journal) = std::env::var(JOURNAL_VARIABLE) else {
        return false;
    };
    nix::sys::stat::fstat(io::stderr())
        .is_ok_and(|stat| journal == format!("{}:{}", stat.st_dev, stat.st_ino))
}

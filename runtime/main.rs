//! `berth-script`: runs one caller's TypeScript beside Playwright, in a process of its own.
//!
//! The agent starts it as `worker`, with a socket as standard input that carries CDP messages and scripts
//! (`script_protocol`). Playwright comes out of a snapshot that lies beside the executable and that `snapshot` makes.

use std::{path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};

mod channel;
mod engine;
mod ops;
mod outcome;
mod sandbox;
#[path = "../src/system/script/protocol.rs"]
mod script_protocol;
mod snapshot;
mod stop;
mod typescript;
mod worker;

#[derive(Parser)]
#[command(version, about = "Runs TypeScript beside Playwright for berth's agent")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make the snapshot that `worker` starts from.
    Snapshot {
        /// Only where there is none that this executable made from this bundle.
        #[arg(long)]
        if_stale: bool,
        /// Playwright as one script (`runtime/dist/playwright.js`).
        bundle: PathBuf,
        /// Where to write it; beside the executable by default.
        out: Option<PathBuf>,
    },
    /// Serve scripts over standard input; the agent starts this.
    Worker(worker::Options),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Snapshot {
            if_stale,
            bundle,
            out,
        } => snapshot::make(&bundle, out, if_stale).map_err(|err| err.to_string()),
        Command::Worker(options) => worker::run(options).map_err(|err| err.to_string()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            // The agent keeps the last of a worker's standard error for its log.
            #[allow(clippy::print_stderr, reason = "a command's own error")]
            {
                eprintln!("berth-script: {message}");
            }
            ExitCode::FAILURE
        }
    }
}

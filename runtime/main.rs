//! `berth-script`: runs TypeScript with Playwright in a separate, confined process.
//!
//! The agent starts `berth-script template`, which restores Playwright from a heap snapshot beside
//! the executable; `berth-script snapshot` creates it at build time. Each worker is a fork of the
//! template, with a socket of its own that carries CDP messages and scripts ([`script_protocol`]).
//!
//! ```text
//! snapshot:  playwright.js ── engine ── berth-script.snapshot
//!
//! template:  agent ── requests ── template ── engine
//!                                     │ fork
//! worker:    agent ── socket ── channel ── worker ── engine (JavaScript, Playwright)
//!                                  │          │         │
//!                                  └── ops ◄──┼─────────┘  CDP, files, output, result
//!                                          watchdog (thread): deadline, end of the agent
//! ```
//!
//! - `template` starts the engine and forks workers.
//! - `worker` owns the event loop of a worker: messages, the engine, and the deadline of a script.
//! - `engine` owns the JavaScript runtime; `typescript` compiles scripts for it.
//! - `ops` are the functions that JavaScript may call; `Host` is their state.
//! - `channel` is the socket; `outcome` bounds output and results.
//! - `heap` arranges the template's memory, so that its forks cost little.
//! - `sandbox` confines the process before it runs a script.
//! - `watchdog` stops a script that holds the engine, and the process when the agent is gone.

use std::{path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};

mod channel;
mod engine;
mod exchanges;
mod heap;
mod ops;
mod outcome;
mod sandbox;
#[path = "../src/system/script/protocol.rs"]
#[allow(
    unreachable_pub,
    reason = "public in the library, which shares the file"
)]
mod script_protocol;
mod snapshot;
mod template;
mod typescript;
mod watchdog;
mod worker;

#[derive(Parser)]
#[command(version, about = "Run TypeScript with Playwright for the Berth agent")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Create the snapshot that `template` starts from
    Snapshot {
        /// Do nothing if the snapshot is of this executable and this bundle
        #[arg(long)]
        if_stale: bool,
        /// The Playwright bundle (`runtime/dist/playwright.js`)
        bundle: PathBuf,
        /// The file to write [default: beside the executable]
        out: Option<PathBuf>,
    },
    /// Fork workers on request (started by the agent)
    Template(template::Options),
}

/// Keeps `v8x`, the V8 interface of QuickJS, from caching compiled scripts. Without `HOME`, as in
/// the template, they would be below `/tmp`, where everybody could put code in place of them.
#[cfg(feature = "quickjs")]
#[allow(unsafe_code, reason = "changes the environment of the process")]
fn disable_code_cache() {
    // SAFETY: no other thread runs yet.
    unsafe { std::env::set_var("V82JSC_NO_BC_CACHE", "1") };
}

fn main() -> ExitCode {
    #[cfg(feature = "quickjs")]
    disable_code_cache();
    let result = match Cli::parse().command {
        Command::Snapshot {
            if_stale,
            bundle,
            out,
        } => snapshot::make(&bundle, out, if_stale).map_err(|err| err.to_string()),
        Command::Template(options) => template::run(options).map_err(|err| err.to_string()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            // The agent logs the end of a worker's standard error.
            #[allow(clippy::print_stderr, reason = "a command reports its error")]
            {
                eprintln!("berth-script: {message}");
            }
            ExitCode::FAILURE
        }
    }
}

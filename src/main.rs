//! `berth`: the agent, the control plane, and both on one machine.

use std::process::ExitCode;

use berth::cli::{Cli, CliError, Command, start_logs};

fn main() -> ExitCode {
    let cli = match Cli::resolve(std::env::args_os()) {
        Ok(cli) => cli,
        Err(CliError::Usage(error)) => error.exit(),
        Err(error) => return fail(&error),
    };
    if let Err(error) = start_logs(&cli.common.log, cli.common.log_format) {
        return fail(&format!("cannot log: {error}"));
    }
    match cli.command {
        Command::Openapi(_) => ExitCode::SUCCESS,
    }
}

/// One line that says what is wrong, and the exit code 1.
fn fail(error: &dyn std::fmt::Display) -> ExitCode {
    eprintln!("berth: {error}");
    ExitCode::FAILURE
}

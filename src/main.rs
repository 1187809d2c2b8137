//! `berth`: the agent, the control plane, and both on one machine.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use berth::agent::logs::ProgramLog;
use berth::cli::{CheckCommand, Cli, CliError, Command, Keep, KeyCommand, ServerName, start_logs};
use berth::system::{process::open_files, x11::clipboard};
use berth::{agent, control, dev};

/// For what runs beside the tasks, once all of these have ended or were given up.
const LAST_GRACE: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    // A part of an agent and no command of its own. It has no log: what it holds may be a secret.
    if std::env::args_os().nth(1).as_deref() == Some(clipboard::COMMAND.as_ref()) {
        return match clipboard::run_owner() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error),
        };
    }
    let cli = match Cli::resolve(std::env::args_os()) {
        Ok(cli) => cli,
        Err(CliError::Usage(error)) => error.exit(),
        Err(error) => return fail(&error),
    };
    let own_log = ProgramLog::default();
    let keep: Option<Keep> = match cli.command {
        Command::Agent(_) => Some(Arc::new(own_log.line_writer())),
        _ => None,
    };
    if let Err(error) = start_logs(&cli.common.log, cli.common.log_format, keep) {
        return fail(&format!("cannot log: {error}"));
    }
    let log = &cli.common.log;
    match cli.command {
        Command::Agent(settings) => run(agent::run(&settings, own_log)),
        Command::Control(settings) => run(control::run(&settings, agent::document(), log)),
        Command::Dev(settings) => run(dev::run(&settings, log)),
        Command::Key(KeyCommand::Create(options)) => run(async move {
            control::key_create::create(&options)
                .await
                .map(|created| created.print())
        }),
        Command::Check(CheckCommand::Agent(settings)) => checked(settings.check()),
        Command::Check(CheckCommand::Control(settings)) => checked(settings.check(log)),
        Command::Check(CheckCommand::Dev(settings)) => checked(settings.control.check(log)),
        Command::Openapi(arguments) => match arguments.server {
            ServerName::Agent => print_document(&agent::document()),
            ServerName::Control => print_document(&control::document(agent::document())),
        },
    }
}

/// Runs a command to its end.
fn run<E: std::fmt::Display>(command: impl Future<Output = Result<(), E>>) -> ExitCode {
    open_files::raise_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error),
    };
    let done = runtime.block_on(command);
    // What still waits for a disk has had its time.
    runtime.shutdown_timeout(LAST_GRACE);
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

fn checked<T, E: std::fmt::Display>(outcome: Result<T, E>) -> ExitCode {
    match outcome {
        Ok(_) => {
            println!("the settings are in order");
            ExitCode::SUCCESS
        }
        Err(error) => fail(&error),
    }
}

fn print_document(document: &utoipa::openapi::OpenApi) -> ExitCode {
    match document.to_pretty_json() {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => fail(&error),
    }
}

/// One line that says what is wrong, and the exit code 1.
fn fail(error: &dyn std::fmt::Display) -> ExitCode {
    eprintln!("berth: {error}");
    ExitCode::FAILURE
}

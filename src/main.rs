//! The `berth` program: agent, control plane, and both on one machine.

use std::{process::ExitCode, sync::Arc, time::Duration};

use berth::{
    agent::{self, logs::ProgramLog},
    cli::{CheckCommand, Cli, CliError, Command, KeyCommand, LogSink, ServerName, init_logging},
    control, dev,
    system::{
        process::{allocator, environment, open_files},
        x11::clipboard,
    },
};

/// Time for blocking calls to finish after all tasks have ended or timed out.
const BLOCKING_GRACE_PERIOD: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    // A child process of the agent, not a command for users. It does not log, because the clipboard
    // may contain a secret.
    if std::env::args_os().nth(1).as_deref() == Some(clipboard::COMMAND.as_ref()) {
        return match clipboard::run_owner() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error),
        };
    }
    // Before any thread is started, and before any process is that could read it.
    environment::erase_initial();
    let cli = match Cli::resolve(std::env::args_os()) {
        Ok(cli) => cli,
        Err(CliError::Usage(error)) => error.exit(),
        Err(error) => return fail(&error),
    };
    let own_log = ProgramLog::default();
    let sink: Option<LogSink> = match cli.command {
        Command::Agent(_) => Some(Arc::new(own_log.line_writer())),
        _ => None,
    };
    if let Err(error) = init_logging(&cli.common.log, cli.common.log_format, sink) {
        return fail(&format!("cannot initialize logging: {error}"));
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
        Command::Check(CheckCommand::Agent(settings)) => report_check(settings.check()),
        Command::Check(CheckCommand::Control(settings)) => report_check(settings.check(log)),
        Command::Check(CheckCommand::Dev(settings)) => report_check(settings.control.check(log)),
        Command::Openapi(arguments) => match arguments.server {
            ServerName::Agent => print_document(&agent::document()),
            ServerName::Control => print_document(&control::document(agent::document())),
        },
    }
}

/// Runs a command on a new runtime.
fn run<E: std::fmt::Display>(command: impl Future<Output = Result<(), E>>) -> ExitCode {
    allocator::configure();
    open_files::raise_limit();
    allocator::start_trimming();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error),
    };
    let result = runtime.block_on(command);
    // Bounded: a blocking call may hang on a disk.
    runtime.shutdown_timeout(BLOCKING_GRACE_PERIOD);
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

fn report_check<T, E: std::fmt::Display>(result: Result<T, E>) -> ExitCode {
    match result {
        Ok(_) => {
            println!("settings are valid");
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

/// Prints the error on one line and returns exit code 1.
fn fail(error: &dyn std::fmt::Display) -> ExitCode {
    eprintln!("berth: {error}");
    ExitCode::FAILURE
}

//! The `berth` program: agent, control plane, and both on one machine.

use std::{fmt::Display, net::TcpListener, process::ExitCode, sync::Arc, time::Duration};

use berth::{
    agent::{self, PassedAgent, logs::ProgramLog},
    cli::{
        CheckCommand, Cli, CliError, Command, DatabaseCommand, KeyCommand, LogGuard, LogSink,
        ProfileCommand, SecretsCommand, ServerName, agent_command, init_logging, print_error,
    },
    control::{
        self,
        database::{self, Verdict},
        secrets::rotation,
    },
    dev, machine_hooks, profile_import,
    system::{
        process::{allocator, child, core_dumps, environment, handover, open_files},
        service_manager,
        x11::clipboard,
    },
};
use tokio::runtime::Builder;

/// The exit code of `berth database check` if migrations are pending.
const OUTDATED_EXIT_CODE: u8 = 3;

/// The time after which idle threads of an agent end, longer than any agent runs. A program gets
/// its death signal when the thread ends that has started it.
const AGENT_THREAD_KEEP_ALIVE: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
/// Time for blocking calls to finish after all tasks have ended or timed out.
const BLOCKING_GRACE_PERIOD: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    if let Some(exit_code) = run_child() {
        return exit_code;
    }
    // Before any thread is started, and before any process is that could read it.
    environment::erase_initial();
    if let Err(error) = core_dumps::disable() {
        return fail(&format!("cannot disable core files: {error}"));
    }
    let passed = handover::take_state().unwrap_or_else(|error| {
        print_error(format!(
            "berth: the running browser cannot be continued: {error}"
        ));
        handover::kill_children();
        None
    });
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
    let passed_listener = match cli.command {
        Command::Control(_) => service_manager::take_listener(),
        _ => Ok(None),
    };
    let passed_listener = match passed_listener {
        Ok(listener) => listener,
        Err(error) => return fail(&error),
    };
    let log = match init_logging(&cli.common.log, cli.common.log_format, sink) {
        Ok(log) => log,
        Err(error) => return fail(&format!("cannot initialize logging: {error}")),
    };
    let result = execute(cli, own_log, passed_listener, passed, &log);
    // The lines that are still queued come before the error.
    drop(log);
    match result {
        Ok(code) => code,
        Err(error) => fail(&error),
    }
}

/// Runs a child process of the agent, which is not a command for users. It does not log, because
/// the clipboard and the environment of a program may contain secrets.
fn run_child() -> Option<ExitCode> {
    let command = std::env::args_os().nth(1)?;
    if command == clipboard::COMMAND {
        Some(exit_code(clipboard::run_owner()))
    } else if command == handover::FORMAT_COMMAND {
        println!("{}", handover::FORMAT);
        Some(ExitCode::SUCCESS)
    } else {
        None
    }
}

fn exit_code<E: Display>(result: Result<(), E>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

fn execute(
    cli: Cli,
    own_log: ProgramLog,
    passed_listener: Option<TcpListener>,
    passed: Option<PassedAgent>,
    guard: &LogGuard,
) -> Result<ExitCode, String> {
    let log = &cli.common.log;
    let done = match cli.command {
        Command::Agent(settings) => serve_agent(&settings, own_log, passed, guard),
        Command::Control(settings) => {
            let running = control::run(&settings, agent::document(), passed_listener, log);
            serve(running, guard)
        }
        Command::Dev(settings) => serve(dev::run(&settings, log), guard),
        Command::Profile(ProfileCommand::Import(options)) => {
            let config = options.check()?;
            let imported = run(profile_import::import(config), guard)?;
            println!("{imported}");
            Ok(())
        }
        Command::Key(KeyCommand::Create(options)) => {
            let creating = async move {
                control::key_create::create(&options)
                    .await
                    .map(|created| created.print())
            };
            run(creating, guard)
        }
        Command::Database(DatabaseCommand::Migrate(options)) => {
            let (database, applied) = run(async move { database::migrate(&options).await }, guard)?;
            for migration in &applied {
                println!("applied {migration}");
            }
            println!("{database}: {} migrations applied", applied.len());
            Ok(())
        }
        Command::Database(DatabaseCommand::Check(options)) => {
            let report = run(async move { database::check(&options).await }, guard)?;
            return Ok(match database::print_report(&report) {
                Verdict::Usable => ExitCode::SUCCESS,
                Verdict::Outdated => ExitCode::from(OUTDATED_EXIT_CODE),
                Verdict::Damaged => ExitCode::FAILURE,
            });
        }
        Command::Secrets(command) => manage_secrets(command, guard),
        Command::Check(CheckCommand::Agent(settings)) => report_check(settings.check()),
        Command::Check(CheckCommand::Control(settings)) => report_check(settings.check(log)),
        Command::Check(CheckCommand::Dev(settings)) => report_check(settings.check(log)),
        Command::Openapi(arguments) => match arguments.server {
            ServerName::Agent => print_document(&agent::document()),
            ServerName::Control => print_document(&control::document(agent::document())),
        },
        Command::MachineSettings(options) => {
            let report = options.collect(&agent_command());
            report
                .map(|report| println!("{report}"))
                .map_err(|error| error.to_string())
        }
        Command::MachineHooks(options) => run(machine_hooks::run(options), guard),
        Command::Completions(options) => options.print().map_err(|error| error.to_string()),
        Command::ManPages(options) => {
            let written = options.write();
            written.map_err(|error| format!("{}: {error}", options.directory.display()))
        }
    };
    done.map(|()| ExitCode::SUCCESS)
}

fn manage_secrets(command: SecretsCommand, guard: &LogGuard) -> Result<(), String> {
    match command {
        SecretsCommand::Status(options) => {
            let keys = run(async move { rotation::status(&options).await }, guard)?;
            rotation::print_status(&keys);
        }
        SecretsCommand::Rotate(options) => {
            let is_applied = options.apply;
            let report = run(async move { rotation::rotate(&options).await }, guard)?;
            rotation::print_report(&report, is_applied);
        }
        SecretsCommand::Retire(options) => {
            let key = options.key.clone();
            run(async move { rotation::retire(&options).await }, guard)?;
            println!("the key {key} is retired: remove it from the keys");
        }
    }
    Ok(())
}

/// Runs an agent, whose children are started on this thread.
fn serve_agent(
    settings: &agent::settings::Settings,
    own_log: ProgramLog,
    passed: Option<PassedAgent>,
    guard: &LogGuard,
) -> Result<(), String> {
    let mut runtime = Builder::new_multi_thread();
    runtime.thread_keep_alive(AGENT_THREAD_KEEP_ALIVE);
    let serve = || serve_on(runtime, agent::run(settings, own_log, passed), guard);
    child::start_on_main_thread(serve).unwrap_or_else(|error| Err(error.to_string()))
}

/// Runs a server.
fn serve<E: std::fmt::Display>(
    server: impl Future<Output = Result<(), E>>,
    log: &LogGuard,
) -> Result<(), String> {
    serve_on(Builder::new_multi_thread(), server, log)
}

fn serve_on<E: std::fmt::Display>(
    runtime: Builder,
    server: impl Future<Output = Result<(), E>>,
    log: &LogGuard,
) -> Result<(), String> {
    if std::process::id() == 1 {
        tracing::warn!(
            "running as PID 1: orphans of client programs are not reaped; use docker run --init, tini or systemd"
        );
    }
    run_on(runtime, server, log)
}

/// Runs a command on a new runtime.
fn run<T, E: std::fmt::Display>(
    command: impl Future<Output = Result<T, E>>,
    log: &LogGuard,
) -> Result<T, String> {
    run_on(Builder::new_multi_thread(), command, log)
}

fn run_on<T, E: std::fmt::Display>(
    mut runtime: Builder,
    command: impl Future<Output = Result<T, E>>,
    log: &LogGuard,
) -> Result<T, String> {
    allocator::configure();
    open_files::raise_limit();
    allocator::start_trimming();
    let runtime = runtime.enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    runtime.spawn(log.report_dropped_lines());
    let result = runtime.block_on(command);
    // Bounded: a blocking call may hang on a disk.
    runtime.shutdown_timeout(BLOCKING_GRACE_PERIOD);
    result.map_err(|error| error.to_string())
}

fn report_check<T, E: std::fmt::Display>(result: Result<T, E>) -> Result<(), String> {
    result.map_err(|error| error.to_string())?;
    println!("settings are valid");
    Ok(())
}

fn print_document(document: &utoipa::openapi::OpenApi) -> Result<(), String> {
    let text = document.to_pretty_json();
    println!("{}", text.map_err(|error| error.to_string())?);
    Ok(())
}

/// Prints the error on one line and returns exit code 1.
fn fail(error: &dyn std::fmt::Display) -> ExitCode {
    print_error(format!("berth: {error}"));
    ExitCode::FAILURE
}

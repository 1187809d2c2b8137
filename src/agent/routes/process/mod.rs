//! `/process`

use std::{io, sync::Arc};

use nix::errno::Errno;

use super::FULL_RETRY;
use crate::{
    agent::{
        Agent,
        chromium::DisplayStatus,
        process::{
            DisplayAccess, Process, ResizeError, SignalError, SpawnError, StdinError, UserError,
        },
    },
    api::ids::ProcessId,
    http::{ApiError, ApiResult},
    system::process::session::StartError,
};

pub mod attach;
pub mod exec;
pub mod kill;
pub mod resize;
pub mod spawn;
pub mod status;
pub mod stdin;
pub mod stdout;

const TAG: &str = crate::api::groups::PROCESSES;

fn find(agent: &Agent, id: &ProcessId) -> ApiResult<Arc<Process>> {
    let found = agent.processes.get(id);
    found.ok_or_else(|| ApiError::not_found("there is no such process"))
}

/// The screen that Chromium is on, for programs to be on it as well.
fn display(agent: &Agent) -> Option<DisplayAccess> {
    match agent.chromium.status().display {
        DisplayStatus::Up { name, .. } => Some(DisplayAccess {
            name,
            authority: agent.config.state_dir.display_authority(),
        }),
        DisplayStatus::Headless | DisplayStatus::Down => None,
    }
}

impl From<SpawnError> for ApiError {
    fn from(error: SpawnError) -> Self {
        let message = error.to_string();
        match error {
            SpawnError::LimitReached(_) => ApiError::limit_exceeded(message, FULL_RETRY),
            SpawnError::ShuttingDown => ApiError::unavailable(message, FULL_RETRY),
            SpawnError::User(error) => match error {
                UserError::Unknown => wrong("as_user", message),
                UserError::NotPermitted => ApiError::forbidden(message),
                UserError::Lookup(cause) => ApiError::internal(cause),
            },
            SpawnError::Start(error) => match error {
                StartError::Directory(cause) => wrong("cwd", not_entered(&cause)),
                StartError::Program(cause) => wrong("command", not_run(&cause)),
                StartError::Credentials(cause) if is(&cause, Errno::EPERM) => {
                    ApiError::forbidden("the agent may not run programs as somebody else")
                }
                StartError::Exhausted(_) => ApiError::unavailable(message, FULL_RETRY),
                StartError::Credentials(cause) | StartError::Other(cause) => {
                    ApiError::internal(cause)
                }
            },
        }
    }
}

fn wrong(field: &'static str, what: impl Into<String>) -> ApiError {
    ApiError::bad_field(field, what)
}

fn is(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno as i32)
}

fn not_entered(cause: &io::Error) -> &'static str {
    match cause.kind() {
        io::ErrorKind::NotFound => "there is no such directory",
        io::ErrorKind::NotADirectory => "is not a directory",
        io::ErrorKind::PermissionDenied => "may not be entered by that user",
        _ => "cannot be entered",
    }
}

fn not_run(cause: &io::Error) -> &'static str {
    match cause.kind() {
        io::ErrorKind::NotFound => "there is no such program, or its interpreter is missing",
        io::ErrorKind::NotADirectory => "goes through something that is no directory",
        // The kernel says the same of a directory.
        io::ErrorKind::PermissionDenied => "is not a program that the user may execute",
        io::ErrorKind::ArgumentListTooLong => {
            "arguments and variables are more than the system takes"
        }
        io::ErrorKind::InvalidFilename => "is longer than the system takes",
        _ if is(cause, Errno::ENOEXEC) => "is not a program for this system",
        _ => "cannot be executed",
    }
}

impl From<StdinError> for ApiError {
    fn from(error: StdinError) -> Self {
        let message = error.to_string();
        match error {
            StdinError::Closed | StdinError::Exited => ApiError::conflict(message).permanent(),
            StdinError::Failed(cause) => ApiError::internal(cause),
        }
    }
}

impl From<SignalError> for ApiError {
    fn from(error: SignalError) -> Self {
        match error {
            SignalError::Survived => ApiError::unavailable(error.to_string(), FULL_RETRY),
            SignalError::Scan(cause) => ApiError::internal(cause),
        }
    }
}

impl From<ResizeError> for ApiError {
    fn from(error: ResizeError) -> Self {
        let message = error.to_string();
        match error {
            ResizeError::NoTerminal => ApiError::bad_request(message),
            ResizeError::Exited => ApiError::conflict(message).permanent(),
            ResizeError::Failed(cause) => ApiError::internal(cause),
        }
    }
}

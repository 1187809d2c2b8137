//! `/process`: programs that run for clients.
//!
//! Maps the errors of [`crate::agent::process`] to API errors.

use std::{io, sync::Arc};

use nix::errno::Errno;

use super::FULL_RETRY_DELAY;
use crate::{
    agent::{
        chromium::{Chromium, DisplayStatus},
        process::{
            DisplayAccess, Process, Processes, ResizeError, SignalError, SpawnError, StdinError,
            UserError,
        },
        settings::Config,
    },
    api::ids::ProcessId,
    http::{ApiError, ApiResult},
    system::process::session::StartError,
};

pub(crate) mod attach;
pub(crate) mod exec;
pub(crate) mod kill;
pub(crate) mod resize;
pub(crate) mod spawn;
pub(crate) mod status;
pub(crate) mod stdin;
pub(crate) mod stdout;

const TAG: &str = crate::api::groups::PROCESSES;

fn find(processes: &Processes, id: &ProcessId) -> ApiResult<Arc<Process>> {
    let process = processes.get(id);
    process.ok_or_else(|| ApiError::not_found("no process with that id"))
}

/// Returns access to the display that Chromium uses, for programs to use it as well.
fn display_access(chromium: &Chromium, config: &Config) -> Option<DisplayAccess> {
    match chromium.status().display {
        DisplayStatus::Up { name, .. } => Some(DisplayAccess {
            name,
            authority: config.session_dir.display_authority(),
        }),
        DisplayStatus::Headless | DisplayStatus::Down => None,
    }
}

impl From<SpawnError> for ApiError {
    fn from(error: SpawnError) -> Self {
        let message = error.to_string();
        match error {
            SpawnError::LimitReached(_) => ApiError::limit_exceeded(message, FULL_RETRY_DELAY),
            SpawnError::ShuttingDown => ApiError::unavailable(message, FULL_RETRY_DELAY),
            SpawnError::User(error) => match error {
                UserError::Unknown => ApiError::bad_field("as_user", message),
                UserError::NotPermitted => ApiError::forbidden(message),
                UserError::Lookup(cause) => ApiError::internal(cause),
            },
            SpawnError::Start(error) => match error {
                StartError::Directory(cause) => {
                    ApiError::bad_field("cwd", describe_directory_error(&cause))
                }
                StartError::Program(cause) => {
                    ApiError::bad_field("command", describe_program_error(&cause))
                }
                StartError::Credentials(cause) if is_errno(&cause, Errno::EPERM) => {
                    ApiError::forbidden("the agent may not run programs as another user")
                }
                StartError::Exhausted(_) | StartError::Killed | StartError::Timeout => {
                    ApiError::unavailable(message, FULL_RETRY_DELAY)
                }
                StartError::Namespace(cause)
                | StartError::Credentials(cause)
                | StartError::Other(cause) => ApiError::internal(cause),
            },
        }
    }
}

fn is_errno(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno as i32)
}

fn describe_directory_error(cause: &io::Error) -> &'static str {
    match cause.kind() {
        io::ErrorKind::NotFound => "does not exist",
        io::ErrorKind::NotADirectory => "is not a directory",
        io::ErrorKind::PermissionDenied => "permission denied for that user",
        _ => "cannot be entered",
    }
}

fn describe_program_error(cause: &io::Error) -> &'static str {
    match cause.kind() {
        io::ErrorKind::NotFound => "does not exist, or its interpreter is missing",
        io::ErrorKind::NotADirectory => "has a path component that is not a directory",
        // The kernel reports a directory in the same way.
        io::ErrorKind::PermissionDenied => "is not executable by that user",
        io::ErrorKind::ArgumentListTooLong => {
            "arguments and variables exceed the limit of the system"
        }
        io::ErrorKind::InvalidFilename => "is longer than the limit of the system",
        _ if is_errno(cause, Errno::ENOEXEC) => "has a format that this system cannot execute",
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
            SignalError::Survived => ApiError::unavailable(error.to_string(), FULL_RETRY_DELAY),
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

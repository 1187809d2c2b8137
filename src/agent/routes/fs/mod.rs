//! `/fs`

use std::time::Duration;

use crate::{
    agent::fs::{files::FileError, watches::StartError},
    http::{ApiError, ApiResult},
    system::watcher::WatchError,
};

pub mod create_directory;
pub mod delete_directory;
pub mod delete_file;
pub mod file_info;
pub mod list_files;
pub mod r#move;
pub mod read_file;
pub mod set_file_permissions;
pub mod watch;
pub mod write_file;

const TAG: &str = "files";

/// Watches come and go with what uses them.
const FULL_RETRY: Duration = Duration::from_secs(5);

impl From<StartError> for ApiError {
    fn from(error: StartError) -> Self {
        let message = format!("path: {error}");
        let wrong = |what: String| ApiError::bad_request(message.clone()).detail("path", what);
        match error {
            StartError::Full => ApiError::limit_exceeded(error.to_string(), FULL_RETRY),
            StartError::Stopping => ApiError::unavailable(error.to_string(), FULL_RETRY),
            StartError::Watch(error) => match error {
                WatchError::NotFound => ApiError::not_found(message),
                WatchError::NotADirectory | WatchError::Denied => wrong(error.to_string()),
                WatchError::SystemLimit => ApiError::limit_exceeded(error.to_string(), FULL_RETRY),
                WatchError::Other(cause) => ApiError::internal(cause),
            },
        }
    }
}

/// Runs what waits for a disk beside the server's own threads. What is wrong with the file is told of the field that names it.
async fn blocking<T: Send + 'static>(
    field: &'static str,
    work: impl FnOnce() -> Result<T, FileError> + Send + 'static,
) -> ApiResult<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(|error| refusal(field, error)),
        Err(error) => Err(ApiError::internal(error)),
    }
}

fn refusal(field: &'static str, error: FileError) -> ApiError {
    let what = error.to_string();
    let message = format!("{field}: {what}");
    match error {
        FileError::NotFound => ApiError::not_found(message),
        FileError::Exists | FileError::NotEmpty => ApiError::conflict(message).permanent(),
        FileError::Denied | FileError::ReadOnly => ApiError::forbidden(message),
        FileError::NoSpace => ApiError::payload_too_large(message),
        FileError::NotAFile
        | FileError::NotADirectory
        | FileError::IsADirectory
        | FileError::Root
        | FileError::InsideItself
        | FileError::BadPath
        | FileError::TooManyEntries => ApiError::bad_request(message).detail(field, what),
        FileError::NoUser => ApiError::bad_request(what.clone()).detail("owner", what),
        FileError::NoGroup => ApiError::bad_request(what.clone()).detail("group", what),
        FileError::Other(cause) => ApiError::internal(cause),
    }
}

//! `/fs`

use super::FULL_RETRY;
use crate::{
    agent::fs::{
        archives::ArchiveError, files::FileError, unzip::UnzipError, watches::StartWatchError,
    },
    http::{ApiError, ApiResult},
    system::{files::archive::unpack::UnpackError, files::watcher::WatchError},
};

pub mod create_directory;
pub mod delete_directory;
pub mod delete_file;
mod download;
pub mod download_dir_zip;
pub mod download_dir_zstd;
pub mod file_info;
pub mod list_files;
pub mod r#move;
pub mod read_file;
mod receive;
pub mod set_file_permissions;
pub mod upload;
pub mod upload_zip;
pub mod watch;
pub mod write_file;

const TAG: &str = crate::api::groups::FILES;

impl From<StartWatchError> for ApiError {
    fn from(error: StartWatchError) -> Self {
        let message = format!("path: {error}");
        let wrong = |what: String| ApiError::bad_field("path", what);
        match error {
            StartWatchError::LimitReached => {
                ApiError::limit_exceeded(error.to_string(), FULL_RETRY)
            }
            StartWatchError::ShuttingDown => ApiError::unavailable(error.to_string(), FULL_RETRY),
            StartWatchError::Watch(error) => match error {
                WatchError::NotFound => ApiError::not_found(message),
                WatchError::NotADirectory | WatchError::PermissionDenied => {
                    wrong(error.to_string())
                }
                WatchError::LimitReached | WatchError::SystemLimit => {
                    ApiError::limit_exceeded(error.to_string(), FULL_RETRY)
                }
                WatchError::Other(cause) => ApiError::internal(cause),
            },
        }
    }
}

/// What is wrong with the directory or archive is told of the field that names it.
fn archive_refusal(field: &'static str, error: ArchiveError) -> ApiError {
    match error {
        ArchiveError::Busy => ApiError::limit_exceeded(error.to_string(), FULL_RETRY),
        ArchiveError::File(error) => refusal(field, error),
        ArchiveError::Unzip(error) => unzip_refusal(error),
    }
}

fn unzip_refusal(error: UnzipError) -> ApiError {
    let what = error.to_string();
    match error {
        UnzipError::File(error) => refusal("dest_path", error),
        UnzipError::Unpack(error) => unpack_refusal("zip_file", error),
        UnzipError::NotADirectory(_)
        | UnzipError::IsADirectory(_)
        | UnzipError::OtherFileSystem(_) => ApiError::bad_field("dest_path", what),
        UnzipError::PermissionDenied(_) => ApiError::forbidden(format!("dest_path: {what}")),
    }
}

/// What is wrong with an archive, told of the field it came in.
pub fn unpack_refusal(field: &str, error: UnpackError) -> ApiError {
    let what = error.to_string();
    let message = format!("{field}: {what}");
    match error {
        UnpackError::Invalid(_) => ApiError::bad_field(field, what),
        UnpackError::TooLarge(_) | UnpackError::TooDense(_) => ApiError::payload_too_large(message),
        UnpackError::ShuttingDown => ApiError::unavailable(message, FULL_RETRY),
        UnpackError::Truncated => ApiError::bad_request("the body broke off"),
        UnpackError::Io(error) => refusal(field, error.into()),
    }
}

/// Runs what waits for a disk beside the server's own threads. It is brought to its end although whoever asked leaves.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> ApiResult<T> {
    let working = tokio::task::spawn_blocking(work);
    working.await.map_err(ApiError::internal)
}

/// As [`blocking`]; what is wrong with the file is told of the field that names it.
async fn blocking_on<T: Send + 'static>(
    field: &'static str,
    work: impl FnOnce() -> Result<T, FileError> + Send + 'static,
) -> ApiResult<T> {
    blocking(work).await?.map_err(|error| refusal(field, error))
}

pub(super) fn refusal(field: &str, error: FileError) -> ApiError {
    let what = error.to_string();
    let message = format!("{field}: {what}");
    match error {
        FileError::NotFound => ApiError::not_found(message),
        FileError::AlreadyExists | FileError::NotEmpty => ApiError::conflict(message).permanent(),
        FileError::PermissionDenied | FileError::ReadOnly => ApiError::forbidden(message),
        FileError::NoSpace => ApiError::payload_too_large(message),
        FileError::NotRegular
        | FileError::NotADirectory
        | FileError::IsADirectory
        | FileError::RootDirectory
        | FileError::InsideItself
        | FileError::Busy
        | FileError::OtherFileSystem
        | FileError::InvalidEnding(_)
        | FileError::InvalidPath
        | FileError::VirtualFileSystem
        | FileError::TooManyEntries => ApiError::bad_field(field, what),
        FileError::UnknownUser => ApiError::bad_field("owner", what),
        FileError::UnknownGroup => ApiError::bad_field("group", what),
        FileError::Other(cause) => ApiError::internal(cause),
    }
}

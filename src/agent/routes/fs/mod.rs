//! `/fs`: files, directories, archives and watches.
//!
//! Blocking file operations run on tokio's blocking threads ([`blocking`], [`blocking_on`]). Errors
//! of [`crate::agent::fs`] are mapped to API errors here, each attributed to the field of the
//! request that names the file.

use super::FULL_RETRY_DELAY;
use crate::{
    agent::fs::{
        archives::ArchiveError, files::FileError, unzip::UnzipError, watches::StartWatchError,
    },
    http::{ApiError, ApiResult},
    system::{files::archive::unpack::UnpackError, files::watcher::WatchError},
};

pub(crate) mod create_directory;
pub(crate) mod delete_directory;
pub(crate) mod delete_file;
mod download;
pub(crate) mod download_dir_zip;
pub(crate) mod download_dir_zstd;
pub(crate) mod file_info;
pub(crate) mod list_files;
pub(crate) mod r#move;
pub(crate) mod read_file;
mod receive;
pub(crate) mod set_file_permissions;
pub(crate) mod upload;
pub(crate) mod upload_zip;
pub(crate) mod watch;
pub(crate) mod write_file;

const TAG: &str = crate::api::groups::FILES;

impl From<StartWatchError> for ApiError {
    fn from(error: StartWatchError) -> Self {
        let message = format!("path: {error}");
        match error {
            StartWatchError::LimitReached => {
                ApiError::limit_exceeded(error.to_string(), FULL_RETRY_DELAY)
            }
            StartWatchError::ShuttingDown => {
                ApiError::unavailable(error.to_string(), FULL_RETRY_DELAY)
            }
            StartWatchError::Watch(error) => match error {
                WatchError::NotFound => ApiError::not_found(message),
                WatchError::Protected => file_error("path", FileError::Protected),
                WatchError::NotADirectory | WatchError::PermissionDenied => {
                    ApiError::bad_field("path", error.to_string())
                }
                WatchError::LimitReached | WatchError::SystemLimit => {
                    ApiError::limit_exceeded(error.to_string(), FULL_RETRY_DELAY)
                }
                WatchError::Other(cause) => ApiError::internal(cause),
            },
        }
    }
}

/// Maps an error of an archive, attributed to the field that names the directory or the archive.
fn archive_error(field: &'static str, error: ArchiveError) -> ApiError {
    match error {
        ArchiveError::Busy => ApiError::limit_exceeded(error.to_string(), FULL_RETRY_DELAY),
        ArchiveError::File(error) => file_error(field, error),
        ArchiveError::Unzip(error) => unzip_error(error),
    }
}

fn unzip_error(error: UnzipError) -> ApiError {
    let reason = error.to_string();
    match error {
        UnzipError::File(error) => file_error("dest_path", error),
        UnzipError::Unpack(error) => unpack_error("zip_file", error),
        UnzipError::NotADirectory(_)
        | UnzipError::IsADirectory(_)
        | UnzipError::OtherFileSystem(_) => ApiError::bad_field("dest_path", reason),
        UnzipError::PermissionDenied(_) => ApiError::forbidden(format!("dest_path: {reason}")),
    }
}

/// Maps an error of an uploaded archive, attributed to the field that it came in.
pub(crate) fn unpack_error(field: &str, error: UnpackError) -> ApiError {
    let reason = error.to_string();
    let message = format!("{field}: {reason}");
    match error {
        UnpackError::Invalid(_) => ApiError::bad_field(field, reason),
        UnpackError::TooLarge(_) | UnpackError::TooDense(_) => ApiError::payload_too_large(message),
        UnpackError::ShuttingDown => ApiError::unavailable(message, FULL_RETRY_DELAY),
        UnpackError::Truncated => ApiError::bad_request("the body is incomplete"),
        UnpackError::Io(error) => file_error(field, error.into()),
    }
}

/// Runs `work`, which may wait for a disk, off the server's own threads. It runs to its end even if
/// the client disconnects.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> ApiResult<T> {
    let result = tokio::task::spawn_blocking(work);
    result.await.map_err(ApiError::internal)
}

/// Like [`blocking`]. Errors are attributed to `field`, which names the file.
async fn blocking_on<T: Send + 'static>(
    field: &'static str,
    work: impl FnOnce() -> Result<T, FileError> + Send + 'static,
) -> ApiResult<T> {
    blocking(work)
        .await?
        .map_err(|error| file_error(field, error))
}

/// Maps an error of a file, attributed to the field that names it.
pub(super) fn file_error(field: &str, error: FileError) -> ApiError {
    let reason = error.to_string();
    let message = format!("{field}: {reason}");
    match error {
        FileError::NotFound | FileError::MissingDirectory(_) => ApiError::not_found(message),
        FileError::AlreadyExists | FileError::NotEmpty => ApiError::conflict(message).permanent(),
        FileError::PermissionDenied
        | FileError::ReadOnly
        | FileError::ForeignLink
        | FileError::ForeignFile
        | FileError::Protected
        | FileError::NoPath => ApiError::forbidden(message),
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
        | FileError::TooDeep
        | FileError::ListingTooLarge(_)
        | FileError::TooManyEntries => ApiError::bad_field(field, reason),
        FileError::UnknownUser => ApiError::bad_field("owner", reason),
        FileError::UnknownGroup => ApiError::bad_field("group", reason),
        FileError::Other(cause) => ApiError::internal(cause),
    }
}

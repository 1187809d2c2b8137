//! `POST /fs/upload_zip`.

use std::{fs::File, path::PathBuf, sync::Arc};

use axum::extract::State;
use http::StatusCode;

use super::{
    TAG, archive_error, blocking, blocking_on,
    receive::{read_path, receive_part},
};
use crate::{
    agent::{
        fs::{archives::Archives, files::FileError, temp_files::TempFileJournal},
        settings::Config,
    },
    api::{
        ErrorBody,
        agent::Done,
        fs::{GuestPath, UploadZipForm},
    },
    http::{ApiError, ApiResult, FieldErrors, Json, Multipart, Part},
};

const DUPLICATE: &str = "is duplicate";

/// Upload a directory as a zip archive
///
/// The form has two parts in any order: `zip_file`, the archive, and `dest_path`, the absolute path
/// of the directory that it is unpacked into. The directory is created if it is missing, with its
/// parents. Files with the same names are replaced, each atomically; other files stay, and existing
/// directories keep their permissions. Permissions, times and symbolic links are restored; owners
/// and set-user bits are not. Directories that the archive does not list get mode 755.
///
/// The archive is checked and unpacked beside its destination first: an invalid archive changes
/// nothing. If a file then cannot be put in place, for instance over a mount point, the error names
/// it, and a part of the files is in place. The disk needs room for the archive in the agent's
/// state directory, and for its content beside the destination. A body without progress for 30
/// seconds is rejected. If 4 archives are being made or unpacked, the request waits up to 30
/// seconds.
///
/// Rejected are absolute names and names that lead out by `..`, links that lead out of the archive
/// (`..` is allowed only at the start of a target), entries behind a link, duplicate entries,
/// devices, encrypted or overlapping entries, compression other than deflate, directory entries
/// with content, more than 250,000 entries (directories included) or a list of entries longer than
/// 64 MiB, and content of more than 16 GiB or more than 200 times the size of the archive beyond 64
/// MiB (settings of the agent).
#[utoipa::path(
    post,
    path = "/fs/upload_zip",
    operation_id = "upload_zip",
    tag = TAG,
    request_body(content = UploadZipForm, content_type = "multipart/form-data"),
    responses(
        (status = 201, body = Done),
        (status = 400, body = ErrorBody, description = "A part is missing or duplicate, the archive is invalid, the path is not absolute, or a file is in the way"),
        (status = 403, body = ErrorBody, description = "Permission denied, or the destination is among the agent's own files"),
        (status = 404, body = ErrorBody, description = "A part of the path is a dangling link, or lies where no directory can be created"),
        (status = 408, body = ErrorBody, description = "The body made no progress for 30 s"),
        (status = 413, body = ErrorBody, description = "The content of the archive exceeds a limit, or the space on the disk"),
        (status = 415, body = ErrorBody, description = "The body is not multipart/form-data"),
        (status = 429, body = ErrorBody, description = "4 archives were being made or unpacked for 30 s; nothing was changed"),
        (status = 503, body = ErrorBody, description = "The agent is stopping; nothing was changed"),
    )
)]
pub(crate) async fn upload_zip(
    State(archives): State<Archives>,
    State(temp_files): State<TempFileJournal>,
    State(config): State<Arc<Config>>,
    parts: Multipart,
) -> ApiResult<(StatusCode, Json<Done>)> {
    let (archive, path) = read_form(parts, config.session_dir.work()).await?;
    // Acquired only now, so that slow clients do not keep others from unpacking.
    let permit = archives.acquire_permit().await;
    let permit = permit.map_err(|error| archive_error("zip_file", error))?;
    let unzipped =
        blocking(move || archives.unzip(permit, archive, path.as_path(), &temp_files)).await?;
    unzipped.map_err(|error| archive_error("dest_path", error))?;
    Ok((StatusCode::CREATED, Json(Done { ok: true })))
}

/// Reads the form: the archive, in an unnamed file within `directory`, and the destination.
async fn read_form(mut parts: Multipart, directory: PathBuf) -> ApiResult<(File, GuestPath)> {
    let (mut archive, mut path) = (None, None);
    while let Some(part) = parts.next_part().await? {
        match part.name() {
            "zip_file" if archive.is_some() => {
                return Err(ApiError::bad_field("zip_file", DUPLICATE));
            }
            "dest_path" if path.is_some() => {
                return Err(ApiError::bad_field("dest_path", DUPLICATE));
            }
            "zip_file" => archive = Some(receive_archive(part, directory.clone()).await?),
            "dest_path" => path = Some(read_path(part).await?),
            name if part.is_file() => {
                let reason = "is unknown: the archive is the part zip_file";
                return Err(ApiError::bad_field(name, reason));
            }
            _ => part.skip().await?,
        }
    }
    let mut errors = FieldErrors::default();
    if archive.is_none() {
        errors.add("zip_file", "is required");
    }
    let path = path.unwrap_or_else(|| Err("is required".to_owned()));
    if let Err(reason) = &path {
        errors.add("dest_path", reason);
    }
    match (archive, path) {
        (Some(archive), Ok(path)) => Ok((archive, path)),
        _ => Err(errors.into()),
    }
}

/// Stores the archive in a file without a name, which the kernel removes with its last handle.
async fn receive_archive(part: Part<'_>, directory: PathBuf) -> ApiResult<File> {
    let file = blocking_on("zip_file", move || {
        tempfile::tempfile_in(directory).map_err(FileError::from)
    })
    .await?;
    let writer = file.try_clone().map_err(ApiError::internal)?;
    receive_part(part, writer, "zip_file").await?;
    Ok(file)
}

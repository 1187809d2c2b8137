//! `POST /fs/upload_zip`

use axum::extract::State;
use http::StatusCode;

use super::{TAG, archive_refusal, blocking, blocking_on, receive::Receiving};
use crate::{
    agent::{Agent, fs::files::FileError},
    api::{
        ErrorBody,
        agent::Done,
        fs::{GuestPath, MAX_PATH, UploadZipForm},
    },
    http::{ApiError, ApiResult, FieldErrors, Json, Multipart},
};

const TWICE: &str = "is there twice";

/// Upload a directory as a zip archive
///
/// Two parts in any order: `zip_file`, the archive, and `dest_path`, the absolute path of the directory it is unpacked into. That is made where it is missing, with
/// its parents. Files of the same names are replaced, each in one step; others stay, and directories that are there keep their permissions.
/// Permissions, times and symbolic links are taken over; owners and set-user bits are not.
///
/// The archive is checked and unpacked beside its place first: a bad one changes nothing. Should something then not be able to take its place, such as
/// over a file that is a mount point, the answer says so and a part of the files is there. The archive waits in the agent's state folder, so that the
/// disk needs room for it there and for its content beside its place. A body that stands still for 30 seconds is given up, and where
/// 4 archives are being made or unpacked, it waits 30 seconds for one of them to be done. Directories that
/// the archive does not name get 755. Links may lead up (`..`) only at the beginning of their target. Refused are names that are absolute or lead out by `..`, links
/// that lead out of the archive, entries behind a link or there twice, devices, encrypted or overlapping entries, compression other than deflate,
/// directory entries with content, more than 250,000 entries (directories included) or 64 MiB of a list of them, and what unpacks to more than 16 GiB or to 200 times its own size beyond 64 MiB (settings of the agent).
#[utoipa::path(
    post,
    path = "/fs/upload_zip",
    operation_id = "upload_zip",
    tag = TAG,
    request_body(content = UploadZipForm, content_type = "multipart/form-data"),
    responses(
        (status = 201, body = Done),
        (status = 400, body = ErrorBody, description = "a part is missing or there twice, a bad archive, not an absolute path, or something is in the way"),
        (status = 403, body = ErrorBody, description = "it may not be written there"),
        (status = 404, body = ErrorBody, description = "a part of the path is a link that leads nowhere, or lies where nothing can be made"),
        (status = 408, body = ErrorBody, description = "nothing more of the body came for 30 seconds"),
        (status = 413, body = ErrorBody, description = "it unpacks to too much, or to more than the disk takes"),
        (status = 415, body = ErrorBody, description = "not multipart/form-data"),
        (status = 429, body = ErrorBody, description = "4 archives were being made or unpacked for 30 seconds; nothing has changed"),
        (status = 503, body = ErrorBody, description = "the agent is stopping; nothing has changed"),
    )
)]
pub async fn upload_zip(
    State(agent): State<Agent>,
    mut parts: Multipart,
) -> ApiResult<(StatusCode, Json<Done>)> {
    let (mut archive, mut path) = (None, None);
    while let Some(mut part) = parts.next().await? {
        match part.name() {
            "zip_file" if archive.is_some() => return Err(ApiError::bad_field("zip_file", TWICE)),
            "dest_path" if path.is_some() => return Err(ApiError::bad_field("dest_path", TWICE)),
            "zip_file" => {
                let work = agent.config.state_dir.work();
                // Without a name from the beginning, so that it goes with its last handle.
                let file = blocking_on("zip_file", move || {
                    tempfile::tempfile_in(work).map_err(FileError::from)
                })
                .await?;
                let writer = file.try_clone().map_err(ApiError::internal)?;
                let mut receiving = Receiving::new(writer, "zip_file");
                while let Some(chunk) = part.chunk().await? {
                    receiving.write(&chunk).await?;
                }
                receiving.finish().await?;
                archive = Some(file);
            }
            "dest_path" => {
                let text = part.text(MAX_PATH).await?;
                path = Some(match text {
                    Some(text) => GuestPath::parse(text),
                    None => Err(format!("must be UTF-8 of {MAX_PATH} bytes at most")),
                });
            }
            name if part.is_file() => {
                let what = "is not known here: the archive is the part zip_file";
                return Err(ApiError::bad_field(name, what));
            }
            _ => part.skip().await?,
        }
    }
    let mut errors = FieldErrors::default();
    if archive.is_none() {
        errors.add("zip_file", "is required");
    }
    let path = path.unwrap_or_else(|| Err("is required".to_owned()));
    if let Err(what) = &path {
        errors.add("dest_path", what);
    }
    let (Some(archive), Ok(path)) = (archive, path) else {
        return Err(errors.into());
    };
    // Only now, so that a slow client keeps nobody from unpacking.
    let place = agent.archives.acquire_permit().await;
    let place = place.map_err(|error| archive_refusal("zip_file", error))?;
    let unzipping = blocking(move || {
        agent
            .archives
            .unzip(place, archive, path.as_path(), &agent.temp_files)
    });
    let unzipped = unzipping.await?;
    unzipped.map_err(|error| archive_refusal("dest_path", error))?;
    Ok((StatusCode::CREATED, Json(Done { ok: true })))
}

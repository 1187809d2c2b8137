//! `POST /fs/upload_zip`

use axum::extract::State;
use http::StatusCode;

use super::{TAG, archive_refusal, blocking, receive::Receiving};
use crate::{
    agent::{Agent, fs::files::FileError},
    api::{
        ErrorBody,
        agent::Done,
        fs::{GuestPath, MAX_PATH, UploadZipForm},
    },
    http::{ApiError, ApiResult, Json, Multipart},
};

/// Upload a directory as a zip archive
///
/// Two parts in any order: `zip_file`, the archive, and `dest_path`, the absolute path of the directory it is unpacked into. That is made where it is missing, with
/// its parents. Files of the same names are replaced, each in one step; others stay, and directories that are there keep their permissions.
/// Permissions, times and symbolic links are taken over; owners and set-user bits are not.
///
/// The archive is checked and unpacked beside its place first: a bad one changes nothing. Refused are names that are absolute or lead out by `..`, links
/// that lead out of the archive, entries behind a link or there twice, devices, encrypted or overlapping entries, compression other than deflate,
/// more than 250,000 entries, and what unpacks to more than 16 GiB or to 200 times its own size beyond 64 MiB (settings of the agent).
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
        (status = 413, body = ErrorBody, description = "it unpacks to too much, or to more than the disk takes"),
        (status = 415, body = ErrorBody, description = "not multipart/form-data"),
    )
)]
pub async fn upload_zip(
    State(agent): State<Agent>,
    mut parts: Multipart,
) -> ApiResult<(StatusCode, Json<Done>)> {
    let (mut archive, mut path) = (None, None);
    while let Some(mut part) = parts.next().await? {
        match part.name() {
            "zip_file" if archive.is_some() => return Err(twice("zip_file")),
            "dest_path" if path.is_some() => return Err(twice("dest_path")),
            "zip_file" => {
                let work = agent.config.state_dir.work();
                // Without a name from the beginning, so that it goes with its last handle.
                let file = blocking("zip_file", move || {
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
            _ => part.skip().await?,
        }
    }
    let mut wrong = Vec::new();
    if archive.is_none() {
        wrong.push(("zip_file", "is required".to_owned()));
    }
    let path = path.unwrap_or_else(|| Err("is required".to_owned()));
    if let Err(what) = &path {
        wrong.push(("dest_path", what.clone()));
    }
    let (Some(archive), Ok(path)) = (archive, path) else {
        let message = match wrong.as_slice() {
            [(field, what)] => format!("{field}: {what}"),
            many => format!("{} fields are invalid", many.len()),
        };
        let refused = wrong
            .into_iter()
            .fold(ApiError::bad_request(message), |error, (field, what)| {
                error.detail(field, what)
            });
        return Err(refused);
    };
    // Only now, so that a slow client keeps nobody from unpacking.
    let place = agent.archives.next_place().await;
    let place = place.map_err(|error| archive_refusal("zip_file", error))?;
    let unzipping = tokio::task::spawn_blocking(move || {
        agent
            .archives
            .unzip(place, archive, path.as_path(), &agent.drafts)
    });
    match unzipping.await {
        Ok(Ok(())) => Ok((StatusCode::CREATED, Json(Done { ok: true }))),
        Ok(Err(error)) => Err(archive_refusal("dest_path", error)),
        Err(error) => Err(ApiError::internal(error)),
    }
}

fn twice(field: &str) -> ApiError {
    let what = "is there twice";
    ApiError::bad_request(format!("{field}: {what}")).detail(field, what)
}

//! `GET /fs/download_dir_zip`.

use axum::{extract::State, response::Response};

use super::{TAG, download::download};
use crate::{
    agent::fs::archives::Archives,
    api::{Binary, ErrorBody, fs::PathQuery},
    http::{ApiResult, Query},
    system::files::archive::ArchiveFormat,
};

/// Download a directory as a zip archive
///
/// Keeps permissions, times (to the second) and symbolic links. A file with several hard links is
/// stored once per name.
///
/// The archive is made while it is sent. Entries that vanish meanwhile, cannot be read, have a name
/// that is not UTF-8, or are sockets, FIFOs or devices are skipped; a file that shrinks is filled
/// with zeros, and one that grows is cut. If there are any such entries, the last entry of the
/// archive, `.berth-skipped.json`, lists up to 1,000 of their paths and counts the rest.
///
/// A connection that is closed early means that the archive is incomplete. A client that takes no
/// data for 60 seconds is disconnected. A directory may have 1,000,000 entries, 128 levels deep.
/// At most 4 archives are made or unpacked at once.
#[utoipa::path(
    get,
    path = "/fs/download_dir_zip",
    operation_id = "download_dir_zip",
    tag = TAG,
    params(PathQuery),
    responses(
        (status = 200, body = inline(Binary), content_type = "application/zip", headers(("Content-Disposition" = String, description = "A file name for the archive"))),
        (status = 400, body = ErrorBody, description = "The path is not absolute, is not a directory, or is on a virtual file system"),
        (status = 403, body = ErrorBody, description = "Permission denied, or the directory is or contains the agent's own files"),
        (status = 404, body = ErrorBody, description = "The directory does not exist"),
        (status = 429, body = ErrorBody, description = "4 archives are already being made or unpacked"),
    )
)]
pub(crate) async fn download_dir_zip(
    State(archives): State<Archives>,
    Query(query): Query<PathQuery>,
) -> ApiResult<Response> {
    download(&archives, query.path, ArchiveFormat::Zip).await
}

//! `GET /fs/download_dir_zip`

use axum::{extract::State, response::Response};

use super::{TAG, download::download};
use crate::{
    agent::Agent,
    api::{ErrorBody, fs::PathQuery},
    http::{ApiResult, Query},
    system::files::archive::ArchiveFormat,
};

/// Download a directory as a zip archive
///
/// Made while it is sent. Permissions, times (to the second) and symbolic links are kept; a file of several names is there as many times.
/// What vanishes meanwhile, cannot be read, has a name that is not UTF-8, or is a socket, FIFO or device is left out; a file that shrinks is filled with
/// zeros, one that grows is cut. Where there was any such thing, the last entry, `.berth-skipped.json`, lists it (1,000 paths at most, and
/// how many more). A connection that is closed early means that the archive is not whole; the archive of one that takes nothing for 120 seconds is given up. A directory may have 1,000,000 entries, 128 deep; at most 4
/// archives are made or unpacked at once.
#[utoipa::path(
    get,
    path = "/fs/download_dir_zip",
    operation_id = "download_dir_zip",
    tag = TAG,
    params(PathQuery),
    responses(
        (status = 200, body = Vec<u8>, content_type = "application/zip"),
        (status = 400, body = ErrorBody, description = "not an absolute path, not a directory, or one of the kernel's own"),
        (status = 403, body = ErrorBody, description = "it may not be read"),
        (status = 404, body = ErrorBody, description = "there is no such directory"),
        (status = 429, body = ErrorBody, description = "4 archives are being made or unpacked"),
    )
)]
pub async fn download_dir_zip(
    State(agent): State<Agent>,
    Query(query): Query<PathQuery>,
) -> ApiResult<Response> {
    download(&agent.archives, query.path, ArchiveFormat::Zip).await
}

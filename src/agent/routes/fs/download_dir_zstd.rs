//! `GET /fs/download_dir_zstd`

use axum::{extract::State, response::Response};

use super::{TAG, download::download};
use crate::{
    agent::Agent,
    api::{ErrorBody, fs::DownloadQuery},
    http::{ApiResult, Query},
    system::files::archive::ArchiveFormat,
};

/// Download a directory as a tar archive, compressed with zstd
///
/// Made while it is sent, on all cores. Owners, permissions, times (to the second), symbolic and hard links are kept.
/// What vanishes meanwhile, cannot be read, or is a socket, FIFO or device is left out; a file that shrinks is filled with zeros, one that grows
/// is cut. Where there was any such thing, the last entry, `.berth-skipped.json`, lists it (1,000 paths at most, and how many more).
/// A connection that is closed early means that the archive is not whole; the archive of one that takes nothing for 120 seconds is given up. A directory may have 1,000,000 entries, 128 deep; at most 4
/// archives are made or unpacked at once.
#[utoipa::path(
    get,
    path = "/fs/download_dir_zstd",
    operation_id = "download_dir_zstd",
    tag = TAG,
    params(DownloadQuery),
    responses(
        (status = 200, body = Vec<u8>, content_type = "application/zstd"),
        (status = 400, body = ErrorBody, description = "not an absolute path, not a directory, one of the kernel's own, or a bad level"),
        (status = 403, body = ErrorBody, description = "it may not be read"),
        (status = 404, body = ErrorBody, description = "there is no such directory"),
        (status = 429, body = ErrorBody, description = "4 archives are being made or unpacked"),
    )
)]
pub async fn download_dir_zstd(
    State(agent): State<Agent>,
    Query(query): Query<DownloadQuery>,
) -> ApiResult<Response> {
    let level = query.compression_level.unwrap_or_default();
    download(&agent.archives, query.path, ArchiveFormat::TarZstd(level)).await
}

//! `/profiles/{id_or_name}/download`.

use std::io;

use axum::{body::Body, extract::State, response::Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};

use super::TAG;
use crate::{
    api::{
        Binary, ErrorBody,
        profiles::{ArchiveForm, DownloadProfile},
    },
    control::{
        blobs::BlobError,
        profiles::{ProfileError, Profiles},
        routes::authentication::Principal,
        store::{ProfileRow, ProfileVersionRow},
    },
    http::{ApiError, ApiResult, Path, Query, RangeResponse},
};

/// Download a profile
///
/// Returns the current version: a tar archive of the complete user-data directory, compressed with
/// zstd. It contains credentials. As it is stored, it supports range and conditional requests
/// (`Range`, `If-Range`, `If-None-Match`); its entity tag is its SHA-256. With `format=tar` it is
/// decompressed while it is sent.
#[utoipa::path(
    get,
    path = "/profiles/{id_or_name}/download",
    operation_id = "download_profile",
    tag = TAG,
    params(
        ("id_or_name" = String, Path, description = "The id or name of the profile", example = "shop-login"),
        DownloadProfile,
        ("Range" = Option<String>, Header, description = "The part to return", example = "bytes=0-1048575"),
        ("If-Range" = Option<String>, Header, description = "The entity tag that `Range` applies to; of another version the whole is returned", example = "\"0f343b0931126a20f133d67c2b018a3b\""),
        ("If-None-Match" = Option<String>, Header, description = "The entity tag of the client's copy", example = "\"0f343b0931126a20f133d67c2b018a3b\""),
    ),
    responses(
        (status = 200, body = inline(Binary), content_type = "application/octet-stream", headers(("Content-Disposition" = String, description = "A file name for the archive"))),
        (status = 206, body = inline(Binary), content_type = "application/octet-stream", headers(("Content-Disposition" = String, description = "A file name for the archive"))),
        (status = 304, description = "The client's copy is current"),
        (status = 404, body = ErrorBody, description = "No such profile, or it was never saved (`profile_empty`)"),
        (status = 416, body = ErrorBody, description = "The range is not satisfiable"),
        (status = 503, body = ErrorBody, description = "The storage of profiles is not available"),
    )
)]
pub(crate) async fn download(
    State(profiles): State<Profiles>,
    principal: Principal,
    Path(id_or_name): Path<String>,
    Query(request): Query<DownloadProfile>,
    headers: HeaderMap,
) -> ApiResult<Response> {
    let profile = profiles.get(&principal.project, &id_or_name).await?;
    loop {
        let version = profiles.current_version(&profile.id).await?;
        let response = match request.format {
            ArchiveForm::TarZst => stored(&profiles, &version, &headers).await,
            ArchiveForm::Tar => decompressed(&profiles, &profile, &version, &headers).await,
        };
        match response {
            Ok(response) => return with_headers(response, &profile, request.format),
            Err(ProfileError::Blob(BlobError::NotFound))
                if is_outdated(&profiles, &version).await? => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Returns whether another version was published since, so that the archive may be gone.
async fn is_outdated(
    profiles: &Profiles,
    version: &ProfileVersionRow,
) -> Result<bool, ProfileError> {
    let current = profiles.current_version(&version.profile_id).await?;
    Ok(current.number != version.number)
}

/// Returns the archive as it is stored, or the requested range of it.
async fn stored(
    profiles: &Profiles,
    version: &ProfileVersionRow,
    request: &HeaderMap,
) -> Result<Response, ProfileError> {
    let ranged = RangeResponse::new(request, version.size_bytes, etag(version.sha256())?);
    let body = match ranged.range() {
        Some(range) => Body::from_stream(profiles.read(version, range).await?),
        None => Body::empty(),
    };
    Ok(ranged.with_body(body))
}

/// Returns the decompressed archive. Its length is not known.
async fn decompressed(
    profiles: &Profiles,
    profile: &ProfileRow,
    version: &ProfileVersionRow,
    request: &HeaderMap,
) -> Result<Response, ProfileError> {
    let etag = etag(&format!("{}-tar", version.sha256()))?;
    let mut condition = request.clone();
    condition.remove(header::RANGE);
    let conditional = RangeResponse::new(&condition, 0, etag.clone());
    if conditional.range().is_none() {
        return Ok(conditional.with_body(Body::empty()));
    }
    let content = profiles.read_decompressed(&profile.project_id, version);
    let content = content.await?;
    let mut response = Response::new(Body::from_stream(content));
    response.headers_mut().insert(header::ETAG, etag);
    Ok(response)
}

fn etag(tag: &str) -> Result<HeaderValue, ProfileError> {
    let value = HeaderValue::try_from(format!("\"{tag}\""));
    value.map_err(|error| io::Error::other(error).into())
}

fn with_headers(
    mut response: Response,
    profile: &ProfileRow,
    form: ArchiveForm,
) -> ApiResult<Response> {
    let status = response.status();
    let headers = response.headers_mut();
    headers.insert(
        header::CACHE_CONTROL,
        HeaderValue::from_static("private, no-cache"),
    );
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    if matches!(status, StatusCode::OK | StatusCode::PARTIAL_CONTENT) {
        let extension = match form {
            ArchiveForm::TarZst => "tar.zst",
            ArchiveForm::Tar => "tar",
        };
        // A name has no characters that need quotes.
        let name = profile.name.as_deref().unwrap_or(profile.id.as_str());
        let disposition = format!("attachment; filename=\"{name}.{extension}\"");
        let disposition = HeaderValue::try_from(disposition).map_err(ApiError::internal)?;
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/octet-stream"),
        );
        headers.insert(header::CONTENT_DISPOSITION, disposition);
    }
    Ok(response)
}

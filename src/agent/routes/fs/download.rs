//! Sends archives of directories.

use std::path::Path;

use axum::{body::Body, response::Response};
use futures::stream;
use http::{HeaderValue, header};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::{archive_error, blocking};
use crate::{
    agent::fs::archives::{ArchiveChunks, Archives},
    api::fs::GuestPath,
    http::ApiResult,
    system::files::archive::ArchiveFormat,
};

/// Returns a response that sends the directory `path` as an archive.
pub(crate) async fn download(
    archives: &Archives,
    path: GuestPath,
    format: ArchiveFormat,
) -> ApiResult<Response> {
    let name = file_name(path.as_path(), format);
    let archives = archives.clone();
    let chunks = blocking(move || archives.download(path.as_path(), format)).await?;
    let chunks = chunks.map_err(|error| archive_error("path", error))?;
    let mut response = Response::new(body(chunks));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, content_type(format));
    let disposition = format!(
        "attachment; filename*=UTF-8''{}",
        utf8_percent_encode(&name, NON_ALPHANUMERIC)
    );
    if let Ok(disposition) = HeaderValue::try_from(disposition) {
        headers.insert(header::CONTENT_DISPOSITION, disposition);
    }
    Ok(response)
}

/// Returns a body of chunks. An error among them closes the connection early.
pub(crate) fn body(mut chunks: ArchiveChunks) -> Body {
    Body::from_stream(stream::poll_fn(move |context| chunks.poll_recv(context)))
}

fn content_type(format: ArchiveFormat) -> HeaderValue {
    HeaderValue::from_static(match format {
        ArchiveFormat::TarZstd(_) => "application/zstd",
        ArchiveFormat::Zip => "application/zip",
    })
}

fn file_name(path: &Path, format: ArchiveFormat) -> String {
    let name = path.file_name().map(|name| name.to_string_lossy());
    let extension = match format {
        ArchiveFormat::TarZstd(_) => "tar.zst",
        ArchiveFormat::Zip => "zip",
    };
    format!("{}.{extension}", name.as_deref().unwrap_or("root"))
}

//! Receives request bodies and parts of forms.

use std::io;

use bytes::Bytes;
use tokio::{fs::File, io::AsyncWriteExt};

use super::file_error;
use crate::{
    agent::fs::files::FileError,
    api::fs::{GuestPath, MAX_PATH},
    http::{ApiError, ApiResult, Part},
};

/// The largest file that is accepted, in bytes.
const MAX_FILE_SIZE: u64 = 64 << 30;

/// Writes a body to a file, chunk by chunk.
pub(crate) struct BodyWriter {
    file: File,
    received: u64,
    /// The request's field that errors are attributed to.
    field: String,
}

impl BodyWriter {
    pub(crate) fn new(file: std::fs::File, field: impl Into<String>) -> Self {
        BodyWriter {
            file: File::from_std(file),
            received: 0,
            field: field.into(),
        }
    }

    pub(crate) async fn write(&mut self, chunk: &Bytes) -> ApiResult<()> {
        self.received += chunk.len() as u64;
        if self.received > MAX_FILE_SIZE {
            return Err(ApiError::payload_too_large(format!(
                "{}: file is larger than {MAX_FILE_SIZE} bytes",
                self.field
            )));
        }
        let written = self.file.write_all(chunk).await;
        written.map_err(|error| self.error(error))
    }

    pub(crate) async fn finish(mut self) -> ApiResult<()> {
        let flushed = self.file.flush().await;
        flushed.map_err(|error| self.error(error))
    }

    fn error(&self, error: io::Error) -> ApiError {
        file_error(&self.field, FileError::from(error))
    }
}

/// Writes the content of a part to `file`. Errors are attributed to `field`.
pub(crate) async fn receive_part(
    mut part: Part<'_>,
    file: std::fs::File,
    field: impl Into<String>,
) -> ApiResult<()> {
    let mut writer = BodyWriter::new(file, field);
    while let Some(chunk) = part.chunk().await? {
        writer.write(&chunk).await?;
    }
    writer.finish().await
}

/// Reads a part that is a path. The inner error says why it is not one.
pub(crate) async fn read_path(part: Part<'_>) -> ApiResult<Result<GuestPath, String>> {
    Ok(match part.text(MAX_PATH).await? {
        Some(text) => GuestPath::parse(text),
        None => Err(format!("must be UTF-8 of at most {MAX_PATH} bytes")),
    })
}

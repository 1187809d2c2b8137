//! Receives request bodies and parts of forms.

use std::{
    fs::File,
    io::{self, Write},
    sync::Arc,
};

use tokio::task::{JoinHandle, spawn_blocking};

use super::file_error;
use crate::{
    agent::fs::files::FileError,
    api::fs::{GuestPath, MAX_PATH},
    http::{ApiError, ApiResult, Part},
};

/// The largest file that is accepted, in bytes.
const MAX_FILE_SIZE: u64 = 64 << 30;

/// The bytes that are written at once. A chunk has what the socket had: writing each would hand the
/// file to another thread and back several thousand times per GiB.
const BUFFER: usize = 1 << 20;

/// Writes a body to a file. While one buffer is written, the other one is filled.
pub(crate) struct BodyWriter {
    file: Arc<File>,
    buffer: Vec<u8>,
    /// Writes the other buffer, and returns it.
    pending_write: Option<JoinHandle<(Vec<u8>, io::Result<()>)>>,
    received: u64,
    /// The request's field that errors are attributed to.
    field: String,
}

impl BodyWriter {
    pub(crate) fn new(file: File, field: impl Into<String>) -> Self {
        BodyWriter {
            file: Arc::new(file),
            buffer: Vec::new(),
            pending_write: None,
            received: 0,
            field: field.into(),
        }
    }

    pub(crate) async fn write(&mut self, mut chunk: &[u8]) -> ApiResult<()> {
        self.received += chunk.len() as u64;
        if self.received > MAX_FILE_SIZE {
            return Err(ApiError::payload_too_large(format!(
                "{}: file is larger than {MAX_FILE_SIZE} bytes",
                self.field
            )));
        }
        while !chunk.is_empty() {
            let fits = chunk.len().min(BUFFER - self.buffer.len());
            let (start, rest) = chunk.split_at(fits);
            self.buffer.extend_from_slice(start);
            chunk = rest;
            if self.buffer.len() == BUFFER {
                self.write_buffer().await?;
            }
        }
        Ok(())
    }

    pub(crate) async fn finish(mut self) -> ApiResult<()> {
        self.write_buffer().await?;
        self.wait_for_write().await.map(drop)
    }

    /// Starts to write the buffer, once the one before is written.
    async fn write_buffer(&mut self) -> ApiResult<()> {
        let mut buffer = self.wait_for_write().await?;
        std::mem::swap(&mut buffer, &mut self.buffer);
        let file = self.file.clone();
        self.pending_write = Some(spawn_blocking(move || {
            let written = (&*file).write_all(&buffer);
            buffer.clear();
            (buffer, written)
        }));
        Ok(())
    }

    /// Waits until the buffer before is written, and returns it empty.
    async fn wait_for_write(&mut self) -> ApiResult<Vec<u8>> {
        let Some(pending) = self.pending_write.take() else {
            return Ok(Vec::new());
        };
        let (buffer, written) = pending.await.map_err(ApiError::internal)?;
        let failed = |error| file_error(&self.field, FileError::from(error));
        written.map(|()| buffer).map_err(failed)
    }
}

/// Writes the content of a part to `file`. Errors are attributed to `field`.
pub(crate) async fn receive_part(
    mut part: Part<'_>,
    file: File,
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

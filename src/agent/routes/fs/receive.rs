//! A body on its way into a file.

use std::io;

use bytes::Bytes;
use tokio::{fs::File, io::AsyncWriteExt};

use super::refusal;
use crate::{
    agent::fs::files::FileError,
    http::{ApiError, ApiResult},
};

/// The longest file that is taken.
const MAX_FILE: u64 = 64 << 30;

pub struct Receiving {
    file: File,
    received: u64,
    /// Errors are told of it.
    field: String,
}

impl Receiving {
    pub fn new(file: std::fs::File, field: impl Into<String>) -> Self {
        Receiving {
            file: File::from_std(file),
            received: 0,
            field: field.into(),
        }
    }

    pub async fn write(&mut self, chunk: &Bytes) -> ApiResult<()> {
        self.received += chunk.len() as u64;
        if self.received > MAX_FILE {
            return Err(ApiError::payload_too_large(format!(
                "{}: a file may have {MAX_FILE} bytes at most",
                self.field
            )));
        }
        let written = self.file.write_all(chunk).await;
        written.map_err(|error| self.failed(error))
    }

    pub async fn finish(mut self) -> ApiResult<()> {
        let flushed = self.file.flush().await;
        flushed.map_err(|error| self.failed(error))
    }

    fn failed(&self, error: io::Error) -> ApiError {
        refusal(&self.field, FileError::from(error))
    }
}

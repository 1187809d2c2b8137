//! Receives request bodies and parts of forms.

use std::{
    collections::VecDeque,
    fs::File,
    io::{self, Write},
    mem,
    sync::Arc,
};

use parking_lot::Mutex;
use tokio::{sync::Notify, task::spawn_blocking};

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
const BUFFER: usize = 512 << 10;
/// The buffers of a body that wait to be written, besides the one that is written and the one that
/// is filled.
const MAX_WAITING: usize = 2;

/// Writes a body to a file, while more of it is received.
pub(crate) struct BodyWriter {
    writes: Arc<FileWrites>,
    buffer: Vec<u8>,
    received: u64,
    /// The request's field that errors are attributed to.
    field: String,
}

impl BodyWriter {
    pub(crate) fn new(file: File, field: impl Into<String>) -> Self {
        BodyWriter {
            writes: Arc::new(FileWrites {
                file,
                state: Mutex::default(),
                changed: Notify::new(),
            }),
            buffer: Vec::new(),
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
                self.writes.push(mem::take(&mut self.buffer));
                let empty = self.writes.empty_buffer().await;
                self.buffer = empty.map_err(|error| self.failed(error))?;
            }
        }
        Ok(())
    }

    pub(crate) async fn finish(mut self) -> ApiResult<()> {
        self.writes.push(mem::take(&mut self.buffer));
        let ended = self.writes.ended().await;
        ended.map_err(|error| self.failed(error))
    }

    fn failed(&self, error: io::Error) -> ApiError {
        file_error(&self.field, FileError::from(error))
    }
}

/// Writes buffers to a file, one after the other. A thread does so as long as there are any: a slow
/// client occupies none.
struct FileWrites {
    file: File,
    state: Mutex<WriteState>,
    /// Notified when a buffer is written, and at the end of all writes.
    changed: Notify,
}

#[derive(Default)]
struct WriteState {
    full: VecDeque<Vec<u8>>,
    empty: Vec<Vec<u8>>,
    is_writing: bool,
    error: Option<io::Error>,
}

impl FileWrites {
    fn push(self: &Arc<Self>, buffer: Vec<u8>) {
        let mut state = self.state.lock();
        state.full.push_back(buffer);
        if !state.is_writing {
            state.is_writing = true;
            let writes = self.clone();
            spawn_blocking(move || writes.write_all());
        }
    }

    /// Returns a buffer to fill, once few enough wait to be written.
    async fn empty_buffer(&self) -> io::Result<Vec<u8>> {
        self.wait_for(|state| {
            (state.full.len() <= MAX_WAITING).then(|| state.empty.pop().unwrap_or_default())
        })
        .await
    }

    /// Waits until everything is written.
    async fn ended(&self) -> io::Result<()> {
        self.wait_for(|state| (!state.is_writing).then_some(()))
            .await
    }

    /// Waits until a write has failed or `find` finds something.
    async fn wait_for<T>(&self, find: impl Fn(&mut WriteState) -> Option<T>) -> io::Result<T> {
        loop {
            {
                let mut state = self.state.lock();
                if let Some(error) = state.error.take() {
                    return Err(error);
                }
                if let Some(found) = find(&mut state) {
                    return Ok(found);
                }
            }
            self.changed.notified().await;
        }
    }

    /// Writes until there is no full buffer, or until a write fails.
    fn write_all(&self) {
        while let Some(mut buffer) = self.next_full() {
            let written = (&self.file).write_all(&buffer);
            let mut state = self.state.lock();
            match written {
                Ok(()) => {
                    buffer.clear();
                    state.empty.push(buffer);
                }
                Err(error) => {
                    state.full.clear();
                    state.error = Some(error);
                }
            }
            drop(state);
            self.changed.notify_one();
        }
        self.changed.notify_one();
    }

    /// Returns the next buffer to write, or records that none is being written.
    fn next_full(&self) -> Option<Vec<u8>> {
        let mut state = self.state.lock();
        let next = state.full.pop_front();
        state.is_writing = next.is_some();
        next
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

#[cfg(test)]
mod tests {
    use std::{fs, iter};

    use super::*;

    #[tokio::test]
    async fn body_is_written_in_order() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        // Pieces of all positions relative to the buffers, and more than all buffers hold.
        let lengths = [
            0,
            1,
            BUFFER - 1,
            BUFFER,
            BUFFER + 1,
            (MAX_WAITING + 2) * BUFFER + 7,
        ];
        let body: Vec<u8> = iter::successors(Some(1_u32), |x| Some(x.wrapping_mul(0x9E37_79B1)))
            .map(|x| (x >> 24) as u8)
            .take(lengths.iter().sum())
            .collect();
        let mut writer = BodyWriter::new(File::create(&path).unwrap(), "path");
        let mut rest = &body[..];
        for length in lengths {
            let (piece, after) = rest.split_at(length);
            writer.write(piece).await.unwrap();
            rest = after;
        }
        writer.finish().await.unwrap();
        assert!(fs::read(&path).unwrap() == body);
    }

    #[tokio::test]
    async fn failed_write_is_reported() {
        let full = || File::options().write(true).open("/dev/full").unwrap();
        let mut short = BodyWriter::new(full(), "path");
        short.write(b"short").await.unwrap();
        short.finish().await.expect_err("the device is full");
        let mut long = BodyWriter::new(full(), "path");
        let written = async {
            for _ in 0..=MAX_WAITING + 2 {
                long.write(&[0; BUFFER]).await?;
            }
            long.finish().await
        };
        written.await.expect_err("the device is full");
    }
}

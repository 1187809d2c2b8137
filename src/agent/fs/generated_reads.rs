//! Reading files whose content the kernel generates, such as those below `/proc`.
//!
//! A read of such a file may block, whatever its client does. The thread holds the permit of the
//! read, so that even reads that block occupy only a bounded number of threads.

use std::{
    fs::File,
    io::{self, Read},
    sync::Arc,
};

use bytes::Bytes;
use futures::{Stream, stream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The limit on concurrent reads of generated files.
pub const MAX_GENERATED_READS: usize = 16;
/// The bytes of one read.
const CHUNK_BYTES: usize = 64 << 10;

/// The reads of generated files; clones share the limit.
#[derive(Debug, Clone)]
pub struct GeneratedReads {
    permits: Arc<Semaphore>,
}

/// A generated file that is being read.
#[derive(Debug)]
pub struct GeneratedFile {
    file: File,
    _permit: OwnedSemaphorePermit,
}

impl Default for GeneratedReads {
    fn default() -> Self {
        GeneratedReads {
            permits: Arc::new(Semaphore::new(MAX_GENERATED_READS)),
        }
    }
}

impl GeneratedReads {
    /// Returns the file with a permit to read it, or `None` if the limit is reached.
    #[must_use]
    pub fn start(&self, file: File) -> Option<GeneratedFile> {
        let permit = self.permits.clone().try_acquire_owned().ok()?;
        Some(GeneratedFile {
            file,
            _permit: permit,
        })
    }
}

impl GeneratedFile {
    /// Returns the content, up to where a read would have to wait for more.
    pub fn into_stream(self) -> impl Stream<Item = io::Result<Bytes>> + Send {
        stream::try_unfold(self, |mut reading| async {
            let read = tokio::task::spawn_blocking(move || {
                let chunk = reading.read_chunk()?;
                Ok::<_, io::Error>((!chunk.is_empty()).then_some((chunk, reading)))
            });
            read.await.map_err(io::Error::other)?
        })
    }

    /// Reads a chunk, which is empty at the end.
    fn read_chunk(&mut self) -> io::Result<Bytes> {
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            match self.file.read(&mut chunk) {
                Ok(count) => {
                    chunk.truncate(count);
                    return Ok(chunk.into());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(Bytes::new());
                }
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::OpenOptionsExt;

    use futures::TryStreamExt;
    use nix::{libc, sys::stat::Mode, unistd::mkfifo};

    use super::*;

    #[tokio::test]
    async fn content_ends_where_read_would_wait_and_permit_is_released() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("fifo");
        mkfifo(&path, Mode::S_IRWXU).unwrap();
        let mut options = File::options();
        options.read(true).custom_flags(libc::O_NONBLOCK);
        let reader = options.open(&path).unwrap();
        // As long as it is open, the reader would wait for more.
        let mut writer = File::options().write(true).open(&path).unwrap();
        io::Write::write_all(&mut writer, b"content").unwrap();
        let reads = GeneratedReads::default();
        let reading = reads.start(reader).unwrap();
        let others: Vec<_> = (1..MAX_GENERATED_READS)
            .map(|_| reads.start(writer.try_clone().unwrap()).unwrap())
            .collect();
        assert!(reads.start(writer.try_clone().unwrap()).is_none());
        let content: Vec<Bytes> = reading.into_stream().try_collect().await.unwrap();
        assert_eq!(content.concat(), b"content");
        assert_eq!(reads.permits.available_permits(), 1);
        drop(others);
    }
}

//! Receives archives into private files that have no name.

use std::{fs::File, io, io::Write, path::Path, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{Stream, StreamExt};
use sha2::{Digest, Sha256};
use tokio::{
    task::{JoinHandle, spawn_blocking},
    time::{Instant, timeout_at},
};

use super::{ArchiveSourceError, ProfileError};

/// The bytes that are written and hashed at once.
const BATCH_BYTES: usize = 1 << 20;

/// An archive that was received completely. Clones share the file and its offset.
#[derive(Clone)]
pub(super) struct SpooledArchive {
    pub file: Arc<File>,
    pub size: u64,
    /// The SHA-256 in hexadecimal digits.
    pub digest: String,
}

/// The most bytes of an archive, and how long it may take to arrive.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReceiveLimits {
    pub bytes: u64,
    pub time: Duration,
}

/// Receives an archive into a file in `directory`.
pub(super) async fn receive(
    directory: &Path,
    content: impl Stream<Item = Result<Bytes, ArchiveSourceError>>,
    limits: ReceiveLimits,
) -> Result<SpooledArchive, ProfileError> {
    let deadline = Instant::now() + limits.time;
    let mut content = std::pin::pin!(content);
    let mut spool = Spool::create(directory).await?;
    loop {
        match timeout_at(deadline, content.next()).await {
            Err(_) => return Err(ProfileError::Timeout(limits.time)),
            Ok(None) => return Ok(spool.finish().await?),
            Ok(Some(chunk)) => {
                let chunk = chunk?;
                if chunk.len() as u64 > limits.bytes - spool.size {
                    return Err(ProfileError::TooLarge(limits.bytes));
                }
                spool.write(chunk).await?;
            }
        }
    }
}

/// A file that is being written. While a batch is written and hashed, the next one is received.
struct Spool {
    writer: JoinHandle<io::Result<Writer>>,
    batch: Vec<Bytes>,
    batch_bytes: usize,
    size: u64,
}

struct Writer {
    file: File,
    hasher: Sha256,
}

impl Writer {
    fn write(mut self, batch: Vec<Bytes>) -> io::Result<Writer> {
        for chunk in batch {
            self.hasher.update(&chunk);
            self.file.write_all(&chunk)?;
        }
        Ok(self)
    }
}

impl Spool {
    async fn create(directory: &Path) -> io::Result<Spool> {
        let directory = directory.to_owned();
        Ok(Spool {
            writer: spawn_blocking(move || {
                let file = tempfile::tempfile_in(directory)?;
                let hasher = Sha256::new();
                Ok(Writer { file, hasher })
            }),
            batch: Vec::new(),
            batch_bytes: 0,
            size: 0,
        })
    }

    async fn write(&mut self, chunk: Bytes) -> io::Result<()> {
        self.size += chunk.len() as u64;
        self.batch_bytes += chunk.len();
        self.batch.push(chunk);
        match self.batch_bytes >= BATCH_BYTES {
            true => self.flush().await,
            false => Ok(()),
        }
    }

    async fn flush(&mut self) -> io::Result<()> {
        let writer = (&mut self.writer).await??;
        let batch = std::mem::take(&mut self.batch);
        self.batch_bytes = 0;
        self.writer = spawn_blocking(move || writer.write(batch));
        Ok(())
    }

    async fn finish(mut self) -> io::Result<SpooledArchive> {
        self.flush().await?;
        let writer = self.writer.await??;
        let digest = writer.hasher.finalize();
        Ok(SpooledArchive {
            file: Arc::new(writer.file),
            size: self.size,
            digest: hex(&digest),
        })
    }
}

/// Returns bytes as hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

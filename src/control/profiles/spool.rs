//! Receives archives into private files that have no name, and reads them meanwhile.

use std::{
    fs::File,
    io::{self, Read, Write},
    os::unix::fs::FileExt,
    path::Path,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use futures::{Stream, StreamExt};
use parking_lot::{Condvar, Mutex};
use sha2::{Digest, Sha256};
use tokio::{
    task::{JoinHandle, spawn_blocking},
    time::{Instant, timeout_at},
};

use super::{ArchiveSourceError, ProfileError};

/// The bytes that are written and hashed at once.
const BATCH_BYTES: usize = 1 << 20;
/// The bytes after which the disk begins to be written, if the file is to stay.
const WRITEBACK_BYTES: usize = 16 << 20;

/// The future of a file into which an archive is received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SpoolUse {
    /// The file becomes a blob, which must be on the disk. That takes less time at the end if most
    /// of it is written before.
    Stays,
    /// The file is copied and vanishes, perhaps before the disk is written.
    Vanishes,
}

/// An archive that was received completely. Clones share the file and its offset.
#[derive(Clone)]
pub(super) struct SpooledArchive {
    pub file: Arc<File>,
    pub size: u64,
    /// The SHA-256 in hexadecimal digits.
    pub digest: String,
    progress: Arc<Progress>,
}

impl SpooledArchive {
    /// Returns a reader from the start, with an offset of its own.
    pub(super) fn reader(&self) -> SpoolReader {
        SpoolReader::new(&self.file, &self.progress)
    }
}

/// The most bytes of an archive, and how long it may take to arrive.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReceiveLimits {
    pub bytes: u64,
    pub time: Duration,
}

/// A file that is being written. While a batch is written and hashed, the next one is received.
pub(super) struct Spool {
    file: Arc<File>,
    progress: Arc<Progress>,
    writer: JoinHandle<io::Result<Writer>>,
    batch: Vec<Bytes>,
    batch_bytes: usize,
    size: u64,
    purpose: SpoolUse,
    unwritten: usize,
    /// Writes to the disk. An error is reported only once, here or by the last sync.
    writeback: Option<JoinHandle<io::Result<()>>>,
}

struct Writer {
    file: Arc<File>,
    hasher: Sha256,
    progress: Arc<Progress>,
}

impl Writer {
    fn write(mut self, batch: Vec<Bytes>) -> io::Result<Writer> {
        for chunk in batch {
            self.hasher.update(&chunk);
            (&*self.file).write_all(&chunk)?;
            self.progress.add(chunk.len() as u64);
        }
        Ok(self)
    }
}

impl Spool {
    /// Creates a file in `directory`.
    pub(super) async fn create(directory: &Path, purpose: SpoolUse) -> io::Result<Spool> {
        let directory = directory.to_owned();
        let file = spawn_blocking(move || tempfile::tempfile_in(directory)).await??;
        let (file, progress) = (Arc::new(file), Arc::new(Progress::default()));
        let writer = Writer {
            file: file.clone(),
            hasher: Sha256::new(),
            progress: progress.clone(),
        };
        Ok(Spool {
            file,
            progress,
            writer: tokio::spawn(async { Ok(writer) }),
            batch: Vec::new(),
            batch_bytes: 0,
            size: 0,
            purpose,
            unwritten: 0,
            writeback: None,
        })
    }

    /// Returns a reader, which waits for what is not received yet. It fails if that never is.
    pub(super) fn reader(&self) -> SpoolReader {
        SpoolReader::new(&self.file, &self.progress)
    }

    /// Receives the archive.
    pub(super) async fn receive(
        mut self,
        content: impl Stream<Item = Result<Bytes, ArchiveSourceError>>,
        limits: ReceiveLimits,
    ) -> Result<SpooledArchive, ProfileError> {
        let deadline = Instant::now() + limits.time;
        let mut content = std::pin::pin!(content);
        loop {
            match timeout_at(deadline, content.next()).await {
                Err(_) => return Err(ProfileError::Timeout(limits.time)),
                Ok(None) => return Ok(self.finish().await?),
                Ok(Some(chunk)) => {
                    let chunk = chunk?;
                    if chunk.len() as u64 > limits.bytes - self.size {
                        return Err(ProfileError::TooLarge(limits.bytes));
                    }
                    self.write(chunk).await?;
                }
            }
        }
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
        self.unwritten += self.batch_bytes;
        self.batch_bytes = 0;
        self.writer = spawn_blocking(move || writer.write(batch));
        if self.purpose == SpoolUse::Stays && self.unwritten >= WRITEBACK_BYTES {
            self.write_back().await?;
        }
        Ok(())
    }

    /// Begins to write the disk, unless it is being written.
    async fn write_back(&mut self) -> io::Result<()> {
        if let Some(writeback) = &mut self.writeback {
            if !writeback.is_finished() {
                return Ok(());
            }
            writeback.await??;
        }
        let file = self.file.clone();
        self.writeback = Some(spawn_blocking(move || file.sync_data()));
        self.unwritten = 0;
        Ok(())
    }

    async fn finish(mut self) -> io::Result<SpooledArchive> {
        self.flush().await?;
        let writer = (&mut self.writer).await??;
        if let Some(writeback) = &mut self.writeback {
            writeback.await??;
        }
        let digest = writer.hasher.finalize();
        self.progress.end(Reception::Complete);
        Ok(SpooledArchive {
            file: self.file.clone(),
            size: self.size,
            digest: hex(&digest),
            progress: self.progress.clone(),
        })
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        self.progress.end(Reception::Failed);
    }
}

/// The part of an archive that has been written.
#[derive(Default)]
struct Progress {
    state: Mutex<(u64, Reception)>,
    changed: Condvar,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Reception {
    #[default]
    Running,
    Complete,
    Failed,
}

impl Progress {
    fn add(&self, bytes: u64) {
        self.state.lock().0 += bytes;
        self.changed.notify_all();
    }

    /// Records the end, unless there is one.
    fn end(&self, end: Reception) {
        let mut state = self.state.lock();
        if state.1 == Reception::Running {
            state.1 = end;
            self.changed.notify_all();
        }
    }

    /// Waits until more than `offset` bytes are written, and returns how many are. At the end of
    /// the archive these are not more. Blocks.
    fn written_beyond(&self, offset: u64) -> io::Result<u64> {
        let mut state = self.state.lock();
        self.changed.wait_while(&mut state, |(written, reception)| {
            *written <= offset && *reception == Reception::Running
        });
        match *state {
            (written, _) if written > offset => Ok(written),
            (_, Reception::Failed) => Err(io::Error::other("the archive was not received")),
            (written, _) => Ok(written),
        }
    }
}

/// A reader of an archive that may still be arriving. Blocks until there is more.
pub(super) struct SpoolReader {
    file: Arc<File>,
    progress: Arc<Progress>,
    offset: u64,
}

impl SpoolReader {
    fn new(file: &Arc<File>, progress: &Arc<Progress>) -> SpoolReader {
        SpoolReader {
            file: file.clone(),
            progress: progress.clone(),
            offset: 0,
        }
    }
}

impl Read for SpoolReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let available = self.progress.written_beyond(self.offset)? - self.offset;
        let length = into
            .len()
            .min(usize::try_from(available).unwrap_or(usize::MAX));
        let count = self.file.read_at(&mut into[..length], self.offset)?;
        self.offset += count as u64;
        Ok(count)
    }
}

/// Returns bytes as hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::{StreamExt, channel::mpsc};
    use tempfile::TempDir;
    use tokio::task::spawn_blocking;

    use super::*;

    const LIMITS: ReceiveLimits = ReceiveLimits {
        bytes: 64 << 20,
        time: Duration::from_secs(60),
    };

    fn read_exactly(mut reader: SpoolReader, length: usize) -> (SpoolReader, Vec<u8>) {
        let mut content = vec![0; length];
        reader.read_exact(&mut content).unwrap();
        (reader, content)
    }

    #[tokio::test]
    async fn reader_follows_an_archive_that_is_being_received() {
        let directory = TempDir::new().unwrap();
        let spool = Spool::create(directory.path(), SpoolUse::Stays)
            .await
            .unwrap();
        let reader = spool.reader();
        let (mut sender, content) = mpsc::channel(1);
        let receiving = tokio::spawn(spool.receive(content, LIMITS));
        let first = Bytes::from(vec![1; WRITEBACK_BYTES]);
        sender.try_send(Ok(first.clone())).unwrap();
        let reading = spawn_blocking(|| read_exactly(reader, WRITEBACK_BYTES));
        let (mut reader, read) = reading.await.unwrap();
        assert!(read == first);

        let second = Bytes::from_static(b"the end");
        sender.try_send(Ok(second.clone())).unwrap();
        drop(sender);
        let archive = receiving.await.unwrap().ok().unwrap();
        let mut rest = Vec::new();
        reader.read_to_end(&mut rest).unwrap();
        assert_eq!(rest, second);
        let mut whole = Vec::new();
        archive.reader().read_to_end(&mut whole).unwrap();
        assert!(whole == [first, second].concat());
    }

    #[tokio::test]
    async fn reader_of_an_archive_that_is_not_received_fails() {
        let directory = TempDir::new().unwrap();
        let spool = Spool::create(directory.path(), SpoolUse::Stays)
            .await
            .unwrap();
        let mut reader = spool.reader();
        let error = Err(ArchiveSourceError::Incomplete);
        let content = futures::stream::iter([Ok(Bytes::from_static(b"a part")), error]);
        let received = spool.receive(content.boxed(), LIMITS).await;
        assert!(matches!(received, Err(ProfileError::Source(_))));
        assert!(reader.read_to_end(&mut Vec::new()).is_err());
    }
}

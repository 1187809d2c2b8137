//! An unnamed file that is read while it is written, so that the writer need not wait for the
//! reader.

use std::{
    fs::File,
    io::{self, Write},
    os::unix::fs::FileExt,
    path::Path,
    sync::Arc,
};

use bytes::Bytes;
use futures::{Stream, stream};
use tokio::sync::watch;

use super::ConsumerProbe;

/// The size of a read.
const CHUNK_BYTES: usize = 256 << 10;

#[derive(Debug, Clone, Copy)]
struct Progress {
    written: u64,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    Complete,
}

/// The owner of the writing end. If it is dropped without [`SpoolWriter::finish`], the reader gets
/// an error.
pub(super) struct SpoolWriter {
    file: Arc<File>,
    progress: watch::Sender<Progress>,
}

/// The reading end.
pub struct SpoolReader {
    file: Arc<File>,
    progress: watch::Receiver<Progress>,
    read: u64,
}

/// Creates a spool file in a directory.
///
/// # Errors
/// If the file cannot be created.
pub(super) fn spool(directory: &Path) -> io::Result<(SpoolWriter, SpoolReader)> {
    let file = Arc::new(tempfile::tempfile_in(directory)?);
    let (sender, receiver) = watch::channel(Progress {
        written: 0,
        state: State::Open,
    });
    let writer = SpoolWriter {
        file: file.clone(),
        progress: sender,
    };
    let reader = SpoolReader {
        file,
        progress: receiver,
        read: 0,
    };
    Ok((writer, reader))
}

impl SpoolWriter {
    /// Marks the content as complete.
    pub(super) fn finish(self) {
        self.progress
            .send_modify(|progress| progress.state = State::Complete);
    }

    /// Returns a probe of whether the reader still exists.
    pub(super) fn consumer(&self) -> ConsumerProbe {
        let progress = self.progress.clone();
        ConsumerProbe(Arc::new(move || !progress.is_closed()))
    }

    /// Returns a handle that writes to the file. Dropping it does not complete the file.
    #[must_use]
    pub(super) fn handle(&self) -> SpoolHandle {
        SpoolHandle {
            file: self.file.clone(),
            progress: self.progress.clone(),
        }
    }
}

/// Writes to a spool file.
pub(super) struct SpoolHandle {
    file: Arc<File>,
    progress: watch::Sender<Progress>,
}

impl Write for SpoolHandle {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.progress.is_closed() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let offset = self.progress.borrow().written;
        self.file.write_all_at(bytes, offset)?;
        self.progress
            .send_modify(|progress| progress.written += bytes.len() as u64);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl SpoolReader {
    /// Returns the content as it is written.
    pub fn into_stream(self) -> impl Stream<Item = io::Result<Bytes>> + Send {
        stream::try_unfold(self, |mut reader| async move {
            let chunk = reader.next().await?;
            Ok(chunk.map(|chunk| (chunk, reader)))
        })
    }

    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        let read = self.read;
        let available = self
            .progress
            .wait_for(|progress| progress.written > read || progress.state == State::Complete);
        let Ok(written) = available.await.map(|progress| progress.written) else {
            return Err(io::Error::other("the archive could not be completed"));
        };
        if written == read {
            return Ok(None);
        }
        let length =
            usize::try_from(written - read).map_or(CHUNK_BYTES, |length| length.min(CHUNK_BYTES));
        let file = self.file.clone();
        let reading = tokio::task::spawn_blocking(move || {
            let mut chunk = vec![0; length];
            file.read_exact_at(&mut chunk, read)?;
            Ok::<_, io::Error>(Bytes::from(chunk))
        });
        let chunk = reading.await.map_err(io::Error::other)??;
        self.read += chunk.len() as u64;
        Ok(Some(chunk))
    }
}

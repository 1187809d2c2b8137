//! A file without a name that is read while it is still written: whoever writes need not wait for whoever reads.

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

use super::Wanted;

/// Read at a time.
const CHUNK: usize = 256 << 10;

#[derive(Debug, Clone, Copy)]
struct Progress {
    written: u64,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    Whole,
}

/// The end that is written to. Dropped without [`SpoolWriter::finish`], the other one ends with an error.
pub struct SpoolWriter {
    file: Arc<File>,
    progress: watch::Sender<Progress>,
}

pub struct SpoolReader {
    file: Arc<File>,
    progress: watch::Receiver<Progress>,
    read: u64,
}

/// # Errors
/// Where no file can be made in that directory.
pub fn spool(directory: &Path) -> io::Result<(SpoolWriter, SpoolReader)> {
    let file = Arc::new(tempfile::tempfile_in(directory)?);
    let (progress, follow) = watch::channel(Progress {
        written: 0,
        state: State::Open,
    });
    let writer = SpoolWriter {
        file: file.clone(),
        progress,
    };
    let reader = SpoolReader {
        file,
        progress: follow,
        read: 0,
    };
    Ok((writer, reader))
}

impl SpoolWriter {
    /// All is there.
    pub fn finish(self) {
        self.progress
            .send_modify(|progress| progress.state = State::Whole);
    }

    /// Whether there is still somebody to read it.
    pub fn wanted(&self) -> Wanted {
        let progress = self.progress.clone();
        Wanted(Arc::new(move || !progress.is_closed()))
    }

    /// Another end to write to; the file is whole only once this one says so.
    #[must_use]
    pub fn handle(&self) -> SpoolHandle {
        SpoolHandle {
            file: self.file.clone(),
            progress: self.progress.clone(),
        }
    }
}

/// Writes to a spool.
pub struct SpoolHandle {
    file: Arc<File>,
    progress: watch::Sender<Progress>,
}

impl Write for SpoolHandle {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.progress.is_closed() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let at = self.progress.borrow().written;
        self.file.write_all_at(bytes, at)?;
        self.progress
            .send_modify(|progress| progress.written += bytes.len() as u64);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl SpoolReader {
    /// What is written, as it comes.
    pub fn into_stream(self) -> impl Stream<Item = io::Result<Bytes>> + Send {
        stream::try_unfold(self, |mut reader| async move {
            let chunk = reader.next().await?;
            Ok(chunk.map(|chunk| (chunk, reader)))
        })
    }

    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        let read = self.read;
        let news = self
            .progress
            .wait_for(|progress| progress.written > read || progress.state == State::Whole);
        let Ok(written) = news.await.map(|progress| progress.written) else {
            return Err(io::Error::other("the archive could not be finished"));
        };
        if written == read {
            return Ok(None);
        }
        let length = usize::try_from(written - read).map_or(CHUNK, |length| length.min(CHUNK));
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

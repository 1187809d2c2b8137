//! Archives of directories: tar with zstd, and zip. The only importer of `tar`, `zstd` and `zip`.
//!
//! Archives are written by dedicated threads that block. The reader of an archive is async:
//!
//! ```text
//!                                                  ┌─ AbortableWriter ─► ChunkSender ─► client
//! directory ─► tree_walk ─► tar_zstd / zip / copy ─┤    (stream: waits for the client)
//!                                                  └─ AbortableWriter ─► spool file ─► client
//!                                                       (stream_spooled: never waits)
//! ```
//!
//! [`unpack`] is the reverse direction, for untrusted archives.

use std::{
    fmt,
    io::{self, Read, Write},
    os::fd::OwnedFd,
    panic::{self, AssertUnwindSafe},
    path::Path,
    sync::Arc,
    thread,
};

use bytes::Bytes;
use nix::{
    fcntl::{OFlag, open},
    sys::stat::Mode,
};
use tokio::sync::mpsc;
use zstd::Decoder;

use crate::{api::fs::CompressionLevel, system::files::virtual_fs::is_virtual};

mod abortable_writer;
mod chunk_sender;
mod copy;
mod fixed_length;
mod skipped;
mod spool;
mod tar_zstd;
mod tree_walk;
pub mod unpack;
mod zip;

use abortable_writer::AbortableWriter;
use chunk_sender::ChunkSender;
pub use copy::copy;
pub use skipped::SkippedEntries;
pub use spool::SpoolReader;
use spool::spool;

/// The limit on entries of an archive.
pub const MAX_ENTRIES: usize = 1_000_000;

#[derive(Debug, Clone, Copy)]
pub enum ArchiveFormat {
    TarZstd(CompressionLevel),
    Zip,
}

/// An open directory to be archived. It stays the same directory if its path is replaced.
#[derive(Debug)]
pub struct ArchiveSource {
    directory: OwnedFd,
    /// Returns whether a path, relative to the directory, is left out.
    is_excluded: fn(&Path) -> bool,
    /// Whether an entry that cannot be archived unchanged is an error. Otherwise the last entry of
    /// the archive lists all of them.
    strict: bool,
    consumer: ConsumerProbe,
}

/// A check whether the archive still has a reader. It is needed in addition to the errors of the
/// writer, as a compressor may read a lot before it writes anything.
#[derive(Clone)]
struct ConsumerProbe(Arc<dyn Fn() -> bool + Send + Sync>);

impl ConsumerProbe {
    /// # Errors
    /// If the reader is gone.
    fn check(&self) -> io::Result<()> {
        if (self.0)() {
            Ok(())
        } else {
            Err(io::ErrorKind::BrokenPipe.into())
        }
    }
}

impl fmt::Debug for ConsumerProbe {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ConsumerProbe")
    }
}

#[derive(Debug, thiserror::Error)]
pub enum OpenSourceError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("is on a virtual file system")]
    VirtualFileSystem,
}

impl ArchiveSource {
    /// # Errors
    /// If it is not a readable directory, or is on a virtual file system.
    pub fn open(path: &Path) -> Result<Self, OpenSourceError> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let directory = open(path, flags, Mode::empty()).map_err(io::Error::from)?;
        Self::from_directory(directory)
    }

    /// # Errors
    /// If it is on a virtual file system.
    pub fn from_directory(directory: OwnedFd) -> Result<Self, OpenSourceError> {
        if is_virtual(&directory)? {
            return Err(OpenSourceError::VirtualFileSystem);
        }
        Ok(ArchiveSource {
            directory,
            is_excluded: |_| false,
            strict: false,
            consumer: ConsumerProbe(Arc::new(|| true)),
        })
    }

    fn with_consumer(mut self, consumer: ConsumerProbe) -> Self {
        self.consumer = consumer;
        self
    }

    /// Leaves out the excluded paths. Other entries that cannot be archived are skipped.
    #[must_use]
    pub fn excluding(mut self, is_excluded: fn(&Path) -> bool) -> Self {
        self.is_excluded = is_excluded;
        self
    }

    /// Leaves out the excluded paths, and makes every other entry that cannot be archived an error.
    #[must_use]
    pub fn strict_excluding(mut self, is_excluded: fn(&Path) -> bool) -> Self {
        self.is_excluded = is_excluded;
        self.strict = true;
        self
    }
}

/// Archives a directory on a dedicated thread, at the pace at which the chunks are received. The
/// thread stops early if the receiver is dropped. If the archive cannot be completed, the last
/// chunk is an error. The thread passes the result to `on_done`.
///
/// # Errors
/// If no thread can be started.
pub fn stream(
    source: ArchiveSource,
    format: ArchiveFormat,
    on_done: impl FnOnce(&io::Result<SkippedEntries>) + Send + 'static,
) -> io::Result<mpsc::Receiver<io::Result<Bytes>>> {
    let (chunks, receiver) = ChunkSender::new();
    let send_error = chunks.error_sender();
    let source = source.with_consumer(chunks.consumer());
    spawn_archive_thread(move || {
        let written = catch_panic(|| write(&source, format, chunks));
        on_done(&written);
        if let Err(error) = written {
            send_error(error);
        }
    })?;
    Ok(receiver)
}

/// Archives a directory on a dedicated thread without waiting for the reader: what has not been
/// read yet is stored in an unnamed file in `directory`. The thread passes the result to `on_done`.
///
/// # Errors
/// If the thread or the file cannot be created.
pub fn stream_spooled(
    source: ArchiveSource,
    format: ArchiveFormat,
    directory: &Path,
    on_done: impl FnOnce(&io::Result<SkippedEntries>) + Send + 'static,
) -> io::Result<SpoolReader> {
    let (writer, reader) = spool(directory)?;
    let source = source.with_consumer(writer.consumer());
    spawn_archive_thread(move || {
        let written = catch_panic(|| write(&source, format, writer.handle()));
        on_done(&written);
        if written.is_ok() {
            writer.finish();
        }
    })?;
    Ok(reader)
}

/// The limit on the window of an archive that control reads, as a power of two in bytes: 16 MiB.
/// The archives of [`write()`] have windows of 8 MiB at most.
const MAX_WINDOW_LOG: u32 = 24;

/// Decompresses an archive on a dedicated thread, at the pace at which the chunks are received. If
/// that fails, the last chunk is an error. Must be called within a tokio runtime.
///
/// # Errors
/// If no thread can be started.
pub fn decompress(
    input: impl Read + Send + 'static,
) -> io::Result<mpsc::Receiver<io::Result<Bytes>>> {
    let (mut chunks, receiver) = ChunkSender::new();
    let send_error = chunks.error_sender();
    spawn_archive_thread(move || {
        let decompressed = catch_panic(|| {
            let mut decoder = Decoder::new(input)?;
            decoder.window_log_max(MAX_WINDOW_LOG)?;
            io::copy(&mut decoder, &mut chunks)?;
            chunks.flush()
        });
        if let Err(error) = decompressed {
            send_error(error);
        }
    })?;
    Ok(receiver)
}

fn spawn_archive_thread(archive: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let thread = thread::Builder::new().name("archive".into());
    thread.spawn(archive).map(|_| ())
}

/// Turns a panic into an error, so that the archive's reader gets one.
fn catch_panic<T>(archive: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let result = panic::catch_unwind(AssertUnwindSafe(archive));
    result.unwrap_or_else(|_| Err(io::Error::other("the archive thread panicked")))
}

/// Archives a directory. After an error, what was written is not a complete archive.
///
/// # Errors
/// If `out` fails, or there are too many entries.
pub fn write(
    source: &ArchiveSource,
    format: ArchiveFormat,
    out: impl Write + Send + 'static,
) -> io::Result<SkippedEntries> {
    let writer = AbortableWriter::new(out);
    let written = match format {
        ArchiveFormat::TarZstd(level) => tar_zstd::write(source, level, &writer),
        ArchiveFormat::Zip => zip::write(source, &writer),
    };
    writer.flush_all()?;
    written
}

//! Archives of directories: tar with zstd, and zip.
//!
//! What works here blocks, and runs on threads of its own. The only importer of `tar`, `zstd` and `zip`.

use std::{
    fmt,
    io::{self, Write},
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

use crate::api::fs::CompressionLevel;
use crate::system::files::virtual_fs::is_virtual;

mod abortable_writer;
mod copy;
mod skipped;
mod spool;
mod tar_zstd;
mod tree_walk;
pub mod unpack;
mod zip;

use abortable_writer::{AbortableWriter, Chunks};
pub use copy::copy;
pub use skipped::Skipped;
pub use spool::SpoolReader;
use spool::spool;

/// The entries an archive may have.
pub const MAX_ENTRIES: usize = 1_000_000;

#[derive(Debug, Clone, Copy)]
pub enum ArchiveFormat {
    TarZstd(CompressionLevel),
    Zip,
}

/// A directory to be archived, open: what its path comes to mean later does not matter.
#[derive(Debug)]
pub struct Source {
    directory: OwnedFd,
    /// Says of paths below the directory which are not for the archive.
    leave_out: fn(&Path) -> bool,
    /// Whether what cannot be archived as it is ends the archive; a last member tells of it otherwise.
    must_be_whole: bool,
    wanted: Wanted,
}

/// Says whether anybody still takes the archive: little may come out of much that goes in.
#[derive(Clone)]
struct Wanted(Arc<dyn Fn() -> bool + Send + Sync>);

impl Wanted {
    /// # Errors
    /// Where nobody does.
    fn check(&self) -> io::Result<()> {
        if (self.0)() {
            Ok(())
        } else {
            Err(io::ErrorKind::BrokenPipe.into())
        }
    }
}

impl fmt::Debug for Wanted {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Wanted")
    }
}

#[derive(Debug, thiserror::Error)]
pub enum OpenSourceError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("is on a file system that the kernel makes up")]
    Virtual,
}

impl Source {
    /// # Errors
    /// Where it is no directory, cannot be read, or holds what only the kernel makes.
    pub fn open(path: &Path) -> Result<Self, OpenSourceError> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let directory = open(path, flags, Mode::empty()).map_err(io::Error::from)?;
        if is_virtual(&directory)? {
            return Err(OpenSourceError::Virtual);
        }
        Ok(Source {
            directory,
            leave_out: |_| false,
            must_be_whole: false,
            wanted: Wanted(Arc::new(|| true)),
        })
    }

    fn while_wanted(mut self, wanted: Wanted) -> Self {
        self.wanted = wanted;
        self
    }

    /// Archives nothing that `leave_out` holds of, and all else or nothing.
    #[must_use]
    pub fn strict_excluding(mut self, leave_out: fn(&Path) -> bool) -> Self {
        self.leave_out = leave_out;
        self.must_be_whole = true;
        self
    }
}

/// Archives a directory on a thread of its own. The thread goes no faster than the chunks are taken, and ends early once nobody takes them.
/// An archive that cannot be finished ends with an error. `done` learns how it went, on that thread.
///
/// # Errors
/// Where no thread can be started.
pub fn stream(
    source: Source,
    format: ArchiveFormat,
    done: impl FnOnce(&io::Result<Skipped>) + Send + 'static,
) -> io::Result<mpsc::Receiver<io::Result<Bytes>>> {
    let (chunks, receiver) = Chunks::new();
    let (fail, source) = (chunks.failure(), source.while_wanted(chunks.wanted()));
    on_a_thread(move || {
        let written = unwound(|| write(&source, format, chunks));
        done(&written);
        if let Err(error) = written {
            fail(error);
        }
    })?;
    Ok(receiver)
}

/// Archives a directory on a thread of its own, as fast as it can: what nobody has read yet waits in a file without a name in `directory`.
/// `done` learns how it went, on that thread.
///
/// # Errors
/// Where there can be no thread or file.
pub fn spooled(
    source: Source,
    format: ArchiveFormat,
    directory: &Path,
    done: impl FnOnce(&io::Result<Skipped>) + Send + 'static,
) -> io::Result<SpoolReader> {
    let (writer, reader) = spool(directory)?;
    let source = source.while_wanted(writer.wanted());
    on_a_thread(move || {
        let written = unwound(|| write(&source, format, writer.handle()));
        done(&written);
        if written.is_ok() {
            writer.finish();
        }
    })?;
    Ok(reader)
}

fn on_a_thread(archive: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let thread = thread::Builder::new().name("archive".into());
    thread.spawn(archive).map(|_| ())
}

/// A panic is told as an error is.
fn unwound(archive: impl FnOnce() -> io::Result<Skipped>) -> io::Result<Skipped> {
    let done = panic::catch_unwind(AssertUnwindSafe(archive));
    done.unwrap_or_else(|_| Err(io::Error::other("the archive's thread panicked")))
}

/// Archives a directory. Where this fails, what was written is no whole archive.
///
/// # Errors
/// Where `out` fails, or there are too many entries.
pub fn write(
    source: &Source,
    format: ArchiveFormat,
    out: impl Write + Send + 'static,
) -> io::Result<Skipped> {
    let outlet = AbortableWriter::new(out);
    let written = match format {
        ArchiveFormat::TarZstd(level) => tar_zstd::write(source, level, &outlet),
        ArchiveFormat::Zip => zip::write(source, &outlet),
    };
    outlet.flush_all()?;
    written
}

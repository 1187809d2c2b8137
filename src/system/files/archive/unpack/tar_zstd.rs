//! Reading tar archives compressed with zstd, while they are received: unpacking and checking them.

use std::{
    cell::RefCell,
    io::{self, Read},
    path::Path,
    rc::Rc,
    thread,
};

use tar::{Archive, Entry, EntryType};
use tokio_util::sync::CancellationToken;
use zstd::Decoder;

use super::{
    RootCause, UnpackError, UnpackLimits,
    entry_tree::{ArchiveSummary, EntryTree, EntryVisitor},
    meter::{CountingReader, Meter, PackedBytes},
    path_of,
    read_ahead::ReadAhead,
    staging::{Attributes, StagingDirectory},
};
use crate::system::files::archive::MAX_WINDOW_LOG;

/// The limit on an entry's headers. The tar reader holds long names and attributes in memory.
const MAX_HEADER_BYTES: u64 = 1 << 20;
/// The limit on zeros after the end marker, with which writers fill the last record.
const MAX_PADDING_BYTES: u64 = 1 << 20;
/// The length of the end marker, two blocks of zeros. An archive without it was cut between two
/// entries.
const END_MARKER_BYTES: u64 = 1024;

/// The receiver of the entries of an archive, in their order.
pub(super) trait TarDestination {
    fn add_directory(&mut self, name: &[u8], attributes: Attributes) -> Result<(), UnpackError>;

    /// Reads the content to its end. `map_error` converts its errors.
    fn add_file(
        &mut self,
        name: &[u8],
        attributes: Attributes,
        content: &mut impl Read,
        map_error: impl Fn(&io::Error) -> UnpackError,
    ) -> Result<(), UnpackError>;

    fn add_symlink(&mut self, name: &[u8], target: &[u8]) -> Result<(), UnpackError>;

    fn add_hard_link(&mut self, name: &[u8], target: &[u8]) -> Result<(), UnpackError>;

    fn is_empty(&self) -> bool;
}

impl TarDestination for StagingDirectory {
    fn add_directory(&mut self, name: &[u8], attributes: Attributes) -> Result<(), UnpackError> {
        StagingDirectory::add_directory(self, name, attributes)
    }

    fn add_file(
        &mut self,
        name: &[u8],
        attributes: Attributes,
        content: &mut impl Read,
        map_error: impl Fn(&io::Error) -> UnpackError,
    ) -> Result<(), UnpackError> {
        // `MeteredReader` already counts the content.
        StagingDirectory::add_file(self, name, attributes, content, map_error, |_| Ok(()))
    }

    fn add_symlink(&mut self, name: &[u8], target: &[u8]) -> Result<(), UnpackError> {
        StagingDirectory::add_symlink(self, name, target)
    }

    fn add_hard_link(&mut self, name: &[u8], target: &[u8]) -> Result<(), UnpackError> {
        StagingDirectory::add_hard_link(self, name, target)
    }

    fn is_empty(&self) -> bool {
        StagingDirectory::is_empty(self)
    }
}

/// Unpacks an archive into an existing, empty directory, without the entries that `is_excluded`
/// accepts. After an error, the content of the directory is undefined.
///
/// # Errors
/// If the archive is malformed, incomplete or exceeds a limit.
pub fn unpack(
    input: impl Read + Send,
    into: &Path,
    limits: UnpackLimits,
    shutdown: &CancellationToken,
    is_excluded: fn(&Path) -> bool,
) -> Result<(), UnpackError> {
    let open = |meter| StagingDirectory::open(into, meter);
    read_tar(input, None, limits, shutdown, is_excluded, open)?.finish()
}

/// Reads an archive to its end and rejects what [`unpack`] rejects, and an archive that needs a
/// larger window than `MAX_WINDOW_LOG`, without writing anything. `visitor` gets the files and
/// links, without the entries that `is_excluded` accepts.
///
/// # Errors
/// If the archive is malformed, incomplete or exceeds a limit, or the visitor fails.
pub fn check(
    input: impl Read + Send,
    limits: UnpackLimits,
    is_excluded: fn(&Path) -> bool,
    visitor: &mut impl EntryVisitor,
) -> Result<ArchiveSummary, UnpackError> {
    let never = CancellationToken::new();
    let window_log = Some(MAX_WINDOW_LOG);
    read_tar(input, window_log, limits, &never, is_excluded, |meter| {
        Ok(EntryTree::new(meter, visitor))
    })?
    .finish()
}

fn read_tar<D: TarDestination>(
    input: impl Read + Send,
    window_log_max: Option<u32>,
    limits: UnpackLimits,
    shutdown: &CancellationToken,
    is_excluded: fn(&Path) -> bool,
    open: impl FnOnce(Meter) -> Result<D, UnpackError>,
) -> Result<D, UnpackError> {
    let (packed, cause) = (PackedBytes::default(), RootCause::default());
    let input = CountingReader::new(input, packed.clone(), cause.clone());
    let map_error = |error: &io::Error| cause.of(error);
    let mut decoder = Decoder::new(input).map_err(|error| map_error(&error))?;
    if let Some(window_log_max) = window_log_max {
        let limited = decoder.window_log_max(window_log_max);
        limited.map_err(UnpackError::Io)?;
    }
    let meter = Meter::new(limits, packed, shutdown);
    thread::scope(|scope| {
        let reader = MeteredReader {
            input: ReadAhead::start(decoder, scope).map_err(UnpackError::Io)?,
            meter: meter.clone(),
            cause: cause.clone(),
            allowance: MAX_HEADER_BYTES,
            trailing_zeros: 0,
        };
        let mut destination = open(meter)?;
        read_entries(reader, &mut destination, is_excluded, &map_error)?;
        Ok(destination)
    })
}

fn read_entries(
    reader: MeteredReader<impl Read>,
    destination: &mut impl TarDestination,
    is_excluded: fn(&Path) -> bool,
    map_error: &impl Fn(&io::Error) -> UnpackError,
) -> Result<(), UnpackError> {
    let reader = SharedReader(Rc::new(RefCell::new(reader)));
    let mut archive = Archive::new(reader.clone());
    for entry in archive.entries().map_err(|error| map_error(&error))? {
        reader.set_allowance(u64::MAX);
        let mut entry = entry.map_err(|error| map_error(&error))?;
        let name = entry.path_bytes().into_owned();
        let path = path_of(&name);
        if !is_excluded(path.strip_prefix(".").unwrap_or(path)) {
            add_entry(destination, &name, &mut entry, map_error)?;
        }
        // Before the allowance of the headers, which does not cover content.
        io::copy(&mut entry, &mut io::sink()).map_err(|error| map_error(&error))?;
        reader.start_headers();
    }
    if destination.is_empty() {
        return Err(UnpackError::invalid("is empty"));
    }
    reader.set_allowance(MAX_PADDING_BYTES);
    read_padding(&mut reader.clone(), map_error)?;
    if reader.0.borrow().trailing_zeros < END_MARKER_BYTES {
        return Err(UnpackError::invalid("has no end marker"));
    }
    Ok(())
}

/// Reads what follows the first block of the end marker, which must be zeros.
fn read_padding(
    reader: &mut impl Read,
    map_error: &impl Fn(&io::Error) -> UnpackError,
) -> Result<(), UnpackError> {
    let mut buffer = [0; 8 << 10];
    loop {
        match reader.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) if buffer[..count].iter().any(|byte| *byte != 0) => {
                return Err(UnpackError::invalid("has data after its end"));
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(map_error(&error)),
        }
    }
}

fn add_entry(
    destination: &mut impl TarDestination,
    name: &[u8],
    entry: &mut Entry<'_, impl Read>,
    map_error: &impl Fn(&io::Error) -> UnpackError,
) -> Result<(), UnpackError> {
    let invalid = |message: &str| UnpackError::entry(&String::from_utf8_lossy(name), message);
    let attributes = Attributes {
        mode: entry.header().mode().map_err(|_| invalid("has no mode"))?,
        modified: entry
            .header()
            .mtime()
            .ok()
            .and_then(|time| time.try_into().ok()),
    };
    let target = entry.link_name_bytes().map(|target| target.into_owned());
    let target = || target.clone().ok_or_else(|| invalid("has no link target"));
    if is_sparse(entry).map_err(|error| map_error(&error))? {
        return Err(invalid("is a sparse file, which is not supported"));
    }
    match entry.header().entry_type() {
        EntryType::Directory => destination.add_directory(name, attributes),
        EntryType::Regular | EntryType::Continuous => {
            destination.add_file(name, attributes, entry, map_error)
        }
        EntryType::Symlink => destination.add_symlink(name, &target()?),
        EntryType::Link => destination.add_hard_link(name, &target()?),
        // Metadata of the archive, such as a comment.
        EntryType::XGlobalHeader => Ok(()),
        _ => Err(invalid("is not a file, directory or link")),
    }
}

fn is_sparse(entry: &mut Entry<'_, impl Read>) -> io::Result<bool> {
    let Some(extensions) = entry.pax_extensions()? else {
        return Ok(false);
    };
    let mut keys = extensions
        .flatten()
        .map(|extension| extension.key_bytes().to_vec());
    Ok(keys.any(|key| key.starts_with(b"GNU.sparse.")))
}

/// Counts what the decoder yields, and limits how much may be read in the current part of the
/// archive.
struct MeteredReader<R> {
    input: R,
    meter: Meter,
    cause: RootCause,
    /// The number of bytes that may still be read; `u64::MAX` for no limit.
    allowance: u64,
    /// The number of zeros at the end of what was read.
    trailing_zeros: u64,
}

impl<R: Read> Read for MeteredReader<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.allowance == 0 {
            let error = UnpackError::invalid("has too much data between its entries");
            return Err(self.cause.record(error));
        }
        let limit = usize::try_from(self.allowance).unwrap_or(usize::MAX);
        let limit = limit.min(into.len());
        let count = self.input.read(&mut into[..limit])?;
        let read = &into[..count];
        if self.allowance != u64::MAX {
            self.allowance -= count as u64;
        }
        let zeros = read.iter().rev().take_while(|byte| **byte == 0).count();
        let zeros_before = if zeros == count {
            self.trailing_zeros
        } else {
            0
        };
        self.trailing_zeros = zeros_before + zeros as u64;
        self.meter
            .add(count)
            .map_err(|error| self.cause.record(error))?;
        Ok(count)
    }
}

/// A handle on the reader that the tar reader and [`read_entries`] share.
struct SharedReader<R>(Rc<RefCell<MeteredReader<R>>>);

impl<R> SharedReader<R> {
    fn set_allowance(&self, bytes: u64) {
        self.0.borrow_mut().allowance = bytes;
    }

    /// Prepares for the headers of an entry, or the end marker. Zeros at the end of the content
    /// before it are not a part of the marker.
    fn start_headers(&self) {
        let mut reader = self.0.borrow_mut();
        reader.allowance = MAX_HEADER_BYTES;
        reader.trailing_zeros = 0;
    }
}

impl<R> Clone for SharedReader<R> {
    fn clone(&self) -> Self {
        SharedReader(self.0.clone())
    }
}

impl<R: Read> Read for SharedReader<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.borrow_mut().read(into)
    }
}

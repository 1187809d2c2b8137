//! Unpacking tar archives compressed with zstd, while they are received.

use std::{
    cell::RefCell,
    ffi::OsStr,
    io::{self, Read},
    os::unix::ffi::OsStrExt,
    path::Path,
    rc::Rc,
    thread,
};

use tar::{Archive, Entry, EntryType};
use tokio_util::sync::CancellationToken;
use zstd::Decoder;

use super::{
    RootCause, UnpackError, UnpackLimits,
    meter::{CountingReader, Meter, PackedBytes},
    read_ahead::ReadAhead,
    staging::{Attributes, StagingDirectory},
};

/// The limit on an entry's headers. The tar reader holds long names and attributes in memory.
const MAX_HEADER_BYTES: u64 = 1 << 20;
/// The limit on zeros after the end marker, with which writers fill the last record.
const MAX_PADDING_BYTES: u64 = 1 << 20;
/// The length of the end marker, two blocks of zeros. An archive without it was cut between two
/// entries.
const END_MARKER_BYTES: u64 = 1024;

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
    let (packed, cause) = (PackedBytes::default(), RootCause::default());
    let input = CountingReader::new(input, packed.clone(), cause.clone());
    let map_error = |error: &io::Error| cause.of(error);
    let decoder = Decoder::new(input).map_err(|error| map_error(&error))?;
    let meter = Meter::new(limits, packed, shutdown);
    thread::scope(|scope| {
        let reader = MeteredReader {
            input: ReadAhead::start(decoder, scope).map_err(UnpackError::Io)?,
            meter: meter.clone(),
            cause: cause.clone(),
            allowance: MAX_HEADER_BYTES,
            trailing_zeros: 0,
        };
        let staging = StagingDirectory::open(into, meter)?;
        unpack_tar(reader, staging, is_excluded, &map_error)
    })
}

fn unpack_tar(
    reader: MeteredReader<impl Read>,
    mut staging: StagingDirectory,
    is_excluded: fn(&Path) -> bool,
    map_error: &impl Fn(&io::Error) -> UnpackError,
) -> Result<(), UnpackError> {
    let reader = SharedReader(Rc::new(RefCell::new(reader)));
    let mut archive = Archive::new(reader.clone());
    for entry in archive.entries().map_err(|error| map_error(&error))? {
        reader.set_allowance(u64::MAX);
        let mut entry = entry.map_err(|error| map_error(&error))?;
        let name = entry.path_bytes().into_owned();
        let path = Path::new(OsStr::from_bytes(&name));
        if !is_excluded(path.strip_prefix(".").unwrap_or(path)) {
            unpack_entry(&mut staging, &name, &mut entry, map_error)?;
        }
        reader.set_allowance(MAX_HEADER_BYTES);
    }
    if staging.is_empty() {
        return Err(UnpackError::invalid("is empty"));
    }
    reader.set_allowance(MAX_PADDING_BYTES);
    io::copy(&mut reader.clone(), &mut io::sink()).map_err(|error| map_error(&error))?;
    if reader.0.borrow().trailing_zeros < END_MARKER_BYTES {
        return Err(UnpackError::invalid("has no end marker"));
    }
    staging.finish()
}

fn unpack_entry(
    staging: &mut StagingDirectory,
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
        EntryType::Directory => staging.add_directory(name, attributes),
        EntryType::Regular | EntryType::Continuous => {
            // `MeteredReader` already counts the content.
            staging.add_file(name, attributes, entry, map_error, |_| Ok(()))
        }
        EntryType::Symlink => staging.add_symlink(name, &target()?),
        EntryType::Link => staging.add_hard_link(name, &target()?),
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

/// A handle on the reader that the tar reader and [`unpack_tar`] share.
struct SharedReader<R>(Rc<RefCell<MeteredReader<R>>>);

impl<R> SharedReader<R> {
    fn set_allowance(&self, bytes: u64) {
        self.0.borrow_mut().allowance = bytes;
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

//! Unpacking tar that was compressed with zstd, as it comes.

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
    Cause, Limits, UnpackError,
    meter::{Counted, Meter, Packed},
    read_ahead::ReadAhead,
    staging::{Attributes, Staging},
};

/// What an entry may take besides its content: long names and attributes, which the reader holds in memory.
const MAX_HEADERS: u64 = 1 << 20;
/// Zeros with which writers fill up the last record.
const MAX_PADDING: u64 = 1 << 20;
/// Two empty blocks are the end. Without them the archive was cut where an entry ends.
const END: u64 = 1024;

/// Unpacks an archive into a directory that is there and empty, but for what `leave_out` says of its entries. What is there after an error
/// is of no use.
///
/// # Errors
/// Where it is no such archive, not whole, or does not keep to the limits.
pub fn unpack(
    input: impl Read + Send,
    into: &Path,
    limits: Limits,
    stop: &CancellationToken,
    leave_out: fn(&Path) -> bool,
) -> Result<(), UnpackError> {
    let (packed, cause) = (Packed::default(), Cause::default());
    let input = Counted::new(input, packed.clone(), cause.clone());
    let failed = |error: &io::Error| cause.of(error);
    let decoder = Decoder::new(input).map_err(|error| failed(&error))?;
    let meter = Meter::new(limits, packed, stop);
    thread::scope(|scope| {
        let watched = Watched {
            input: ReadAhead::of(decoder, scope).map_err(UnpackError::Io)?,
            meter: meter.clone(),
            cause: cause.clone(),
            allowed: MAX_HEADERS,
            zeros: 0,
        };
        unpack_tar(watched, Staging::new(into, meter)?, leave_out, &failed)
    })
}

fn unpack_tar(
    input: Watched<impl Read>,
    mut staging: Staging,
    leave_out: fn(&Path) -> bool,
    failed: &impl Fn(&io::Error) -> UnpackError,
) -> Result<(), UnpackError> {
    let watched = Shared(Rc::new(RefCell::new(input)));
    let mut archive = Archive::new(watched.clone());
    for entry in archive.entries().map_err(|error| failed(&error))? {
        watched.allow(u64::MAX);
        let mut entry = entry.map_err(|error| failed(&error))?;
        let name = entry.path_bytes().into_owned();
        let path = Path::new(OsStr::from_bytes(&name));
        if !leave_out(path.strip_prefix(".").unwrap_or(path)) {
            place(&mut staging, &name, &mut entry, failed)?;
        }
        watched.allow(MAX_HEADERS);
    }
    if staging.is_empty() {
        return Err(UnpackError::bad("is empty"));
    }
    watched.allow(MAX_PADDING);
    io::copy(&mut watched.clone(), &mut io::sink()).map_err(|error| failed(&error))?;
    if watched.0.borrow().zeros < END {
        return Err(UnpackError::bad("has no end"));
    }
    staging.finish()
}

fn place(
    staging: &mut Staging,
    name: &[u8],
    entry: &mut Entry<'_, impl Read>,
    failed: &impl Fn(&io::Error) -> UnpackError,
) -> Result<(), UnpackError> {
    let wrong = |what: &str| UnpackError::entry(&String::from_utf8_lossy(name), what);
    let attributes = Attributes {
        mode: entry.header().mode().map_err(|_| wrong("has no mode"))?,
        modified: entry
            .header()
            .mtime()
            .ok()
            .and_then(|time| time.try_into().ok()),
    };
    let target = entry.link_name_bytes().map(|target| target.into_owned());
    let target = || target.clone().ok_or_else(|| wrong("leads nowhere"));
    let mut sparse = false;
    if let Some(extensions) = entry.pax_extensions().map_err(|error| failed(&error))? {
        let mut keys = extensions
            .flatten()
            .map(|extension| extension.key_bytes().to_vec());
        sparse = keys.any(|key| key.starts_with(b"GNU.sparse."));
    }
    if sparse {
        return Err(wrong("is sparse, which is not understood here"));
    }
    match entry.header().entry_type() {
        EntryType::Directory => staging.directory(name, attributes),
        EntryType::Regular | EntryType::Continuous => {
            // What comes out of the archive is counted where it does.
            staging.file(name, attributes, entry, failed, |_| Ok(()))
        }
        EntryType::Symlink => staging.symlink(name, &target()?),
        EntryType::Link => staging.hard_link(name, &target()?),
        // Says something of all entries, such as a comment.
        EntryType::XGlobalHeader => Ok(()),
        _ => Err(wrong("is neither a file nor a directory nor a link")),
    }
}

/// Counts what comes out of the decoder, and gives no more than is allowed at this point.
struct Watched<R> {
    input: R,
    meter: Meter,
    cause: Cause,
    allowed: u64,
    /// How many zeros came last.
    zeros: u64,
}

impl<R: Read> Read for Watched<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.allowed == 0 {
            let error = UnpackError::bad("has more between its entries than is needed");
            return Err(self.cause.set(error));
        }
        let most = usize::try_from(self.allowed).unwrap_or(usize::MAX);
        let most = most.min(into.len());
        let count = self.input.read(&mut into[..most])?;
        let read = &into[..count];
        if self.allowed != u64::MAX {
            self.allowed -= count as u64;
        }
        let zeros = read.iter().rev().take_while(|byte| **byte == 0).count();
        let before = if zeros == count { self.zeros } else { 0 };
        self.zeros = before + zeros as u64;
        self.meter
            .add(count)
            .map_err(|error| self.cause.set(error))?;
        Ok(count)
    }
}

/// The archive's reader has it, and so has whoever allows it more.
struct Shared<R>(Rc<RefCell<Watched<R>>>);

impl<R> Shared<R> {
    fn allow(&self, bytes: u64) {
        self.0.borrow_mut().allowed = bytes;
    }
}

impl<R> Clone for Shared<R> {
    fn clone(&self) -> Self {
        Shared(self.0.clone())
    }
}

impl<R: Read> Read for Shared<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.borrow_mut().read(into)
    }
}

//! Unpacking zip archives, which must be complete files as their directory is at the end.

use std::{
    cell::Cell,
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    os::fd::OwnedFd,
    rc::Rc,
};

use chrono::NaiveDate;
use nix::sys::stat::SFlag;
use tokio_util::sync::CancellationToken;
use zip::{ExtraField, ZipArchive, read::ZipFile, result::ZipError};

use super::{
    MAX_ENTRIES, RootCause, UnpackError, UnpackLimits,
    meter::{Meter, PackedBytes},
    staging::{Attributes, StagingDirectory},
    zip_directory::{check_directories, check_entry_count, too_many_entries},
};

const FILE_MODE: u32 = 0o644;
/// The limit on what is read of a link's target: one byte more than the longest valid one.
const MAX_TARGET_READ: u64 = 4096;
/// The limit on what is read to find and parse the central directory, which is held in memory.
const MAX_DIRECTORY_BYTES: u64 = 64 << 20;

/// Unpacks an archive into an empty directory, open for reading. After an error, the content of the
/// directory is undefined.
///
/// # Errors
/// If the archive is malformed, incomplete or exceeds a limit.
pub fn unpack(
    mut file: File,
    into: OwnedFd,
    limits: UnpackLimits,
    shutdown: &CancellationToken,
) -> Result<(), UnpackError> {
    let cause = RootCause::default();
    let map_error = |error: ZipError| cause.of(&io::Error::from(error));
    check_entry_count(&mut file).map_err(|error| cause.of(&error))??;
    let length = file.seek(SeekFrom::End(0)).map_err(UnpackError::Io)?;
    let mut archive = open(file, &cause)?;
    if archive.len() > MAX_ENTRIES {
        return Err(too_many_entries());
    }
    if archive.has_duplicate_names() {
        return Err(UnpackError::invalid("has two entries of the same name"));
    }
    if archive.has_overlapping_entries().map_err(map_error)? {
        return Err(UnpackError::invalid("has entries that overlap"));
    }
    let meter = Meter::new(limits, PackedBytes::new(length), shutdown);
    check_directories(archive.file_names().filter_map(Result::ok), &meter)?;
    let mut staging = StagingDirectory::new(into, meter.clone());
    for index in 0..archive.len() {
        let entry = archive.by_index_data(index).map_err(map_error)?;
        if entry.encrypted() {
            let name = String::from_utf8_lossy(entry.name_raw());
            return Err(UnpackError::entry(&name, "is encrypted"));
        }
        let entry = archive.by_index(index).map_err(map_error)?;
        unpack_entry(&mut staging, entry, &meter, &cause)?;
    }
    staging.finish()
}

/// Reads the central directory, up to [`MAX_DIRECTORY_BYTES`].
fn open(file: File, cause: &RootCause) -> Result<ZipArchive<LimitedReader>, UnpackError> {
    let allowance = Rc::new(Cell::new(MAX_DIRECTORY_BYTES));
    let input = LimitedReader {
        input: io::BufReader::new(file),
        allowance: allowance.clone(),
        cause: cause.clone(),
    };
    let archive = ZipArchive::new(input).map_err(|error| cause.of(&io::Error::from(error)))?;
    allowance.set(u64::MAX);
    Ok(archive)
}

fn unpack_entry<R: Read>(
    staging: &mut StagingDirectory,
    mut entry: ZipFile<'_, R>,
    meter: &Meter,
    cause: &RootCause,
) -> Result<(), UnpackError> {
    let name = entry.name().map_err(|error| cause.of(&error.into()))?;
    let name = name.into_owned();
    let mode = entry.unix_mode();
    let kind = SFlag::from_bits_truncate(mode.unwrap_or_default() & SFlag::S_IFMT.bits());
    let modified = modified(&entry);
    let invalid = |message| UnpackError::entry(&name, message);
    // A trailing backslash is part of a file's name.
    if name.ends_with('/') {
        if entry.size() > 0 {
            return Err(invalid("is a directory with content"));
        }
        let mode = directory_mode(kind, mode)
            .ok_or_else(|| invalid("has the name of a directory, but is not one"))?;
        return staging.add_directory(name.as_bytes(), Attributes { mode, modified });
    }
    if kind == SFlag::S_IFDIR {
        return Err(invalid("is a directory without a trailing slash"));
    }
    if kind == SFlag::S_IFLNK {
        let mut target = Vec::new();
        let read = (&mut entry).take(MAX_TARGET_READ).read_to_end(&mut target);
        read.map_err(|error| cause.of(&error))?;
        return staging.add_symlink(name.as_bytes(), &target);
    }
    if !kind.is_empty() && kind != SFlag::S_IFREG {
        return Err(invalid("is not a file, directory or link"));
    }
    let mode = mode.unwrap_or(FILE_MODE);
    staging.add_file(
        name.as_bytes(),
        Attributes { mode, modified },
        &mut entry,
        |error| cause.of(error),
        |count| meter.add(count),
    )
}

/// Returns the permissions of a directory entry; `None` if it has another type.
fn directory_mode(kind: SFlag, mode: Option<u32>) -> Option<u32> {
    match (kind, mode) {
        (SFlag::S_IFDIR, Some(mode)) => Some(mode),
        // Archivers of other systems may set the type of a file, and no useful permissions.
        (SFlag::S_IFREG, _) | (_, None) => Some(Attributes::DIRECTORY.mode),
        (kind, Some(mode)) if kind.is_empty() => Some(mode),
        _ => None,
    }
}

/// Returns the modification time in seconds since 1970.
fn modified<R: Read>(entry: &ZipFile<'_, R>) -> Option<i64> {
    let extended = entry.extra_data_fields().find_map(|field| match field {
        ExtraField::ExtendedTimestamp(times) => times.mod_time(),
        _ => None,
    });
    if let Some(extended) = extended {
        // The field is a signed 32-bit integer.
        return Some(extended.cast_signed().into());
    }
    let time = entry.last_modified()?;
    let (year, month, day) = (time.year(), time.month(), time.day());
    let date = NaiveDate::from_ymd_opt(year.into(), month.into(), day.into())?;
    let (hour, minute, second) = (time.hour(), time.minute(), time.second());
    let time = date.and_hms_opt(hour.into(), minute.into(), second.into())?;
    Some(time.and_utc().timestamp())
}

/// A reader of the archive that limits how much is read while the allowance is set.
struct LimitedReader {
    input: io::BufReader<File>,
    /// The number of bytes that may still be read; `u64::MAX` for no limit.
    allowance: Rc<Cell<u64>>,
    cause: RootCause,
}

impl Read for LimitedReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(into)?;
        let allowance = self.allowance.get();
        if allowance == u64::MAX {
            return Ok(count);
        }
        let Some(remaining) = allowance.checked_sub(count as u64) else {
            let message = format!(
                "has a directory of more than {MAX_DIRECTORY_BYTES} bytes, or none at its end"
            );
            return Err(self.cause.record(UnpackError::Invalid(message)));
        };
        self.allowance.set(remaining);
        Ok(count)
    }
}

impl Seek for LimitedReader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.input.seek(to)
    }
}

//! Unpacking zip. Its directory is at its end, so that it has to be there as a file.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::Path,
};

use chrono::{NaiveDate, NaiveDateTime};
use nix::sys::stat::SFlag;
use zip::{ExtraField, ZipArchive, read::ZipFile, result::ZipError};

use super::{
    Cause, Limits, MAX_ENTRIES, UnpackError,
    meter::{Meter, Packed},
    staging::{Attributes, Staging},
};

const FILE_MODE: u32 = 0o644;
/// The longest target of a link, and one more to notice a longer one.
const TARGET: u64 = 4096;

/// The end of the archive's directory ("EOCD") and of its larger form: signature, length, and where the count of entries is.
const END: [u8; 4] = *b"PK\x05\x06";
const END_LENGTH: usize = 22;
const LOCATOR: [u8; 4] = *b"PK\x06\x07";
const LOCATOR_LENGTH: usize = 20;
const LARGE_END: [u8; 4] = *b"PK\x06\x06";
/// A comment of this length may follow the end.
const MAX_COMMENT: usize = u16::MAX as usize;

/// Unpacks an archive into a directory that is there and empty. What is there after an error is of no use.
///
/// # Errors
/// Where it is no such archive, not whole, or does not keep to the limits.
pub fn unpack(mut file: File, into: &Path, limits: Limits) -> Result<(), UnpackError> {
    check_count(&mut file).map_err(|error| refused(&error, &Cause::default()))??;
    let cause = Cause::default();
    let failed = |error: ZipError| refused(&io::Error::from(error), &cause);
    let length = file.seek(SeekFrom::End(0)).map_err(UnpackError::Io)?;
    let mut archive = ZipArchive::new(io::BufReader::new(file)).map_err(failed)?;
    if archive.len() > MAX_ENTRIES {
        return Err(too_many());
    }
    if archive.has_duplicate_names() {
        return Err(UnpackError::bad("has two entries of the same name"));
    }
    if archive.has_overlapping_entries().map_err(failed)? {
        return Err(UnpackError::bad("has entries that overlap"));
    }
    let mut meter = Meter::new(limits, Packed::of(length));
    let mut staging = Staging::new(into)?;
    for index in 0..archive.len() {
        let entry = archive.by_index_data(index).map_err(failed)?;
        if entry.encrypted() {
            let name = String::from_utf8_lossy(entry.name_raw());
            return Err(UnpackError::entry(&name, "is encrypted"));
        }
        let entry = archive.by_index(index).map_err(failed)?;
        place(&mut staging, entry, &mut meter, &cause)?;
    }
    staging.finish()
}

fn place<R: Read>(
    staging: &mut Staging,
    mut entry: ZipFile<'_, R>,
    meter: &mut Meter,
    cause: &Cause,
) -> Result<(), UnpackError> {
    let name = entry
        .name()
        .map_err(|error| refused(&error.into(), cause))?;
    let name = name.into_owned();
    let mode = entry.unix_mode();
    let kind = SFlag::from_bits_truncate(mode.unwrap_or_default() & SFlag::S_IFMT.bits());
    let modified = modified(&entry);
    if entry.is_dir() {
        let mode = mode.unwrap_or(Attributes::DIRECTORY.mode);
        return staging.directory(name.as_bytes(), Attributes { mode, modified });
    }
    if kind == SFlag::S_IFLNK {
        let mut target = Vec::new();
        let read = (&mut entry).take(TARGET).read_to_end(&mut target);
        read.map_err(|error| refused(&error, cause))?;
        return staging.symlink(name.as_bytes(), &target);
    }
    if !kind.is_empty() && kind != SFlag::S_IFREG {
        let what = "is neither a file nor a directory nor a link";
        return Err(UnpackError::entry(&name, what));
    }
    let mode = mode.unwrap_or(FILE_MODE);
    staging.file(
        name.as_bytes(),
        Attributes { mode, modified },
        &mut entry,
        |error| refused(error, cause),
        |count| meter.add(count),
    )
}

fn modified<R: Read>(entry: &ZipFile<'_, R>) -> Option<i64> {
    let exact = entry.extra_data_fields().find_map(|field| match field {
        ExtraField::ExtendedTimestamp(times) => times.mod_time(),
        _ => None,
    });
    if let Some(exact) = exact {
        // 32 bits with a sign.
        return Some(exact.cast_signed().into());
    }
    let time = entry.last_modified()?;
    let (year, month, day) = (time.year(), time.month(), time.day());
    let date = NaiveDate::from_ymd_opt(year.into(), month.into(), day.into())?;
    let (hour, minute, second) = (time.hour(), time.minute(), time.second());
    let time: NaiveDateTime = date.and_hms_opt(hour.into(), minute.into(), second.into())?;
    Some(time.and_utc().timestamp())
}

fn refused(error: &io::Error, cause: &Cause) -> UnpackError {
    cause.of(error)
}

fn too_many() -> UnpackError {
    UnpackError::Bad(format!("has more than {MAX_ENTRIES} entries"))
}

/// Refuses an archive that says of itself that it has too many entries, before anything is kept of each of them in memory. Each end is asked
/// that may be taken for the archive's.
fn check_count(file: &mut File) -> io::Result<Result<(), UnpackError>> {
    let length = file.seek(SeekFrom::End(0))?;
    let tail_start = length.saturating_sub((MAX_COMMENT + END_LENGTH + LOCATOR_LENGTH) as u64);
    let tail = read_at(file, tail_start, MAX_COMMENT + END_LENGTH + LOCATOR_LENGTH)?;
    for at in 0..tail.len() {
        let count = if tail[at..].starts_with(&END) {
            tail.get(at + 10..at + 12)
                .map(|bytes| u64::from(u16::from_le_bytes([bytes[0], bytes[1]])))
        } else if tail[at..].starts_with(&LOCATOR) {
            match number(&tail, at + 8) {
                Some(large_end) => {
                    let large_end = read_at(file, large_end, 56)?;
                    if !large_end.starts_with(&LARGE_END) {
                        let what = "has something before its beginning or within its end";
                        return Ok(Err(UnpackError::bad(what)));
                    }
                    number(&large_end, 32)
                }
                None => None,
            }
        } else {
            continue;
        };
        if count.is_some_and(|count| count > MAX_ENTRIES as u64) {
            return Ok(Err(too_many()));
        }
    }
    Ok(Ok(()))
}

fn read_at(file: &mut File, at: u64, most: usize) -> io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(at))?;
    let mut bytes = Vec::new();
    file.take(most as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn number(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes: [u8; 8] = bytes.get(at..at + 8)?.try_into().ok()?;
    Some(u64::from_le_bytes(bytes))
}

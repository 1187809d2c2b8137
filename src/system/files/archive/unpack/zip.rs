//! Unpacking zip. Its directory is at its end, so that it has to be there as a file.

use std::{
    cell::Cell,
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::Path,
    rc::Rc,
};

use chrono::{NaiveDate, NaiveDateTime};
use nix::sys::stat::SFlag;
use tokio_util::sync::CancellationToken;
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
const LARGE_END_LENGTH: usize = 56;
/// What may be read to find out what the archive holds; all of it is kept in memory. The directory's end is looked for in this as well.
const MAX_DIRECTORY: u64 = 64 << 20;
/// A comment of this length may follow the end.
const MAX_COMMENT: usize = u16::MAX as usize;

/// Unpacks an archive into a directory that is there and empty. What is there after an error is of no use.
///
/// # Errors
/// Where it is no such archive, not whole, or does not keep to the limits.
pub fn unpack(
    mut file: File,
    into: &Path,
    limits: Limits,
    stop: &CancellationToken,
) -> Result<(), UnpackError> {
    check_count(&mut file).map_err(|error| refused(&error, &Cause::default()))??;
    let cause = Cause::default();
    let failed = |error: ZipError| refused(&io::Error::from(error), &cause);
    let length = file.seek(SeekFrom::End(0)).map_err(UnpackError::Io)?;
    let allowed = Rc::new(Cell::new(MAX_DIRECTORY));
    let input = Bounded {
        input: io::BufReader::new(file),
        allowed: allowed.clone(),
        cause: cause.clone(),
    };
    let mut archive = ZipArchive::new(input).map_err(failed)?;
    allowed.set(u64::MAX);
    if archive.len() > MAX_ENTRIES {
        return Err(too_many());
    }
    if archive.has_duplicate_names() {
        return Err(UnpackError::bad("has two entries of the same name"));
    }
    if archive.has_overlapping_entries().map_err(failed)? {
        return Err(UnpackError::bad("has entries that overlap"));
    }
    let meter = Meter::new(limits, Packed::of(length), stop);
    let mut staging = Staging::new(into, meter.clone())?;
    for index in 0..archive.len() {
        let entry = archive.by_index_data(index).map_err(failed)?;
        if entry.encrypted() {
            let name = String::from_utf8_lossy(entry.name_raw());
            return Err(UnpackError::entry(&name, "is encrypted"));
        }
        let entry = archive.by_index(index).map_err(failed)?;
        place(&mut staging, entry, &meter, &cause)?;
    }
    staging.finish()
}

fn place<R: Read>(
    staging: &mut Staging,
    mut entry: ZipFile<'_, R>,
    meter: &Meter,
    cause: &Cause,
) -> Result<(), UnpackError> {
    let name = entry
        .name()
        .map_err(|error| refused(&error.into(), cause))?;
    let name = name.into_owned();
    let mode = entry.unix_mode();
    let kind = SFlag::from_bits_truncate(mode.unwrap_or_default() & SFlag::S_IFMT.bits());
    let modified = modified(&entry);
    let wrong = |what| Err(UnpackError::entry(&name, what));
    // A backslash at the end is a letter of a file's name here.
    let is_directory = name.ends_with('/');
    if is_directory {
        if entry.size() > 0 {
            return wrong("is a directory, and has content");
        }
        let mode = match (kind, mode) {
            (SFlag::S_IFDIR, Some(mode)) => mode,
            // What comes from elsewhere may call it a file, and says nothing of a directory's permissions.
            (SFlag::S_IFREG, _) | (_, None) => Attributes::DIRECTORY.mode,
            (kind, Some(mode)) if kind.is_empty() => mode,
            _ => return wrong("has the name of a directory, and is none"),
        };
        return staging.directory(name.as_bytes(), Attributes { mode, modified });
    }
    if kind == SFlag::S_IFDIR {
        return wrong("is a directory, and has not the name of one");
    }
    if kind == SFlag::S_IFLNK {
        let mut target = Vec::new();
        let read = (&mut entry).take(TARGET).read_to_end(&mut target);
        read.map_err(|error| refused(&error, cause))?;
        return staging.symlink(name.as_bytes(), &target);
    }
    if !kind.is_empty() && kind != SFlag::S_IFREG {
        return wrong("is neither a file nor a directory nor a link");
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
    UnpackError::Invalid(format!("has more than {MAX_ENTRIES} entries"))
}

/// Refuses an archive that says of itself that it has too many entries, before room is made for each of them in memory. Only its larger form can
/// say so. An archive that is stored within this one may have an end of that form as well.
fn check_count(file: &mut File) -> io::Result<Result<(), UnpackError>> {
    let length = file.seek(SeekFrom::End(0))?;
    let most = MAX_COMMENT + END_LENGTH + LOCATOR_LENGTH + LARGE_END_LENGTH;
    let tail = read_at(file, length.saturating_sub(most as u64), most)?;
    for at in 0..tail.len().saturating_sub(END_LENGTH - 1) {
        let end = &tail[at..];
        let points_on =
            end[10..12] == [0xff; 2] || end[12..16] == [0xff; 4] || end[16..20] == [0xff; 4];
        if !end.starts_with(&END) || !points_on {
            continue;
        }
        let Some(locator) = at.checked_sub(LOCATOR_LENGTH) else {
            continue;
        };
        if !tail[locator..].starts_with(&LOCATOR) {
            continue;
        }
        let before = locator.checked_sub(LARGE_END_LENGTH).map(|at| &tail[at..]);
        let there = match number(&tail, locator + 8) {
            Some(place) => read_at(file, place, LARGE_END_LENGTH)?,
            None => Vec::new(),
        };
        let ends = [before.unwrap_or_default(), &there];
        let mut ends = ends.into_iter().filter(|end| end.starts_with(&LARGE_END));
        if ends.any(|end| number(end, 32).is_some_and(|count| count > MAX_ENTRIES as u64)) {
            return Ok(Err(too_many()));
        }
        let comment = usize::from(u16::from_le_bytes([end[20], end[21]]));
        if END_LENGTH + comment == end.len() && !there.starts_with(&LARGE_END) {
            let what = "has something before its beginning or within its end";
            return Ok(Err(UnpackError::bad(what)));
        }
    }
    Ok(Ok(()))
}

/// Gives no more than is allowed, in all.
struct Bounded<R> {
    input: R,
    allowed: Rc<Cell<u64>>,
    cause: Cause,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(into)?;
        let allowed = self.allowed.get();
        if allowed == u64::MAX {
            return Ok(count);
        }
        let Some(left) = allowed.checked_sub(count as u64) else {
            let what =
                format!("has a directory of more than {MAX_DIRECTORY} bytes, or none at its end");
            return Err(self.cause.set(UnpackError::Invalid(what)));
        };
        self.allowed.set(left);
        Ok(count)
    }
}

impl<R: Seek> Seek for Bounded<R> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.input.seek(to)
    }
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

//! Checks of a zip archive's central directory: of its entry count before the zip reader allocates
//! memory for each entry, and of its names before anything is created.

use std::{
    collections::HashSet,
    fs::File,
    hash::{BuildHasher, Hasher, RandomState},
    io::{self, Read, Seek, SeekFrom},
};

use super::{
    MAX_ENTRIES, UnpackError,
    meter::Meter,
    staging::{DIRECTORY_BYTES, too_many_created},
};

/// The end of central directory record (EOCD), with its signature and minimum length.
const END: [u8; 4] = *b"PK\x05\x06";
const END_LENGTH: usize = 22;
/// The locator of the zip64 form, directly before the EOCD.
const LOCATOR: [u8; 4] = *b"PK\x06\x07";
const LOCATOR_LENGTH: usize = 20;
/// The zip64 EOCD.
const ZIP64_END: [u8; 4] = *b"PK\x06\x06";
const ZIP64_END_LENGTH: usize = 56;
/// The offset of the number of entries in the zip64 EOCD.
const ZIP64_COUNT_OFFSET: usize = 32;
/// The longest comment that may follow the EOCD.
const MAX_COMMENT: usize = u16::MAX as usize;

pub(super) fn too_many_entries() -> UnpackError {
    UnpackError::Invalid(format!("has more than {MAX_ENTRIES} entries"))
}

/// Rejects an archive that claims to have too many entries. Only the zip64 form can: the field of
/// the standard form has 16 bits. Every position that the zip reader might accept as the EOCD is
/// checked, as a nested archive may contain further ones.
pub(super) fn check_entry_count(file: &mut File) -> io::Result<Result<(), UnpackError>> {
    let length = file.seek(SeekFrom::End(0))?;
    let tail_length = MAX_COMMENT + END_LENGTH + LOCATOR_LENGTH + ZIP64_END_LENGTH;
    let tail = read_at(file, length.saturating_sub(tail_length as u64), tail_length)?;
    for offset in 0..tail.len().saturating_sub(END_LENGTH - 1) {
        if let Err(error) = check_end(file, &tail, offset)? {
            return Ok(Err(error));
        }
    }
    Ok(Ok(()))
}

/// Checks the zip64 form of the EOCD at `offset` in `tail`, if there is one.
fn check_end(file: &mut File, tail: &[u8], offset: usize) -> io::Result<Result<(), UnpackError>> {
    let end = &tail[offset..];
    let refers_to_zip64 =
        end[10..12] == [0xff; 2] || end[12..16] == [0xff; 4] || end[16..20] == [0xff; 4];
    if !end.starts_with(&END) || !refers_to_zip64 {
        return Ok(Ok(()));
    }
    let Some(locator) = offset.checked_sub(LOCATOR_LENGTH) else {
        return Ok(Ok(()));
    };
    if !tail[locator..].starts_with(&LOCATOR) {
        return Ok(Ok(()));
    }
    // The zip64 EOCD is where the locator points; if something precedes the archive, it is directly
    // before the locator.
    let adjacent = locator.checked_sub(ZIP64_END_LENGTH);
    let adjacent = adjacent.map(|start| &tail[start..]).unwrap_or_default();
    let located = match read_u64(tail, locator + 8) {
        Some(position) => read_at(file, position, ZIP64_END_LENGTH)?,
        None => Vec::new(),
    };
    let claims_too_many = [adjacent, &located]
        .into_iter()
        .filter(|candidate| candidate.starts_with(&ZIP64_END))
        .filter_map(|zip64_end| read_u64(zip64_end, ZIP64_COUNT_OFFSET))
        .any(|count| count > MAX_ENTRIES as u64);
    if claims_too_many {
        return Ok(Err(too_many_entries()));
    }
    let comment = usize::from(u16::from_le_bytes([end[20], end[21]]));
    let is_at_file_end = END_LENGTH + comment == end.len();
    if is_at_file_end && !located.starts_with(&ZIP64_END) {
        let message = "has data before its start or inside its end record";
        return Ok(Err(UnpackError::invalid(message)));
    }
    Ok(Ok(()))
}

fn read_at(file: &mut File, position: u64, limit: usize) -> io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(position))?;
    let mut bytes = Vec::new();
    file.take(limit as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn read_u64(bytes: &[u8], offset: usize) -> Option<u64> {
    let bytes: [u8; 8] = bytes.get(offset..offset + 8)?.try_into().ok()?;
    Some(u64::from_le_bytes(bytes))
}

/// Rejects an archive whose names imply too many directories, with the entries counted as they
/// will be when they are created.
pub(super) fn check_directories<T: AsRef<str>>(
    names: impl Iterator<Item = T>,
    meter: &Meter,
) -> Result<(), UnpackError> {
    let hashes = RandomState::new();
    // Hashes of paths: the paths of deep directories need far more memory than their names.
    let mut directories = HashSet::new();
    let mut files = 0;
    for name in names {
        let name = name.as_ref();
        let is_directory = name.ends_with('/');
        let mut path = hashes.build_hasher();
        let parts = name.split('/').filter(|part| !matches!(*part, "" | "."));
        let mut parts = parts.peekable();
        while let Some(part) = parts.next() {
            if parts.peek().is_none() && !is_directory {
                break;
            }
            path.write(part.as_bytes());
            path.write_u8(b'/');
            directories.insert(path.finish());
        }
        files += usize::from(!is_directory);
        if files + directories.len() > MAX_ENTRIES {
            return Err(too_many_created());
        }
    }
    meter.check((directories.len() * DIRECTORY_BYTES) as u64)
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Write};

    use tokio_util::sync::CancellationToken;

    use super::{
        super::{UnpackLimits, meter::PackedBytes, raw_zip::ZipEntry, unpack_zip},
        *,
    };

    const LIMITS: UnpackLimits = UnpackLimits {
        bytes: 16 << 30,
        ratio: 200,
    };

    fn check(names: impl Iterator<Item = String>, packed: u64) -> Result<(), UnpackError> {
        let packed = PackedBytes::new(packed);
        check_directories(
            names,
            &Meter::new(LIMITS, packed, &CancellationToken::new()),
        )
    }

    #[test]
    fn archive_that_implies_too_many_directories_creates_none() {
        let entries: Vec<_> = (0..140)
            .map(|number| ZipEntry::file(&format!("{number}/{}file", "d/".repeat(120)), b""))
            .collect();
        let mut archive = tempfile::tempfile().unwrap();
        archive.write_all(&ZipEntry::archive(&entries)).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let into = File::open(directory.path()).unwrap().into();
        let unpacked = unpack_zip(archive, into, LIMITS, &CancellationToken::new());
        assert!(matches!(unpacked, Err(UnpackError::TooDense(200))));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn implied_directories_are_counted_once_each() {
        let deep = |number: usize| format!("{number}/{}file", "d/".repeat(120));
        // Each has 121 directories, which count as 4 KiB, and the file.
        let directory_bytes = MAX_ENTRIES as u64 / 122 * 121 * 4096;
        let allowed = directory_bytes / 200 + 1;
        check((0..MAX_ENTRIES / 122).map(deep), allowed).unwrap();
        let error = check((0..=MAX_ENTRIES / 122).map(deep), u64::MAX / 200).unwrap_err();
        assert!(matches!(error, UnpackError::Invalid(_)), "{error}");
        let error = check((0..1000).map(deep), 1 << 20).unwrap_err();
        assert!(matches!(error, UnpackError::TooDense(200)), "{error}");
        let same = |number: usize| format!("a/./b//{number}");
        check((0..MAX_ENTRIES - 2).map(same), 1).unwrap();
        assert!(check((0..MAX_ENTRIES - 1).map(same), 1).is_err());
    }
}

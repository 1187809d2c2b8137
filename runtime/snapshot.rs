//! The snapshot file: the engine's heap with Playwright loaded. Starting from it takes a tenth of
//! the time of loading the bundle.
//!
//! A snapshot refers to functions by position, so it fits only the executable that made it. Its
//! header has a fingerprint of that executable, and of the bundle for `--if-stale`.

use std::{
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

use crate::engine;

const MAGIC: &[u8; 8] = b"berth\0\0\x01";
/// The size of the header: magic, fingerprint of the executable, fingerprint of the bundle, and
/// padding that aligns the heap.
const HEADER_LEN: usize = 128;

type Fingerprint = [u8; 32];

#[derive(Debug, thiserror::Error)]
pub(crate) enum SnapshotError {
    #[error("cannot read {path}: {source}")]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot write {path}: {source}")]
    Write { path: PathBuf, source: io::Error },
    #[error("no snapshot at {0}: create it with `make build` or `berth-script snapshot BUNDLE`")]
    Missing(PathBuf),
    #[error(
        "the snapshot {0} is of another build of berth-script: create it with `make build` or `berth-script snapshot BUNDLE`"
    )]
    Stale(PathBuf),
    #[error("cannot load the bundle: {0}")]
    Bundle(String),
}

/// Creates the snapshot of `bundle`.
pub(crate) fn make(
    bundle: &Path,
    out: Option<PathBuf>,
    if_stale: bool,
) -> Result<(), SnapshotError> {
    let out = match out {
        Some(out) => out,
        None => beside_executable()?,
    };
    let source = fs::read_to_string(bundle).map_err(|source| SnapshotError::Read {
        path: bundle.to_owned(),
        source,
    })?;
    let header = header(executable_fingerprint()?, Sha256::digest(&source).into());
    if if_stale && read_header(&out).is_some_and(|found| found == header) {
        return Ok(());
    }
    let heap = engine::snapshot(source).map_err(SnapshotError::Bundle)?;

    // Renamed into place: workers that start meanwhile see the old or the new file, and workers
    // that have mapped the old one keep it.
    let write_error = |source| SnapshotError::Write {
        path: out.clone(),
        source,
    };
    let partial = out.with_extension(format!("{}.partial", std::process::id()));
    let mut file = File::create(&partial).map_err(write_error)?;
    file.write_all(&header)
        .and_then(|()| file.write_all(&heap))
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&partial, &out))
        .map_err(write_error)
}

/// Returns the heap of the snapshot beside the executable.
pub(crate) fn load() -> Result<&'static [u8], SnapshotError> {
    let path = beside_executable()?;
    let file = File::open(&path).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => SnapshotError::Missing(path.clone()),
        _ => SnapshotError::Read {
            path: path.clone(),
            source,
        },
    })?;
    let mapped = map(&file).map_err(|source| SnapshotError::Read {
        path: path.clone(),
        source,
    })?;
    let expected = executable_fingerprint()?;
    match mapped.split_at_checked(HEADER_LEN) {
        Some((header, heap)) if header.starts_with(MAGIC) && header[8..40] == expected => Ok(heap),
        _ => Err(SnapshotError::Stale(path)),
    }
}

/// Maps the file until the process ends, so that all workers share its pages and load only those
/// that they use.
#[allow(unsafe_code, reason = "memory-maps the snapshot")]
fn map(file: &File) -> io::Result<&'static [u8]> {
    // SAFETY: `make` replaces the file and never writes to one with the final name; the mapping is
    // private and read-only.
    let map = unsafe { memmap2::Mmap::map(file)? };
    Ok(Box::leak(Box::new(map)))
}

fn beside_executable() -> Result<PathBuf, SnapshotError> {
    let executable = executable()?;
    Ok(executable.with_file_name("berth-script.snapshot"))
}

fn executable() -> Result<PathBuf, SnapshotError> {
    std::env::current_exe().map_err(|source| SnapshotError::Read {
        path: "/proc/self/exe".into(),
        source,
    })
}

fn header(executable: Fingerprint, bundle: Fingerprint) -> Vec<u8> {
    let mut header = [&MAGIC[..], &executable, &bundle].concat();
    header.resize(HEADER_LEN, 0);
    header
}

fn read_header(path: &Path) -> Option<Vec<u8>> {
    let mut header = vec![0; HEADER_LEN];
    File::open(path).ok()?.read_exact_at(&mut header, 0).ok()?;
    Some(header)
}

/// Returns a fingerprint of the executable: the hash of the linker's build id, which takes two
/// small reads, or without one the hash of the file.
fn executable_fingerprint() -> Result<Fingerprint, SnapshotError> {
    let path = executable()?;
    let read_error = |source| SnapshotError::Read {
        path: path.clone(),
        source,
    };
    let file = File::open(&path).map_err(read_error)?;
    let identity = match build_id(&file) {
        Some(id) => id,
        None => fs::read(&path).map_err(read_error)?,
    };
    Ok(Sha256::digest(identity).into())
}

/// Reads the `NT_GNU_BUILD_ID` note of a 64-bit little-endian ELF file.
fn build_id(file: &File) -> Option<Vec<u8>> {
    const PT_NOTE: u32 = 4;
    const NT_GNU_BUILD_ID: u32 = 3;
    let read = |at: u64, length: usize| {
        let mut bytes = vec![0; length];
        file.read_exact_at(&mut bytes, at).ok().map(|()| bytes)
    };
    let u16_at =
        |bytes: &[u8], at: usize| Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
    let u32_at =
        |bytes: &[u8], at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let u64_at =
        |bytes: &[u8], at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));

    let elf = read(0, 64)?;
    if !elf.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let (table, entry, count) = (
        u64_at(&elf, 32)?,
        u16_at(&elf, 54)? as usize,
        u16_at(&elf, 56)? as usize,
    );
    let headers = read(table, entry * count)?;
    for header in headers.chunks_exact(entry) {
        if u32_at(header, 0)? != PT_NOTE {
            continue;
        }
        let notes = read(
            u64_at(header, 8)?,
            usize::try_from(u64_at(header, 32)?).ok()?,
        )?;
        let mut rest = &notes[..];
        while rest.len() >= 12 {
            let (name, content, kind) = (
                u32_at(rest, 0)? as usize,
                u32_at(rest, 4)? as usize,
                u32_at(rest, 8)?,
            );
            let content_at = 12 + name.next_multiple_of(4);
            let bytes = rest.get(content_at..content_at + content)?;
            if kind == NT_GNU_BUILD_ID {
                return Some(bytes.to_vec());
            }
            rest = rest.get(content_at + content.next_multiple_of(4)..)?;
        }
    }
    None
}

//! Tar archives for tests, with entries that no writer makes.

use std::io::Write;
pub(crate) use tar::EntryType;

use tar::Header;

const BLOCK_BYTES: usize = 512;
/// The length of a header's fields for names.
const NAME_BYTES: usize = 100;

/// An entry, whatever its name and target are.
#[derive(Debug, Clone)]
pub(crate) struct TarEntry {
    pub(crate) kind: EntryType,
    pub(crate) name: Vec<u8>,
    /// The target of a link.
    pub(crate) target: Vec<u8>,
    pub(crate) mode: u32,
    pub(crate) content: Vec<u8>,
    pub(crate) claimed_size: Option<u64>,
}

impl TarEntry {
    pub(crate) fn new(kind: EntryType, name: &str) -> Self {
        TarEntry {
            kind,
            name: name.as_bytes().to_vec(),
            target: Vec::new(),
            mode: 0o644,
            content: Vec::new(),
            claimed_size: None,
        }
    }

    pub(crate) fn file(name: &str, content: impl Into<Vec<u8>>) -> Self {
        TarEntry {
            content: content.into(),
            ..Self::new(EntryType::Regular, name)
        }
    }

    pub(crate) fn link(kind: EntryType, name: &str, target: &str) -> Self {
        TarEntry {
            target: target.as_bytes().to_vec(),
            ..Self::new(kind, name)
        }
    }

    /// Returns an archive with its end marker.
    pub(crate) fn archive(entries: &[TarEntry]) -> Vec<u8> {
        let mut archive = Self::unfinished_archive(entries);
        archive.extend([0; 2 * BLOCK_BYTES]);
        archive
    }

    pub(crate) fn unfinished_archive(entries: &[TarEntry]) -> Vec<u8> {
        let mut archive = Vec::new();
        for entry in entries {
            for (kind, text) in [
                (EntryType::GNULongName, &entry.name),
                (EntryType::GNULongLink, &entry.target),
            ] {
                if text.len() > NAME_BYTES {
                    let mut header = header(kind, b"long");
                    header.set_size(text.len() as u64);
                    append(&mut archive, header, text);
                }
            }
            let mut header = header(entry.kind, &entry.name);
            header.set_size(entry.claimed_size.unwrap_or(entry.content.len() as u64));
            header.set_mode(entry.mode);
            copy_start(&mut header.as_old_mut().linkname, &entry.target);
            append(&mut archive, header, &entry.content);
        }
        archive
    }

    /// Returns an archive compressed with zstd.
    pub(crate) fn packed(entries: &[TarEntry]) -> Vec<u8> {
        compressed(&Self::archive(entries))
    }
}

/// Returns bytes compressed with zstd.
pub(crate) fn compressed(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).unwrap()
}

/// Returns bytes compressed with zstd with a window of `1 << log` bytes.
pub(crate) fn compressed_with_window(bytes: &[u8], log: u32) -> Vec<u8> {
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    encoder.window_log(log).unwrap();
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn header(kind: EntryType, name: &[u8]) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    copy_start(&mut header.as_old_mut().name, name);
    header.set_mtime(1);
    header
}

fn copy_start(field: &mut [u8; NAME_BYTES], text: &[u8]) {
    let length = text.len().min(NAME_BYTES);
    field[..length].copy_from_slice(&text[..length]);
}

fn append(archive: &mut Vec<u8>, mut header: Header, content: &[u8]) {
    header.set_cksum();
    archive.extend(header.as_bytes());
    archive.extend(content);
    archive.resize(archive.len().next_multiple_of(BLOCK_BYTES), 0);
}

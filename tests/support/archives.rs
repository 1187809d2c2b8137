//! Archives of a tar file with zstd, also invalid ones.

use std::io::Write;

use tar::{EntryType, Header};

/// Returns an entry of a tar archive. Its name is not checked.
pub fn entry(kind: EntryType, name: &str, link: &str, content: &[u8]) -> Vec<u8> {
    let mut header = Header::new_gnu();
    header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_size(content.len() as u64);
    header.set_mtime(0);
    header.set_cksum();
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend_from_slice(content);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

/// Returns an entry of a file.
pub fn file(name: &str, content: &[u8]) -> Vec<u8> {
    entry(EntryType::Regular, name, "", content)
}

/// Returns an entry of a symbolic link.
pub fn link(name: &str, to: &str) -> Vec<u8> {
    entry(EntryType::Symlink, name, to, b"")
}

/// Returns an archive of entries.
pub fn packed(entries: &[Vec<u8>]) -> Vec<u8> {
    let mut tar = entries.concat();
    tar.extend([0; 1024]);
    compressed(&tar)
}

/// Returns bytes compressed with zstd.
pub fn compressed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

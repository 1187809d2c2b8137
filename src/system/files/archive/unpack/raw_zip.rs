//! Zip archives for tests, including those that no zip writer creates.

/// The compression method of content that is stored as it is.
const STORED: u16 = 0;
/// Version 2.0 of the format; in the upper byte, attributes are those of Unix.
const UNIX_VERSION: u16 = 3 << 8 | 20;

/// An entry of an archive, field by field.
#[derive(Debug, Clone)]
pub(crate) struct ZipEntry {
    pub(crate) name: Vec<u8>,
    /// Type and permissions as in `st_mode`.
    pub(crate) mode: u32,
    pub(crate) content: Vec<u8>,
    /// The size that the headers claim, if not that of the content.
    pub(crate) claimed_size: Option<u32>,
    pub(crate) flags: u16,
    pub(crate) method: u16,
}

impl ZipEntry {
    pub(crate) fn new(name: &str, mode: u32, content: &[u8]) -> Self {
        ZipEntry {
            name: name.into(),
            mode,
            content: content.to_owned(),
            claimed_size: None,
            flags: 0,
            method: STORED,
        }
    }

    pub(crate) fn file(name: &str, content: &[u8]) -> Self {
        Self::new(name, 0o100_644, content)
    }

    /// Returns an archive of these entries.
    pub(crate) fn archive(entries: &[ZipEntry]) -> Vec<u8> {
        let (mut archive, mut directory) = (Vec::new(), Vec::new());
        for entry in entries {
            let offset = archive.len() as u32;
            archive.extend(b"PK\x03\x04\x14\0");
            archive.extend(entry.common_fields());
            archive.extend(&entry.name);
            archive.extend(&entry.content);
            directory.extend(b"PK\x01\x02");
            directory.extend(UNIX_VERSION.to_le_bytes());
            directory.extend(b"\x14\0");
            directory.extend(entry.common_fields());
            // No comment, on the first disk, binary.
            directory.extend([0; 6]);
            directory.extend((entry.mode << 16).to_le_bytes());
            directory.extend(offset.to_le_bytes());
            directory.extend(&entry.name);
        }
        let (start, length) = (archive.len() as u32, directory.len() as u32);
        archive.extend(directory);
        archive.extend(b"PK\x05\x06\0\0\0\0");
        archive.extend((entries.len() as u16).to_le_bytes());
        archive.extend((entries.len() as u16).to_le_bytes());
        archive.extend(length.to_le_bytes());
        archive.extend(start.to_le_bytes());
        archive.extend([0; 2]);
        archive
    }

    /// Returns the fields that both headers of an entry have, from the flags on.
    fn common_fields(&self) -> Vec<u8> {
        let size = self.content.len() as u32;
        let mut fields = Vec::new();
        fields.extend(self.flags.to_le_bytes());
        fields.extend(self.method.to_le_bytes());
        // 1980-01-01 00:00.
        fields.extend([0, 0, 0x21, 0]);
        fields.extend(crc32(&self.content).to_le_bytes());
        fields.extend(size.to_le_bytes());
        fields.extend(self.claimed_size.unwrap_or(size).to_le_bytes());
        fields.extend((self.name.len() as u16).to_le_bytes());
        // No extra fields.
        fields.extend([0; 2]);
        fields
    }
}

fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            let polynomial = if crc & 1 == 1 { 0xedb8_8320 } else { 0 };
            crc = crc >> 1 ^ polynomial;
        }
    }
    !crc
}

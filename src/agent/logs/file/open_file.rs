//! An open log file and the read position in it.

use std::{
    fs::{File, Metadata},
    io,
    os::unix::fs::{FileExt, MetadataExt},
    path::Path,
};

use crate::{
    agent::{
        fs::files::{self, FileError},
        logs::position::{Position, SourceId},
    },
    system::files::root::RootDirectory,
};

/// The size of a read.
const CHUNK_BYTES: usize = 64 << 10;

/// The device and inode of a file.
pub(super) type FileId = (u64, u64);

pub(super) struct OpenFile {
    file: File,
    pub(super) id: FileId,
    pub(super) source: SourceId,
    pub(super) offset: u64,
}

impl OpenFile {
    /// Opens a file. Also returns its length.
    pub(super) fn open(root: &RootDirectory, path: &Path) -> Result<(Self, u64), FileError> {
        let opened = files::open_regular(root, path)?;
        // A generated file may block its reader forever; none is a growing log.
        if opened.is_generated {
            return Err(FileError::NotRegular);
        }
        let file = opened.file;
        let metadata = file.metadata()?;
        let opened = OpenFile {
            id: id_of(&metadata),
            source: SourceId::of_file(&metadata),
            offset: 0,
            file,
        };
        Ok((opened, metadata.len()))
    }

    /// Returns whether the file is now shorter than what was read.
    pub(super) fn is_truncated(&self) -> io::Result<bool> {
        Ok(self.file.metadata()?.len() < self.offset)
    }

    /// Reads the next chunk, up to the offset `end`. It is empty at the end of the file.
    pub(super) fn read(&mut self, end: Option<u64>) -> io::Result<Vec<u8>> {
        let remaining = end.map_or(u64::MAX, |end| end.saturating_sub(self.offset));
        let length = CHUNK_BYTES.min(usize::try_from(remaining).unwrap_or(CHUNK_BYTES));
        let mut bytes = vec![0; length];
        let count = loop {
            match self.file.read_at(&mut bytes, self.offset) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        bytes.truncate(count);
        self.offset += count as u64;
        Ok(bytes)
    }

    /// Continues at a position. Returns `false` if it is not one in this file.
    pub(super) fn resume(&mut self, position: Position, length: u64) -> bool {
        let is_valid = position.source == self.source && position.offset <= length;
        if is_valid {
            self.offset = position.offset;
        }
        is_valid
    }

    /// Returns whether `other` has this file's path while this file still has another name, under
    /// which it may still be written.
    pub(super) fn is_rotated_out_by(&self, other: &OpenFile) -> bool {
        self.id != other.id && self.has_name()
    }

    /// Returns whether the file has a name in any directory.
    pub(super) fn has_name(&self) -> bool {
        let metadata = self.file.metadata();
        metadata.is_ok_and(|metadata| metadata.nlink() > 0)
    }
}

pub(super) fn id_of(metadata: &Metadata) -> FileId {
    (metadata.dev(), metadata.ino())
}

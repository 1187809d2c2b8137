//! A reader that yields exactly as many bytes as the archive's header announced.

use std::{
    fs::File,
    io::{self, Read},
};

use nix::sys::stat::{FileStat, fstat};

use super::{ConsumerProbe, tree_walk::size};

/// The size of a read from the disk.
const READ_BYTES: usize = 256 << 10;

/// Reads a file that others may change meanwhile, with the length it had when it was opened: it is
/// cut if it has grown, and padded with zeros if it has shrunk.
pub(super) struct FixedLengthReader<'a> {
    file: File,
    stat_at_open: &'a FileStat,
    remaining: u64,
    buffer: &'a mut Vec<u8>,
    /// The read position in `buffer`.
    position: usize,
    consumer: &'a ConsumerProbe,
    /// Why the file ended early. Only zeros follow.
    padding_reason: Option<String>,
}

impl<'a> FixedLengthReader<'a> {
    /// `buffer` is borrowed only to reuse its memory for several files.
    pub(super) fn new(
        file: File,
        stat_at_open: &'a FileStat,
        buffer: &'a mut Vec<u8>,
        consumer: &'a ConsumerProbe,
    ) -> Self {
        buffer.clear();
        FixedLengthReader {
            file,
            stat_at_open,
            remaining: size(stat_at_open),
            buffer,
            position: 0,
            consumer,
            padding_reason: None,
        }
    }

    /// Describes how the content differs from the file. Must be called after everything was read.
    pub(super) fn difference(&self) -> Option<String> {
        if let Some(reason) = &self.padding_reason {
            return Some(reason.clone());
        }
        let now = fstat(&self.file).ok()?;
        let modified = |stat: &FileStat| (stat.st_mtime, stat.st_mtime_nsec);
        if size(&now) > size(self.stat_at_open) {
            Some("grew while it was read; cut to its initial size".to_owned())
        } else if modified(&now) != modified(self.stat_at_open) {
            Some("changed while it was read".to_owned())
        } else {
            None
        }
    }

    fn fill(&mut self) {
        let length =
            usize::try_from(self.remaining).map_or(READ_BYTES, |length| length.min(READ_BYTES));
        self.buffer.resize(length, 0);
        self.position = 0;
        let mut filled = 0;
        while filled < length && self.padding_reason.is_none() {
            match self.file.read(&mut self.buffer[filled..length]) {
                Ok(0) => {
                    let reason = "shrank while it was read; padded with zeros";
                    self.padding_reason = Some(reason.to_owned());
                }
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let reason = format!("could not be read; padded with zeros: {error}");
                    self.padding_reason = Some(reason);
                }
            }
        }
        self.buffer[filled..length].fill(0);
    }
}

impl Read for FixedLengthReader<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.remaining == 0 {
            return Ok(0);
        }
        if self.position == self.buffer.len() {
            self.consumer.check()?;
            self.fill();
        }
        let buffered = &self.buffer[self.position..];
        let count = buffered.len().min(into.len());
        into[..count].copy_from_slice(&buffered[..count]);
        self.position += count;
        self.remaining -= count as u64;
        Ok(count)
    }
}

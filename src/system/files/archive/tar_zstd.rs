//! Writing tar, compressed with zstd on all cores.

use std::{
    collections::HashMap,
    ffi::OsString,
    fs::File,
    io::{self, BufWriter},
    path::{Path, PathBuf},
    thread,
};

use nix::{libc, sys::stat::FileStat};
use tar::{Builder, EntryType, Header};
use zstd::Encoder;

use super::{
    AbortableWriter, Skipped, Source, Wanted,
    tree_walk::{self, Entry, Exact, Sink},
};
use crate::api::fs::CompressionLevel;

/// Of an archive's compressor, in MiB; see [`workers`].
const MEMORY: u32 = 256;
const MAX_WORKERS: u32 = 8;
/// Handed to the compressor at a time.
const BUFFER: usize = 256 << 10;

type Archive = Builder<BufWriter<Encoder<'static, AbortableWriter>>>;

pub(super) fn write(
    source: &Source,
    level: CompressionLevel,
    out: &AbortableWriter,
) -> io::Result<Skipped> {
    let mut encoder = Encoder::new(out.clone(), level.number().into())?;
    encoder.include_checksum(true)?;
    encoder.multithread(workers(level))?;
    let mut sink = TarSink {
        archive: Builder::new(BufWriter::with_capacity(BUFFER, encoder)),
        linked: HashMap::new(),
        wanted: source.wanted.clone(),
        buffer: Vec::new(),
    };
    let unfinished = out.unfinished();
    let skipped = tree_walk::walk_and_list(source, &mut sink)?;
    unfinished.finish();
    let encoder = sink.archive.into_inner()?.into_inner();
    encoder.map_err(io::IntoInnerError::into_error)?.finish()?;
    Ok(skipped)
}

/// One a core, as far as memory goes.
fn workers(level: CompressionLevel) -> u32 {
    let cores = thread::available_parallelism()
        .ok()
        .and_then(|cores| u32::try_from(cores.get()).ok())
        .unwrap_or(1);
    // In MiB, as measured.
    let of_each = match level.number() {
        ..=6 => 24,
        7..=9 => 36,
        10..=12 => 56,
        13..=18 => 84,
        19.. => 116,
    };
    cores.min(MAX_WORKERS).min(MEMORY / of_each)
}

struct TarSink {
    archive: Archive,
    /// Where a file of several names was seen first.
    linked: HashMap<(libc::dev_t, libc::ino_t), PathBuf>,
    wanted: Wanted,
    buffer: Vec<u8>,
}

impl TarSink {
    fn add_file(
        &mut self,
        path: &Path,
        stat: &FileStat,
        file: File,
        skipped: &mut Skipped,
    ) -> io::Result<()> {
        let mut header = header(EntryType::Regular, stat);
        if stat.st_nlink > 1 {
            if let Some(first) = self.linked.get(&(stat.st_dev, stat.st_ino)) {
                header.set_entry_type(EntryType::Link);
                return self.archive.append_link(&mut header, path, first);
            }
            self.linked
                .insert((stat.st_dev, stat.st_ino), path.to_owned());
        }
        header.set_size(tree_walk::size(stat));
        let mut content = Exact::new(file, stat, &mut self.buffer, &self.wanted);
        self.archive.append_data(&mut header, path, &mut content)?;
        if let Some(what) = content.difference() {
            skipped.note(path, what);
        }
        Ok(())
    }
}

impl tree_walk::Archive for TarSink {
    fn add_list(&mut self, name: &Path, list: &[u8]) -> io::Result<()> {
        let mut header = Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(list.len() as u64);
        self.archive.append_data(&mut header, name, list)
    }
}

impl Sink for TarSink {
    fn add(&mut self, path: &Path, entry: Entry<'_>, skipped: &mut Skipped) -> io::Result<()> {
        match entry {
            Entry::Directory(stat) => {
                let mut header = header(EntryType::Directory, stat);
                self.archive.append_data(&mut header, path, io::empty())
            }
            Entry::File(stat, file) => self.add_file(path, stat, file, skipped),
            Entry::Link(stat, target) => {
                let mut header = header(EntryType::Symlink, stat);
                append_symlink(&mut self.archive, &mut header, path, &target)
            }
        }
    }
}

/// A link's target is kept letter for letter, `a//b` and `./c` as well.
fn append_symlink(
    archive: &mut Archive,
    header: &mut Header,
    path: &Path,
    target: &OsString,
) -> io::Result<()> {
    if header
        .set_link_name_literal(target.as_encoded_bytes())
        .is_ok()
    {
        return archive.append_data(header, path, io::empty());
    }
    // Longer than its field: the archive writes it as an entry of its own.
    archive.append_link(header, path, target)
}

fn header(kind: EntryType, stat: &FileStat) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(stat.st_mode & 0o7777);
    header.set_uid(stat.st_uid.into());
    header.set_gid(stat.st_gid.into());
    // The format has no time before 1970.
    header.set_mtime(u64::try_from(stat.st_mtime).unwrap_or_default());
    header.set_size(0);
    header
}

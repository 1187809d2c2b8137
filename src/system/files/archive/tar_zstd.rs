//! Writing tar archives, compressed with zstd on several cores.

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
    AbortableWriter, ArchiveSource, ConsumerProbe, SkippedEntries,
    fixed_length::FixedLengthReader,
    tree_walk::{self, ArchiveSink, Entry, EntrySink},
};
use crate::api::fs::CompressionLevel;

/// The memory limit of one archive's compressor, in MiB; see [`workers`].
const MAX_MEMORY_MIB: u32 = 256;
const MAX_WORKERS: u32 = 8;
/// The size of the blocks passed to the compressor.
const BUFFER_BYTES: usize = 256 << 10;

type TarBuilder = Builder<BufWriter<Encoder<'static, AbortableWriter>>>;

pub(super) fn write(
    source: &ArchiveSource,
    level: CompressionLevel,
    out: &AbortableWriter,
) -> io::Result<SkippedEntries> {
    let mut encoder = Encoder::new(out.clone(), level.number().into())?;
    encoder.include_checksum(true)?;
    encoder.multithread(workers(level))?;
    let mut sink = TarSink {
        builder: Builder::new(BufWriter::with_capacity(BUFFER_BYTES, encoder)),
        first_names: HashMap::new(),
        consumer: source.consumer.clone(),
        buffer: Vec::new(),
    };
    // Declared after `sink`, so that on an error it is dropped first.
    let abort_guard = out.abort_on_drop();
    let skipped = tree_walk::walk_and_list(source, &mut sink)?;
    abort_guard.disarm();
    let encoder = sink.builder.into_inner()?.into_inner();
    encoder.map_err(io::IntoInnerError::into_error)?.finish()?;
    Ok(skipped)
}

/// Returns the number of compressor threads: one per core, within the memory limit.
fn workers(level: CompressionLevel) -> u32 {
    let cores = thread::available_parallelism()
        .ok()
        .and_then(|cores| u32::try_from(cores.get()).ok())
        .unwrap_or(1);
    // Measured values.
    let mib_per_worker = match level.number() {
        ..=6 => 24,
        7..=9 => 36,
        10..=12 => 56,
        13..=18 => 84,
        19.. => 116,
    };
    cores.min(MAX_WORKERS).min(MAX_MEMORY_MIB / mib_per_worker)
}

/// The identity of a file: device, inode, and the time of its last change in seconds and
/// nanoseconds. An inode is used for another file once its own has been deleted, and a file that
/// has changed is not what was archived under its first name.
type FileVersion = (libc::dev_t, libc::ino_t, libc::time_t, i64);

struct TarSink {
    builder: TarBuilder,
    /// The first path of each file that has several hard links.
    first_names: HashMap<FileVersion, PathBuf>,
    consumer: ConsumerProbe,
    buffer: Vec<u8>,
}

impl TarSink {
    fn add_file(
        &mut self,
        path: &Path,
        stat: &FileStat,
        file: File,
        skipped: &mut SkippedEntries,
    ) -> io::Result<()> {
        let mut header = header(EntryType::Regular, stat);
        if stat.st_nlink > 1 {
            let changed = (stat.st_ctime, stat.st_ctime_nsec);
            let version = (stat.st_dev, stat.st_ino, changed.0, changed.1);
            if let Some(first) = self.first_names.get(&version) {
                header.set_entry_type(EntryType::Link);
                return self.builder.append_link(&mut header, path, first);
            }
            self.first_names.insert(version, path.to_owned());
        }
        header.set_size(tree_walk::size(stat));
        let mut content = FixedLengthReader::new(file, stat, &mut self.buffer, &self.consumer);
        self.builder.append_data(&mut header, path, &mut content)?;
        if let Some(difference) = content.difference() {
            skipped.add(path, difference);
        }
        Ok(())
    }
}

impl ArchiveSink for TarSink {
    fn add_list(&mut self, name: &Path, list: &[u8]) -> io::Result<()> {
        let mut header = Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(list.len() as u64);
        self.builder.append_data(&mut header, name, list)
    }
}

impl EntrySink for TarSink {
    fn add(
        &mut self,
        path: &Path,
        entry: Entry<'_>,
        skipped: &mut SkippedEntries,
    ) -> io::Result<()> {
        match entry {
            Entry::Directory(stat) => {
                let mut header = header(EntryType::Directory, stat);
                self.builder.append_data(&mut header, path, io::empty())
            }
            Entry::File(stat, file) => self.add_file(path, stat, file, skipped),
            Entry::Link(stat, target) => {
                let mut header = header(EntryType::Symlink, stat);
                append_symlink(&mut self.builder, &mut header, path, &target)
            }
        }
    }
}

/// Appends a symbolic link. Its target is stored byte for byte, including forms such as `a//b` and
/// `./c`, which `append_link` would normalize.
fn append_symlink(
    builder: &mut TarBuilder,
    header: &mut Header,
    path: &Path,
    target: &OsString,
) -> io::Result<()> {
    if header
        .set_link_name_literal(target.as_encoded_bytes())
        .is_ok()
    {
        return builder.append_data(header, path, io::empty());
    }
    // Too long for the header field: `append_link` writes it as a separate entry.
    builder.append_link(header, path, target)
}

fn header(kind: EntryType, stat: &FileStat) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(stat.st_mode & 0o7777);
    header.set_uid(stat.st_uid.into());
    header.set_gid(stat.st_gid.into());
    // The format cannot represent times before 1970.
    header.set_mtime(u64::try_from(stat.st_mtime).unwrap_or_default());
    header.set_size(0);
    header
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        io::{Read, Seek},
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering::Relaxed},
        },
    };

    use super::*;

    /// Returns type and content of each entry of an archive of `directory`. `on_entry` is called
    /// with the number of each entry before the entry is read.
    fn archive(
        directory: &Path,
        on_entry: impl Fn(usize) + Send + Sync + 'static,
    ) -> Vec<(PathBuf, EntryType, String)> {
        let entries = AtomicUsize::new(0);
        let consumer = ConsumerProbe(Arc::new(move || {
            on_entry(entries.fetch_add(1, Relaxed));
            true
        }));
        let source = ArchiveSource::open(directory).unwrap();
        let source = source.with_consumer(consumer);
        let mut file = tempfile::tempfile().unwrap();
        let out = AbortableWriter::new(file.try_clone().unwrap());
        write(&source, CompressionLevel::default(), &out).unwrap();
        out.flush_all().unwrap();
        file.rewind().unwrap();
        let mut archive = tar::Archive::new(zstd::Decoder::new(file).unwrap());
        let entries = archive.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            let mut content = String::new();
            entry.read_to_string(&mut content).unwrap();
            let path = entry.path().unwrap().into_owned();
            (path, entry.header().entry_type(), content)
        });
        entries.collect()
    }

    #[test]
    fn second_name_is_a_link_only_to_an_unchanged_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        // The entry `b` delays `c`, so that the change is made between the two names.
        for name in ["a", "b"] {
            fs::write(path(name), "old").unwrap();
        }
        fs::hard_link(path("a"), path("c")).unwrap();
        let found = |entries: Vec<(PathBuf, EntryType, String)>| {
            let last = entries
                .into_iter()
                .find(|(path, ..)| path == Path::new("c"));
            last.map(|(_, kind, content)| (kind, content)).unwrap()
        };
        let unchanged = found(archive(directory.path(), |_| {}));
        assert_eq!(unchanged, (EntryType::Link, String::new()));
        let second = path("c");
        let changed = archive(directory.path(), move |entry| {
            // The first two calls are for `a` and its content.
            if entry < 2 {
                return;
            }
            let changed = || fs::metadata(&second).unwrap().modified().unwrap();
            let before = changed();
            while fs::read(&second).unwrap() == b"old" || changed() == before {
                fs::write(&second, "new").unwrap();
            }
        });
        assert_eq!(found(changed), (EntryType::Regular, "new".to_owned()));
    }
}

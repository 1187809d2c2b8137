//! Writing zip archives.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Write},
    path::Path,
};

use chrono::{DateTime, Datelike, Timelike, Utc};
use nix::sys::stat::FileStat;
use zip::{
    CompressionMethod, ZipWriter,
    write::{ExtendedFileOptions, FileOptions, StreamWriter},
};

use super::{
    AbortableWriter, ArchiveSource, ConsumerProbe, SkippedEntries,
    fixed_length::FixedLengthReader,
    tree_walk::{self, ArchiveSink, Entry, EntrySink},
};

/// The file size from which the format's 64-bit size fields are used. It is less than 4 GiB because
/// incompressible content grows when it is deflated.
const LARGE_FILE_BYTES: u64 = 0xf000_0000;

/// The extensions of compressed files, which are deflated at the fastest level. They are not stored
/// uncompressed, because a stored file in a stream has no length that the reader could rely on.
const COMPRESSED: [&str; 24] = [
    "7z", "avif", "br", "bz2", "crx", "docx", "gif", "gz", "heic", "jar", "jpeg", "jpg", "mkv",
    "mp3", "mp4", "ogg", "pdf", "png", "rar", "webm", "webp", "woff2", "xz", "zip",
];
const FASTEST_LEVEL: i64 = 1;

/// The header ID of the "extended timestamp" field (Info-ZIP): seconds since 1970 in UTC. The
/// format's standard field has no time zone and only even seconds.
const EXTENDED_TIMESTAMP: u16 = 0x5455;
const HAS_MODIFICATION_TIME: u8 = 1;

type Options = FileOptions<'static, 'static, ExtendedFileOptions>;

pub(super) fn write(source: &ArchiveSource, out: &AbortableWriter) -> io::Result<SkippedEntries> {
    let mut sink = ZipSink {
        writer: ZipWriter::new_stream(out.clone()),
        consumer: source.consumer.clone(),
        buffer: Vec::new(),
    };
    // Declared after `sink`, so that on an error it is dropped first.
    let abort_guard = out.abort_on_drop();
    let skipped = tree_walk::walk_and_list(source, &mut sink)?;
    abort_guard.disarm();
    sink.writer.finish()?;
    Ok(skipped)
}

struct ZipSink {
    writer: ZipWriter<StreamWriter<AbortableWriter>>,
    consumer: ConsumerProbe,
    buffer: Vec<u8>,
}

impl ZipSink {
    fn add_file(
        &mut self,
        name: String,
        path: &Path,
        (stat, file): (&FileStat, File),
        skipped: &mut SkippedEntries,
    ) -> io::Result<()> {
        let size = tree_walk::size(stat);
        let mut options = options(stat)?
            .compression_method(CompressionMethod::Deflated)
            .large_file(size >= LARGE_FILE_BYTES);
        if is_compressed(path) {
            options = options.compression_level(Some(FASTEST_LEVEL));
        }
        self.writer.start_file(name, options)?;
        let mut content = FixedLengthReader::new(file, stat, &mut self.buffer, &self.consumer);
        io::copy(&mut content, &mut self.writer)?;
        if let Some(difference) = content.difference() {
            skipped.add(path, difference);
        }
        Ok(())
    }
}

impl ArchiveSink for ZipSink {
    fn add_list(&mut self, name: &Path, list: &[u8]) -> io::Result<()> {
        self.writer
            .start_file(name.to_string_lossy(), Options::default())?;
        self.writer.write_all(list)
    }
}

impl EntrySink for ZipSink {
    fn add(
        &mut self,
        path: &Path,
        entry: Entry<'_>,
        skipped: &mut SkippedEntries,
    ) -> io::Result<()> {
        // The format requires UTF-8.
        let Some(name) = path.to_str().map(str::to_owned) else {
            skipped.add(path, "has a name that is not UTF-8");
            return Ok(());
        };
        match entry {
            Entry::Directory(stat) => Ok(self.writer.add_directory(name, options(stat)?)?),
            Entry::File(stat, file) => self.add_file(name, path, (stat, file), skipped),
            Entry::Link(stat, target) => match OsString::into_string(target) {
                Ok(target) => Ok(self.writer.add_symlink(name, target, options(stat)?)?),
                Err(_) => {
                    skipped.add(path, "has a link target that is not UTF-8");
                    Ok(())
                }
            },
        }
    }
}

fn options(stat: &FileStat) -> io::Result<Options> {
    let mut options = Options::default().unix_permissions(stat.st_mode);
    if let Some(time) = DateTime::<Utc>::from_timestamp(stat.st_mtime, 0)
        && let Some(time) = to_zip_time(time)
    {
        options = options.last_modified_time(time);
    }
    // The field is a signed 32-bit integer.
    if let Ok(seconds) = i32::try_from(stat.st_mtime) {
        let mut field = vec![HAS_MODIFICATION_TIME];
        field.extend(seconds.to_le_bytes());
        options.add_extra_field(EXTENDED_TIMESTAMP, field, false)?;
    }
    Ok(options)
}

/// Converts a time to the format's standard form, which cannot represent times before 1980.
fn to_zip_time(time: DateTime<Utc>) -> Option<zip::DateTime> {
    let part = |number: u32| u8::try_from(number).ok();
    zip::DateTime::from_date_and_time(
        u16::try_from(time.year()).ok()?,
        part(time.month())?,
        part(time.day())?,
        part(time.hour())?,
        part(time.minute())?,
        part(time.second())?,
    )
    .ok()
}

fn is_compressed(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|extension| COMPRESSED.contains(&extension.to_ascii_lowercase().as_str()))
}

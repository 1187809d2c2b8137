//! Writing zip.

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
    AbortableWriter, Skipped, Source, Wanted,
    tree_walk::{self, Archive, Entry, Exact, Sink},
};

/// From here on a file needs the format's larger sizes. Below the limit itself, as what does not compress becomes longer.
const LARGE: u64 = 0xf000_0000;

/// What is compressed already: to try hard would be in vain. It is deflated all the same, as a file that is stored in a stream has no length
/// that a reader of the stream could go by.
const COMPRESSED: [&str; 24] = [
    "7z", "avif", "br", "bz2", "crx", "docx", "gif", "gz", "heic", "jar", "jpeg", "jpg", "mkv",
    "mp3", "mp4", "ogg", "pdf", "png", "rar", "webm", "webp", "woff2", "xz", "zip",
];
const FAST: i64 = 1;

/// The header id of "extended timestamp" (Info-ZIP): seconds since 1970 in UTC. The format's own field has neither zone nor odd seconds.
const EXTENDED_TIMESTAMP: u16 = 0x5455;
const HAS_MODIFICATION_TIME: u8 = 1;

type Options = FileOptions<'static, 'static, ExtendedFileOptions>;

pub(super) fn write(source: &Source, out: &AbortableWriter) -> io::Result<Skipped> {
    let mut sink = ZipSink {
        archive: ZipWriter::new_stream(out.clone()),
        wanted: source.wanted.clone(),
        buffer: Vec::new(),
    };
    let unfinished = out.unfinished();
    let skipped = tree_walk::walk_and_list(source, &mut sink)?;
    unfinished.finish();
    sink.archive.finish()?;
    Ok(skipped)
}

struct ZipSink {
    archive: ZipWriter<StreamWriter<AbortableWriter>>,
    wanted: Wanted,
    buffer: Vec<u8>,
}

impl ZipSink {
    fn add_file(
        &mut self,
        name: String,
        path: &Path,
        (stat, file): (&FileStat, File),
        skipped: &mut Skipped,
    ) -> io::Result<()> {
        let size = tree_walk::size(stat);
        let mut options = options(stat)?
            .compression_method(CompressionMethod::Deflated)
            .large_file(size >= LARGE);
        if is_compressed(path) {
            options = options.compression_level(Some(FAST));
        }
        self.archive.start_file(name, options)?;
        let mut content = Exact::new(file, stat, &mut self.buffer, &self.wanted);
        io::copy(&mut content, &mut self.archive)?;
        if let Some(what) = content.difference() {
            skipped.note(path, what);
        }
        Ok(())
    }
}

impl Archive for ZipSink {
    fn add_list(&mut self, name: &Path, list: &[u8]) -> io::Result<()> {
        self.archive
            .start_file(name.to_string_lossy(), Options::default())?;
        self.archive.write_all(list)
    }
}

impl Sink for ZipSink {
    fn add(&mut self, path: &Path, entry: Entry<'_>, skipped: &mut Skipped) -> io::Result<()> {
        // Names are UTF-8 in the format.
        let Some(name) = path.to_str().map(str::to_owned) else {
            skipped.note(path, "its name is not UTF-8");
            return Ok(());
        };
        match entry {
            Entry::Directory(stat) => Ok(self.archive.add_directory(name, options(stat)?)?),
            Entry::File(stat, file) => self.add_file(name, path, (stat, file), skipped),
            Entry::Link(stat, target) => match OsString::into_string(target) {
                Ok(target) => Ok(self.archive.add_symlink(name, target, options(stat)?)?),
                Err(_) => {
                    skipped.note(path, "what it leads to is not UTF-8");
                    Ok(())
                }
            },
        }
    }
}

fn options(stat: &FileStat) -> io::Result<Options> {
    let mut options = Options::default().unix_permissions(stat.st_mode);
    if let Some(time) = DateTime::<Utc>::from_timestamp(stat.st_mtime, 0)
        && let Some(time) = local_form(time)
    {
        options = options.last_modified_time(time);
    }
    // 32 bits with a sign.
    if let Ok(seconds) = i32::try_from(stat.st_mtime) {
        let mut field = vec![HAS_MODIFICATION_TIME];
        field.extend(seconds.to_le_bytes());
        options.add_extra_field(EXTENDED_TIMESTAMP, field, false)?;
    }
    Ok(options)
}

/// `None` where the format cannot say it, as before 1980.
fn local_form(time: DateTime<Utc>) -> Option<zip::DateTime> {
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

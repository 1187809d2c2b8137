//! A walk through a directory that others may change meanwhile.
//!
//! Everything is opened relative to the directory it was found in, and no link is followed: a directory that is swapped for a link leads nowhere.

use std::{
    collections::{BTreeSet, HashSet},
    ffi::{CStr, CString, OsStr, OsString},
    fs::File,
    io::{self, Read},
    iter,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
};

use nix::{
    dir::Dir,
    errno::Errno,
    fcntl::{AtFlags, OFlag, openat, readlinkat},
    libc,
    sys::stat::{FileStat, Mode, SFlag, fstat, fstatat},
};

use super::{MAX_ENTRIES, Skipped, Source, Wanted};
use crate::system::files::virtual_fs::is_virtual;

/// Directories within directories; each takes a file descriptor while it is walked.
const MAX_DEPTH: usize = 128;

/// How the name of the list of what was skipped begins.
const LIST: &str = ".berth-skipped";

/// What the archive gets of the tree, in order: a directory before what is in it.
pub trait Sink {
    /// # Errors
    /// Where the archive can take no more.
    fn add(&mut self, path: &Path, entry: Entry<'_>, skipped: &mut Skipped) -> io::Result<()>;
}

pub enum Entry<'a> {
    Directory(&'a FileStat),
    File(&'a FileStat, File),
    Link(&'a FileStat, OsString),
}

/// A sink that can tell of what is not as it was.
pub trait Archive: Sink {
    /// # Errors
    /// Where the archive can take no more.
    fn add_list(&mut self, name: &Path, list: &[u8]) -> io::Result<()>;
}

/// # Errors
/// Where the sink fails, something is skipped of what must be whole, the directory itself cannot be read, there are more than [`MAX_ENTRIES`], or nobody wants them any more.
pub fn walk(source: &Source, sink: &mut impl Sink) -> io::Result<Skipped> {
    let mut walk = Walk::new(source);
    walk.all(source, sink)?;
    Ok(walk.skipped)
}

/// As [`walk`]; a last member lists what was skipped.
///
/// # Errors
/// As for [`walk`].
pub fn walk_and_list(source: &Source, archive: &mut impl Archive) -> io::Result<Skipped> {
    let mut walk = Walk::new(source);
    walk.all(source, archive)?;
    if !walk.skipped.is_empty() {
        archive.add_list(&walk.list_name(), &walk.skipped.to_json())?;
    }
    Ok(walk.skipped)
}

struct Walk {
    leave_out: fn(&Path) -> bool,
    must_be_whole: bool,
    wanted: Wanted,
    entries: usize,
    skipped: Skipped,
    /// Names in the directory itself that the list cannot have.
    list_taken: HashSet<PathBuf>,
}

/// Where the walk is.
struct Place {
    directory: OwnedFd,
    device: libc::dev_t,
    depth: usize,
}

impl Walk {
    fn new(source: &Source) -> Self {
        Walk {
            leave_out: source.leave_out,
            must_be_whole: source.must_be_whole,
            wanted: source.wanted.clone(),
            entries: 0,
            skipped: Skipped::default(),
            list_taken: HashSet::new(),
        }
    }

    fn all(&mut self, source: &Source, sink: &mut impl Sink) -> io::Result<()> {
        let directory = source.directory.try_clone()?;
        let device = fstat(&directory)?.st_dev;
        let root = Place {
            directory,
            device,
            depth: 0,
        };
        self.directory(&root, Path::new(""), sink)?;
        self.check_whole()
    }

    fn check_whole(&self) -> io::Result<()> {
        match self.skipped.first() {
            Some(first) if self.must_be_whole => Err(io::Error::other(first)),
            _ => Ok(()),
        }
    }

    /// The name of the last member, which tells what is missing; another one where the directory has a file of that name.
    fn list_name(&self) -> PathBuf {
        let first = PathBuf::from(format!("{LIST}.json"));
        let others = (2u32..).map(|number| PathBuf::from(format!("{LIST}-{number}.json")));
        iter::once(first)
            .chain(others)
            .find(|name| !self.list_taken.contains(name))
            .unwrap_or_default()
    }

    fn directory(&mut self, place: &Place, path: &Path, sink: &mut impl Sink) -> io::Result<()> {
        let names = match names(&place.directory) {
            Ok(names) => names,
            // Without these there would be no archive worth the name.
            Err(error) if place.depth == 0 => return Err(error.into()),
            Err(Errno::EOVERFLOW) => return Err(too_many()),
            Err(error) => {
                self.skipped.note(path, told(error));
                return Ok(());
            }
        };
        for name in names {
            let path = path.join(OsStr::from_bytes(name.as_bytes()));
            if (self.leave_out)(&path) {
                continue;
            }
            self.entries += 1;
            if self.entries > MAX_ENTRIES {
                return Err(too_many());
            }
            self.wanted.check()?;
            if place.depth == 0 && name.as_bytes().starts_with(LIST.as_bytes()) {
                self.list_taken.insert(path.clone());
            }
            // What takes long is not gone on with in vain.
            self.check_whole()?;
            self.member(place, &name, &path, sink)?;
        }
        Ok(())
    }

    fn member(
        &mut self,
        place: &Place,
        name: &CStr,
        path: &Path,
        sink: &mut impl Sink,
    ) -> io::Result<()> {
        let stat = match fstatat(&place.directory, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(error) => {
                self.skipped.note(path, told(error));
                return Ok(());
            }
        };
        match kind(&stat) {
            SFlag::S_IFDIR => return self.inner_directory(place, name, path, sink),
            SFlag::S_IFREG => return self.file(place, name, path, sink),
            SFlag::S_IFLNK => match readlinkat(&place.directory, name) {
                Ok(target) => {
                    return sink.add(path, Entry::Link(&stat, target), &mut self.skipped);
                }
                Err(error) => self.skipped.note(path, told(error)),
            },
            SFlag::S_IFSOCK => self.skipped.note(path, "it is a socket"),
            SFlag::S_IFIFO => self.skipped.note(path, "it is a FIFO"),
            _ => self.skipped.note(path, "it is a device"),
        }
        Ok(())
    }

    fn inner_directory(
        &mut self,
        place: &Place,
        name: &CStr,
        path: &Path,
        sink: &mut impl Sink,
    ) -> io::Result<()> {
        if place.depth == MAX_DEPTH {
            let what = format!("it is more than {MAX_DEPTH} directories deep");
            self.skipped.note(path, what);
            return Ok(());
        }
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY;
        let Some((directory, stat)) = self.open(place, name, flags, path) else {
            return Ok(());
        };
        if stat.st_dev != place.device && is_virtual(&directory).unwrap_or(true) {
            let what = "it is a file system that the kernel makes up";
            self.skipped.note(path, what);
            return Ok(());
        }
        sink.add(path, Entry::Directory(&stat), &mut self.skipped)?;
        let inner = Place {
            directory,
            device: stat.st_dev,
            depth: place.depth + 1,
        };
        self.directory(&inner, path, sink)
    }

    fn file(
        &mut self,
        place: &Place,
        name: &CStr,
        path: &Path,
        sink: &mut impl Sink,
    ) -> io::Result<()> {
        // Should it be a FIFO by now, opening it must not wait.
        let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        let Some((file, stat)) = self.open(place, name, flags, path) else {
            return Ok(());
        };
        if kind(&stat) != SFlag::S_IFREG {
            self.skipped.note(path, "it became something else");
            return Ok(());
        }
        sink.add(
            path,
            Entry::File(&stat, File::from(file)),
            &mut self.skipped,
        )
    }

    /// What cannot be opened is noted.
    fn open(
        &mut self,
        place: &Place,
        name: &CStr,
        flags: OFlag,
        path: &Path,
    ) -> Option<(OwnedFd, FileStat)> {
        let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let opened = openat(&place.directory, name, flags, Mode::empty())
            .and_then(|file| fstat(&file).map(|stat| (file, stat)));
        match opened {
            Ok(opened) => Some(opened),
            Err(error) => {
                self.skipped.note(path, told(error));
                None
            }
        }
    }
}

fn too_many() -> io::Error {
    io::Error::other(format!("the directory has more than {MAX_ENTRIES} entries"))
}

fn kind(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits())
}

/// In order, so that archives of the same tree are alike.
fn names(directory: &OwnedFd) -> nix::Result<BTreeSet<CString>> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let mut listing = Dir::openat(directory, c".", flags, Mode::empty())?;
    let mut names = BTreeSet::new();
    for entry in listing.iter() {
        let name = entry?.file_name().to_owned();
        if !matches!(name.as_bytes(), b"." | b"..") {
            names.insert(name);
        }
        if names.len() > MAX_ENTRIES {
            return Err(Errno::EOVERFLOW);
        }
    }
    Ok(names)
}

fn told(error: Errno) -> String {
    match error {
        Errno::ENOENT => "it vanished meanwhile".to_owned(),
        Errno::EACCES | Errno::EPERM => "it may not be read".to_owned(),
        Errno::ELOOP | Errno::ENOTDIR => "it became something else".to_owned(),
        error => error.desc().to_owned(),
    }
}

/// A file's content, exactly as long as it was when it was opened: cut where it has grown, filled with zeros where it has shrunk.
pub struct Exact<'a> {
    file: File,
    opened: &'a FileStat,
    left: u64,
    buffer: &'a mut Vec<u8>,
    wanted: &'a Wanted,
    at: usize,
    /// Once nothing more comes of the file.
    ended: Option<String>,
}

/// Read from the disk at a time.
const READ: usize = 256 << 10;

impl<'a> Exact<'a> {
    /// `buffer` is only lent, to be used again for the next file.
    pub fn new(
        file: File,
        opened: &'a FileStat,
        buffer: &'a mut Vec<u8>,
        wanted: &'a Wanted,
    ) -> Self {
        buffer.clear();
        Exact {
            file,
            opened,
            left: size(opened),
            buffer,
            wanted,
            at: 0,
            ended: None,
        }
    }

    /// What there is to be told of the file, once all has been read.
    pub fn difference(&self) -> Option<String> {
        if let Some(ended) = &self.ended {
            return Some(ended.clone());
        }
        let now = fstat(&self.file).ok()?;
        let changed = |stat: &FileStat| (stat.st_mtime, stat.st_mtime_nsec);
        if size(&now) > size(self.opened) {
            Some("it grew while it was read, and was cut to the size it had".to_owned())
        } else if changed(&now) != changed(self.opened) {
            Some("it changed while it was read".to_owned())
        } else {
            None
        }
    }

    fn fill(&mut self) {
        let due = usize::try_from(self.left).map_or(READ, |left| left.min(READ));
        self.buffer.resize(due, 0);
        self.at = 0;
        let mut filled = 0;
        while filled < due && self.ended.is_none() {
            match self.file.read(&mut self.buffer[filled..due]) {
                Ok(0) => {
                    let what = "it shrank while it was read, and was filled with zeros";
                    self.ended = Some(what.to_owned());
                }
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let what = format!("it could not be read, and was filled with zeros: {error}");
                    self.ended = Some(what);
                }
            }
        }
        self.buffer[filled..due].fill(0);
    }
}

impl Read for Exact<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 {
            return Ok(0);
        }
        if self.at == self.buffer.len() {
            self.wanted.check()?;
            self.fill();
        }
        let ready = &self.buffer[self.at..];
        let count = ready.len().min(into.len());
        into[..count].copy_from_slice(&ready[..count]);
        self.at += count;
        self.left -= count as u64;
        Ok(count)
    }
}

pub fn size(stat: &FileStat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or_default()
}

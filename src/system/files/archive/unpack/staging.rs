//! The directory an archive is unpacked into.

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, Read, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Component, Path, PathBuf},
};

use cap_std::ambient_authority;
use nix::{
    errno::Errno,
    fcntl::{AtFlags, OFlag, open, openat},
    sys::{
        stat::{Mode, SFlag, UtimensatFlags, fchmod, fstatat, futimens, mkdirat, utimensat},
        time::TimeSpec,
    },
    unistd::{LinkatFlags, linkat, symlinkat},
};

use super::{MAX_ENTRIES, UnpackError, meter::Meter};

/// The longest name of an entry in bytes, and the directories it may lie in.
const MAX_PATH: usize = 4095;
const MAX_DEPTH: usize = 128;
/// Of directories that nothing is said of.
const DIRECTORY_MODE: u32 = 0o755;
/// What a directory counts for.
const DIRECTORY_BYTES: usize = 4096;
/// Neither an archive's set-user bits nor its owners are taken over.
const MODE_BITS: u32 = 0o777;
const BUFFER: usize = 256 << 10;

/// What an entry says of itself.
#[derive(Debug, Clone, Copy)]
pub struct Attributes {
    pub mode: u32,
    /// Seconds since 1970.
    pub modified: Option<i64>,
}

pub struct Staging {
    path: PathBuf,
    root: OwnedFd,
    entries: usize,
    meter: Meter,
    /// The directory of the last entry: most have the same as the one before.
    last: Option<(PathBuf, OwnedFd)>,
    links: Vec<PathBuf>,
    directories: Vec<(PathBuf, Attributes)>,
    buffer: Vec<u8>,
}

impl Staging {
    /// In a directory that is there, empty, and to which nobody else has a way.
    pub fn new(path: &Path, meter: Meter) -> Result<Self, UnpackError> {
        let root = open(path, directory_flags(), Mode::empty()).map_err(disk)?;
        Ok(Staging {
            path: path.to_owned(),
            root,
            entries: 0,
            meter,
            last: None,
            links: Vec::new(),
            directories: Vec::new(),
            buffer: Vec::new(),
        })
    }

    pub fn directory(&mut self, name: &[u8], attributes: Attributes) -> Result<(), UnpackError> {
        let Some(path) = member_path(name)? else {
            // The directory itself, as `tar .` writes it.
            return self.count();
        };
        let before = self.entries;
        self.open_directory(&path)?;
        if self.entries == before {
            self.count()?;
        }
        self.directories.push((path, attributes));
        Ok(())
    }

    /// Writes all that `content` gives; `meter` hears of each part before it is written.
    pub fn file(
        &mut self,
        name: &[u8],
        attributes: Attributes,
        content: &mut impl Read,
        failed: impl Fn(&io::Error) -> UnpackError,
        mut meter: impl FnMut(usize) -> Result<(), UnpackError>,
    ) -> Result<(), UnpackError> {
        self.count()?;
        let path = member(name)?;
        let (directory, name) = self.place(&path)?;
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
        let mode = Mode::S_IRUSR | Mode::S_IWUSR;
        let file = openat(directory, name, flags, mode).map_err(|error| made(&path, error))?;
        let mut file = File::from(file);
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(BUFFER, 0);
        loop {
            let count = match content.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(failed(&error)),
            };
            meter(count)?;
            file.write_all(&buffer[..count]).map_err(UnpackError::Io)?;
        }
        self.buffer = buffer;
        fchmod(&file, Mode::from_bits_truncate(attributes.mode & MODE_BITS)).map_err(disk)?;
        if let Some(time) = attributes.modified {
            futimens(&file, &TimeSpec::new(time, 0), &TimeSpec::new(time, 0)).map_err(disk)?;
        }
        Ok(())
    }

    pub fn symlink(&mut self, name: &[u8], target: &[u8]) -> Result<(), UnpackError> {
        self.count()?;
        let path = member(name)?;
        let is_inside = !target.is_empty()
            && target.len() <= MAX_PATH
            && !target.contains(&0)
            && stays_inside(&path, Path::new(OsStr::from_bytes(target)));
        if !is_inside {
            return Err(leads_out(&path));
        }
        let (directory, name) = self.place(&path)?;
        symlinkat(OsStr::from_bytes(target), directory, name)
            .map_err(|error| made(&path, error))?;
        self.links.push(path);
        Ok(())
    }

    /// One more name of a file that has been unpacked.
    pub fn hard_link(&mut self, name: &[u8], target: &[u8]) -> Result<(), UnpackError> {
        self.count()?;
        let (path, target) = (member(name)?, member(target)?);
        let not_there = || {
            let what = "is another name of a file that does not come before it";
            UnpackError::entry(&path.to_string_lossy(), what)
        };
        let (directory, target_name) = self.place(&target)?;
        let from = directory.try_clone().map_err(UnpackError::Io)?;
        let flags = AtFlags::AT_SYMLINK_NOFOLLOW;
        let found = fstatat(&from, target_name, flags).map_err(|_| not_there())?;
        let is_file = found.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFREG.bits();
        if !is_file {
            return Err(not_there());
        }
        let target_name = target_name.to_owned();
        let (directory, name) = self.place(&path)?;
        linkat(
            &from,
            target_name.as_os_str(),
            directory,
            name,
            LinkatFlags::empty(),
        )
        .map_err(|error| made(&path, error))
    }

    /// Checks what only the whole can tell, and gives the directories the permissions they are to have.
    pub fn finish(mut self) -> Result<(), UnpackError> {
        self.last = None;
        let beneath = cap_std::fs::Dir::open_ambient_dir(&self.path, ambient_authority());
        let beneath = beneath.map_err(UnpackError::Io)?;
        for link in &self.links {
            // Through other links it may lead further than its own words say. One that leads nowhere is fine.
            if let Err(error) = beneath.metadata(link)
                && error.kind() == io::ErrorKind::PermissionDenied
            {
                return Err(leads_out(link));
            }
        }
        // Those within others first: a directory may take away the right to look into it.
        self.directories
            .sort_by(|(one, _), (other, _)| other.cmp(one));
        for (path, attributes) in std::mem::take(&mut self.directories) {
            let directory = self.open_directory(&path)?;
            let mode = Mode::from_bits_truncate(attributes.mode & MODE_BITS);
            fchmod(directory, mode).map_err(disk)?;
            if let Some(time) = attributes.modified {
                let time = TimeSpec::new(time, 0);
                let flag = UtimensatFlags::NoFollowSymlink;
                utimensat(&self.root, &path, &time, &time, flag).map_err(disk)?;
            }
            self.last = None;
        }
        Ok(())
    }

    fn count(&mut self) -> Result<(), UnpackError> {
        self.entries += 1;
        if self.entries > MAX_ENTRIES {
            let what = format!("has more than {MAX_ENTRIES} entries, directories included");
            return Err(UnpackError::Invalid(what));
        }
        // Nothing of its content, but it says when to stop.
        self.meter.add(0)
    }

    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Where an entry goes: its directory, made where it is missing, and its name there.
    fn place<'a>(&mut self, path: &'a Path) -> Result<(&OwnedFd, &'a OsStr), UnpackError> {
        let name = path.file_name().unwrap_or_default();
        let directory = self.open_directory(path.parent().unwrap_or(Path::new("")))?;
        Ok((directory, name))
    }

    /// Opens a directory, step by step and through no link; what is missing is made.
    fn open_directory(&mut self, path: &Path) -> Result<&OwnedFd, UnpackError> {
        let is_last = self.last.as_ref().is_some_and(|(last, _)| last == path);
        if !is_last {
            let mut directory = self.root.try_clone().map_err(UnpackError::Io)?;
            for name in path {
                directory = match openat(&directory, name, directory_flags(), Mode::empty()) {
                    Err(Errno::ENOENT) => self.make_directory(&directory, name, path)?,
                    opened => opened.map_err(|error| made(path, error))?,
                };
            }
            self.last = Some((path.to_owned(), directory));
        }
        match &self.last {
            Some((_, directory)) => Ok(directory),
            None => Ok(&self.root),
        }
    }

    /// One that the archive need not name, but that is an entry all the same, and takes its block of the disk.
    fn make_directory(
        &mut self,
        parent: &OwnedFd,
        name: &OsStr,
        path: &Path,
    ) -> Result<OwnedFd, UnpackError> {
        self.count()?;
        self.meter.add(DIRECTORY_BYTES)?;
        let mode = Mode::from_bits_truncate(DIRECTORY_MODE);
        mkdirat(parent, name, mode).map_err(|error| made(path, error))?;
        let directory = openat(parent, name, directory_flags(), Mode::empty())
            .map_err(|error| made(path, error))?;
        // Whatever the process's mask takes away.
        fchmod(&directory, mode).map_err(disk)?;
        Ok(directory)
    }
}

fn directory_flags() -> OFlag {
    OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC
}

fn disk(error: Errno) -> UnpackError {
    UnpackError::Io(error.into())
}

/// Why an entry could not be made: it is the archive's fault where something of the archive's is in the way.
fn made(path: &Path, error: Errno) -> UnpackError {
    let what = match error {
        Errno::EEXIST => "is there twice",
        Errno::ENOTDIR | Errno::ELOOP => "lies in something that is no directory",
        Errno::ENAMETOOLONG => "has too long a name",
        error => return disk(error),
    };
    UnpackError::entry(&path.to_string_lossy(), what)
}

fn leads_out(path: &Path) -> UnpackError {
    UnpackError::entry(&path.to_string_lossy(), "is a link that leads out")
}

/// The path of an entry that cannot be the directory itself.
fn member(name: &[u8]) -> Result<PathBuf, UnpackError> {
    member_path(name)?
        .ok_or_else(|| UnpackError::entry(&String::from_utf8_lossy(name), "has no name"))
}

/// A path that stays below where it begins; `None` for that directory itself.
fn member_path(name: &[u8]) -> Result<Option<PathBuf>, UnpackError> {
    let wrong = |what| Err(UnpackError::entry(&String::from_utf8_lossy(name), what));
    if name.len() > MAX_PATH {
        return wrong("has too long a name");
    }
    if name.contains(&0) {
        return wrong("has a NUL in its name");
    }
    let mut path = PathBuf::new();
    for component in Path::new(OsStr::from_bytes(name)).components() {
        match component {
            Component::Normal(name) => path.push(name),
            Component::CurDir => {}
            Component::ParentDir => return wrong("leads out by `..`"),
            Component::RootDir | Component::Prefix(_) => return wrong("has an absolute name"),
        }
    }
    if path.components().count() > MAX_DEPTH {
        return wrong("is too deep");
    }
    Ok((!path.as_os_str().is_empty()).then_some(path))
}

/// Whether a link's own words keep it inside, whatever else comes to be there: `..` leads up from the link's own directory only. Behind a name it
/// would lead up from wherever that name leads.
fn stays_inside(link: &Path, target: &Path) -> bool {
    let mut depth = link.components().count() - 1;
    let mut named = false;
    for component in target.components() {
        match component {
            Component::Normal(_) => named = true,
            Component::CurDir => {}
            Component::ParentDir if depth > 0 && !named => depth -= 1,
            _ => return false,
        }
    }
    true
}

impl Attributes {
    /// Of a directory that nothing is said of.
    pub const DIRECTORY: Attributes = Attributes {
        mode: DIRECTORY_MODE,
        modified: None,
    };
}

impl AsFd for Staging {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.root.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_stays_below_its_directory() {
        for (name, path) in [
            ("a", "a"),
            ("./a//b/", "a/b"),
            ("a/./b", "a/b"),
            ("..a", "..a"),
        ] {
            assert_eq!(member(name.as_bytes()).unwrap(), Path::new(path));
        }
        let (long, deep) = ("x".repeat(MAX_PATH + 1), "d/".repeat(MAX_DEPTH + 1));
        for bad in ["", ".", "/a", "..", "a/../b", "a/..", "a\0", &long, &deep] {
            assert!(member(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_link_stays_inside_by_its_words() {
        for (link, target, inside) in [
            ("a", "b", true),
            ("a", "./b/../c", false),
            ("d/a", "./../c/d", true),
            ("a", "d/up/missing/../..", false),
            ("a", "..", false),
            ("d/a", "..", true),
            ("d/a", "../..", false),
            ("d/a", "../e/../../f", false),
            ("d/e/a", "../../f", true),
            ("a", "/etc", false),
        ] {
            assert_eq!(stays_inside(Path::new(link), Path::new(target)), inside);
        }
    }
}

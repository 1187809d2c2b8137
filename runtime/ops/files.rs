//! The files a script can reach: one directory of its own.
//!
//! Paths are resolved by `cap-std` beneath an open directory, so that neither `..` nor a symbolic link leads out of it.

use std::{
    io::{self, Read, Write},
    path::{Component, Path, PathBuf},
    rc::Rc,
    time::UNIX_EPOCH,
};

use cap_std::fs::{Dir, File, OpenOptions};
use deno_core::{OpState, op2};
use deno_error::JsErrorBox;

use super::Host;
use crate::script_protocol::{DOWNLOADS, MAX_ENTRIES};

/// The largest file that is read at once.
const MAX_READ: u64 = 256 << 20;

/// An error is worded as Node's.
type FileResult<T> = Result<T, JsErrorBox>;

pub struct Files {
    path: PathBuf,
    directory: Dir,
    /// How many bytes and entries a script may still make, were there no downloads: those come and go without this process.
    bytes_left: u64,
    entries_left: usize,
}

impl Files {
    pub fn open(scratch: &Path, scratch_mb: u32) -> io::Result<Self> {
        Ok(Files {
            path: scratch.canonicalize()?,
            directory: Dir::open_ambient_dir(scratch, cap_std::ambient_authority())?,
            bytes_left: u64::from(scratch_mb) << 20,
            entries_left: MAX_ENTRIES,
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn directory(&self) -> &Dir {
        &self.directory
    }

    /// `path` relative to the directory, where it is beneath it.
    fn inside(&self, what: &str, path: &str) -> FileResult<PathBuf> {
        self.relative(Path::new(path)).ok_or_else(|| {
            JsErrorBox::generic(format!(
                "EACCES: permission denied, {what} '{path}': a script's files are in its own directory, {}; give a relative path",
                self.path.display()
            ))
        })
    }

    fn relative(&self, path: &Path) -> Option<PathBuf> {
        let mut inside = PathBuf::new();
        for component in self
            .path
            .join(path)
            .strip_prefix(&self.path)
            .ok()?
            .components()
        {
            match component {
                Component::Normal(name) => inside.push(name),
                Component::CurDir => {}
                // A step up that stays inside is fine; the first that does not is out.
                Component::ParentDir => {
                    if !inside.pop() {
                        return None;
                    }
                }
                Component::RootDir | Component::Prefix(_) => return None,
            }
        }
        if inside.as_os_str().is_empty() {
            inside.push(".");
        }
        Some(inside)
    }

    fn read(&self, path: &str) -> FileResult<Vec<u8>> {
        let inside = self.inside("open", path)?;
        let fail = |err| in_words(&err, "open", path);
        let file = self.directory.open(inside).map_err(fail)?;
        let length = file.metadata().map_err(fail)?.len();
        if length > MAX_READ {
            return Err(JsErrorBox::generic(format!(
                "EFBIG: file too large, open '{path}': a script reads at most {} MiB at once",
                MAX_READ >> 20
            )));
        }
        let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or_default());
        file.take(MAX_READ).read_to_end(&mut bytes).map_err(fail)?;
        Ok(bytes)
    }

    fn write(&mut self, path: &str, bytes: &[u8], append: bool) -> FileResult<()> {
        let inside = self.inside("open", path)?;
        let fail = |err| in_words(&err, "open", path);
        let directory = &self.directory;
        let before = match directory.metadata(&inside) {
            Ok(found) => Some(found.len()),
            Err(err) if err.kind() == io::ErrorKind::NotFound => None,
            Err(err) => return Err(fail(err)),
        };
        let freed = if append { 0 } else { before.unwrap_or(0) };
        self.make_room(&inside, path, bytes.len() as u64, freed, before.is_none())?;
        let mut options = OpenOptions::new();
        options
            .create(true)
            .write(true)
            .append(append)
            .truncate(!append);
        let mut file: File = self.directory.open_with(&inside, &options).map_err(fail)?;
        file.write_all(bytes).map_err(fail)
    }

    fn make_room(
        &mut self,
        inside: &Path,
        path: &str,
        bytes: u64,
        freed: u64,
        new_entry: bool,
    ) -> FileResult<()> {
        let downloads = self.downloads();
        let available = (self.bytes_left + freed).saturating_sub(downloads.bytes);
        let refused = if bytes > available {
            format!("a script's files may take {available} bytes more")
        } else if new_entry && self.entries_left <= downloads.entries {
            format!("a script may make {MAX_ENTRIES} files")
        } else {
            if is_accounted(inside) {
                self.bytes_left = self.bytes_left + freed - bytes;
                self.entries_left -= usize::from(new_entry);
            }
            return Ok(());
        };
        Err(JsErrorBox::generic(format!(
            "EDQUOT: disk quota exceeded, write '{path}': {refused}"
        )))
    }

    /// What the downloads take, as they are now.
    fn downloads(&self) -> Usage {
        Usage::beneath(&self.directory, Path::new(DOWNLOADS)).unwrap_or_default()
    }

    fn credit(&mut self, freed: Usage) {
        self.bytes_left += freed.bytes;
        self.entries_left += freed.entries;
    }

    fn charge(&mut self, taken: Usage) {
        self.bytes_left = self.bytes_left.saturating_sub(taken.bytes);
        self.entries_left = self.entries_left.saturating_sub(taken.entries);
    }

    fn copy(&mut self, from: &str, to: &str) -> FileResult<()> {
        // At most what may be written is read, and that is what the quota allows.
        let bytes = self.read(from)?;
        self.write(to, &bytes, false)
    }

    fn remove(&mut self, path: &str, recursive: bool) -> FileResult<()> {
        let inside = self.inside("unlink", path)?;
        let fail = |err| in_words(&err, "unlink", path);
        let directory = &self.directory;
        let freed = Usage::of(directory, &inside).map_err(fail)?;
        let found = directory.symlink_metadata(&inside).map_err(fail)?;
        match (found.is_dir(), recursive) {
            (true, true) => directory.remove_dir_all(&inside),
            (true, false) => directory.remove_dir(&inside),
            (false, _) => directory.remove_file(&inside),
        }
        .map_err(fail)?;
        if is_accounted(&inside) {
            self.credit(freed);
        }
        Ok(())
    }

    fn make_directory(&mut self, path: &str) -> FileResult<()> {
        let inside = self.inside("mkdir", path)?;
        let missing = inside
            .ancestors()
            .filter(|above| !above.as_os_str().is_empty() && !self.directory.exists(above))
            .count();
        if missing > self.entries_left.saturating_sub(self.downloads().entries) {
            self.entries_left = 0;
            return self.make_room(&inside, path, 0, 0, true);
        }
        if is_accounted(&inside) {
            self.entries_left -= missing;
        }
        self.directory
            .create_dir_all(&inside)
            .map_err(|err| in_words(&err, "mkdir", path))
    }

    fn rename(&mut self, from: &str, to: &str) -> FileResult<()> {
        let (source, target) = (self.inside("rename", from)?, self.inside("rename", to)?);
        let fail = |err| in_words(&err, "rename", from);
        let directory = &self.directory;
        let moved = Usage::of(directory, &source).map_err(fail)?;
        // What the target was is gone afterwards, unless it is the source itself.
        let replaced = match Usage::of(directory, &target) {
            Ok(found) if source != target => found,
            _ => Usage::default(),
        };
        directory
            .rename(&source, directory, &target)
            .map_err(fail)?;
        match (is_accounted(&source), is_accounted(&target)) {
            (true, false) => self.credit(moved),
            (false, true) => self.charge(moved),
            _ => {}
        }
        if is_accounted(&target) {
            self.credit(replaced);
        }
        Ok(())
    }
}

/// Whether a path is in the account that this process keeps; downloads are looked at instead.
fn is_accounted(inside: &Path) -> bool {
    !inside.starts_with(DOWNLOADS)
}

#[derive(Clone, Copy, Default)]
struct Usage {
    bytes: u64,
    entries: usize,
}

impl Usage {
    /// A file, or a directory with what is in it.
    fn of(directory: &Dir, path: &Path) -> io::Result<Usage> {
        let found = directory.symlink_metadata(path)?;
        if !found.is_dir() {
            return Ok(Usage {
                bytes: found.len(),
                entries: 1,
            });
        }
        let mut usage = Usage::beneath(directory, path)?;
        usage.entries += 1;
        Ok(usage)
    }

    fn beneath(directory: &Dir, path: &Path) -> io::Result<Usage> {
        let mut usage = Usage::default();
        for entry in directory.read_dir(path)? {
            let inner = Usage::of(directory, &path.join(entry?.file_name()))?;
            usage.bytes += inner.bytes;
            usage.entries += inner.entries;
        }
        Ok(usage)
    }
}

/// `ENOENT: no such file or directory, open 'x'`.
fn in_words(err: &io::Error, what: &str, path: &str) -> JsErrorBox {
    let (code, text) = match err.kind() {
        io::ErrorKind::NotFound => ("ENOENT", "no such file or directory"),
        io::ErrorKind::AlreadyExists => ("EEXIST", "file already exists"),
        io::ErrorKind::PermissionDenied => ("EACCES", "permission denied"),
        io::ErrorKind::IsADirectory => ("EISDIR", "illegal operation on a directory"),
        io::ErrorKind::NotADirectory => ("ENOTDIR", "not a directory"),
        io::ErrorKind::DirectoryNotEmpty => ("ENOTEMPTY", "directory not empty"),
        io::ErrorKind::StorageFull => ("ENOSPC", "no space left on device"),
        io::ErrorKind::FileTooLarge => ("EFBIG", "file too large"),
        _ => ("EIO", "i/o error"),
    };
    JsErrorBox::generic(format!("{code}: {text}, {what} '{path}'"))
}

fn with<T>(state: &OpState, act: impl FnOnce(&mut Files) -> T) -> T {
    act(&mut state.borrow::<Rc<Host>>().files.borrow_mut())
}

/// Playwright asks while it loads, too, and so while the snapshot is made; it makes nothing of the answer then.
#[op2]
#[string]
pub fn op_scratch_path(state: &mut OpState) -> String {
    state.try_borrow::<Rc<Host>>().map_or_else(
        || "/".to_owned(),
        |host| host.files.borrow().path().to_string_lossy().into_owned(),
    )
}

#[op2]
#[buffer]
pub fn op_file_read(state: &mut OpState, #[string] path: &str) -> Result<Vec<u8>, JsErrorBox> {
    with(state, |files| files.read(path))
}

#[op2(fast)]
pub fn op_file_write(
    state: &mut OpState,
    #[string] path: &str,
    #[buffer] bytes: &[u8],
    append: bool,
) -> Result<(), JsErrorBox> {
    with(state, |files| files.write(path, bytes, append))
}

/// Kind (0 file, 1 directory, 2 other), size, time of the last change.
#[op2]
#[serde]
pub fn op_file_stat(
    state: &mut OpState,
    #[string] path: &str,
) -> Result<(u8, f64, f64), JsErrorBox> {
    with(state, |files| {
        let inside = files.inside("stat", path)?;
        let found = files
            .directory
            .metadata(inside)
            .map_err(|err| in_words(&err, "stat", path))?;
        let kind = match (found.is_file(), found.is_dir()) {
            (true, _) => 0,
            (_, true) => 1,
            _ => 2,
        };
        let modified = found
            .modified()
            .ok()
            .and_then(|time| time.into_std().duration_since(UNIX_EPOCH).ok())
            .map_or(0.0, |since| since.as_secs_f64() * 1000.0);
        Ok((kind, found.len() as f64, modified.trunc()))
    })
}

#[op2]
#[serde]
pub fn op_file_list(state: &mut OpState, #[string] path: &str) -> Result<Vec<String>, JsErrorBox> {
    with(state, |files| {
        let inside = files.inside("scandir", path)?;
        let list = || -> io::Result<Vec<String>> {
            let mut names = Vec::new();
            for entry in files.directory.read_dir(inside)? {
                names.push(entry?.file_name().to_string_lossy().into_owned());
            }
            names.sort();
            Ok(names)
        };
        list().map_err(|err| in_words(&err, "scandir", path))
    })
}

#[op2(fast)]
pub fn op_file_remove(
    state: &mut OpState,
    #[string] path: &str,
    recursive: bool,
) -> Result<(), JsErrorBox> {
    with(state, |files| files.remove(path, recursive))
}

#[op2(fast)]
pub fn op_file_make_directory(state: &mut OpState, #[string] path: &str) -> Result<(), JsErrorBox> {
    with(state, |files| files.make_directory(path))
}

#[op2(fast)]
pub fn op_file_rename(
    state: &mut OpState,
    #[string] from: &str,
    #[string] to: &str,
) -> Result<(), JsErrorBox> {
    with(state, |files| files.rename(from, to))
}

#[op2(fast)]
pub fn op_file_copy(
    state: &mut OpState,
    #[string] from: &str,
    #[string] to: &str,
) -> Result<(), JsErrorBox> {
    with(state, |files| files.copy(from, to))
}

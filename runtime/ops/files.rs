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

/// How many files and directories a script may make; each costs an inode however small it is.
const MAX_ENTRIES: usize = 4096;
/// The largest file that is read at once.
const MAX_READ: u64 = 256 << 20;

/// An error is worded as Node's.
type FileResult<T> = Result<T, JsErrorBox>;

pub struct Files {
    path: PathBuf,
    directory: Dir,
    /// How many bytes and entries a script may still make.
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
        self.make_room(path, bytes.len() as u64, freed, before.is_none())?;
        let mut options = OpenOptions::new();
        options
            .create(true)
            .write(true)
            .append(append)
            .truncate(!append);
        let mut file: File = self.directory.open_with(&inside, &options).map_err(fail)?;
        file.write_all(bytes).map_err(fail)
    }

    fn make_room(&mut self, path: &str, bytes: u64, freed: u64, new_entry: bool) -> FileResult<()> {
        let available = self.bytes_left + freed;
        let refused = if bytes > available {
            format!("a script's files may take {available} bytes more")
        } else if new_entry && self.entries_left == 0 {
            format!("a script may make {MAX_ENTRIES} files")
        } else {
            self.bytes_left = available - bytes;
            self.entries_left -= usize::from(new_entry);
            return Ok(());
        };
        Err(JsErrorBox::generic(format!(
            "EDQUOT: disk quota exceeded, write '{path}': {refused}"
        )))
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
        let found = directory.symlink_metadata(&inside).map_err(fail)?;
        if found.is_dir() {
            let (bytes, entries) = usage(directory, &inside).map_err(fail)?;
            if recursive {
                directory.remove_dir_all(&inside).map_err(fail)?;
                self.bytes_left += bytes;
                self.entries_left += entries;
            } else {
                directory.remove_dir(&inside).map_err(fail)?;
            }
        } else {
            directory.remove_file(&inside).map_err(fail)?;
            self.bytes_left += found.len();
        }
        self.entries_left += 1;
        Ok(())
    }

    fn make_directory(&mut self, path: &str) -> FileResult<()> {
        let inside = self.inside("mkdir", path)?;
        let missing = inside
            .ancestors()
            .filter(|above| !above.as_os_str().is_empty() && !self.directory.exists(above))
            .count();
        if missing > self.entries_left {
            self.entries_left = 0;
            return self.make_room(path, 0, 0, true);
        }
        self.entries_left -= missing;
        self.directory
            .create_dir_all(&inside)
            .map_err(|err| in_words(&err, "mkdir", path))
    }

    fn rename(&mut self, from: &str, to: &str) -> FileResult<()> {
        let (source, target) = (self.inside("rename", from)?, self.inside("rename", to)?);
        let directory = &self.directory;
        directory
            .rename(source, directory, target)
            .map_err(|err| in_words(&err, "rename", from))
    }
}

/// Bytes and entries beneath a directory.
fn usage(directory: &Dir, path: &Path) -> io::Result<(u64, usize)> {
    let (mut bytes, mut entries) = (0, 0);
    for entry in directory.read_dir(path)? {
        let entry = entry?;
        let found = entry.metadata()?;
        entries += 1;
        if found.is_dir() {
            let (inner_bytes, inner_entries) = usage(directory, &path.join(entry.file_name()))?;
            bytes += inner_bytes;
            entries += inner_entries;
        } else {
            bytes += found.len();
        }
    }
    Ok((bytes, entries))
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

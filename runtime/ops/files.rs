//! File access of scripts, limited to one directory and to a quota.
//!
//! `cap-std` resolves paths beneath an open directory, so that neither `..` nor a symbolic link
//! leads out of it.

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

/// The largest file that a script can read, in bytes.
const MAX_READ_SIZE: u64 = 256 << 20;

/// Errors have the form of Node's: `ENOENT: no such file or directory, open 'x'`.
type FileResult<T> = Result<T, JsErrorBox>;

/// The directory and the quota of a script.
pub(crate) struct Files {
    path: PathBuf,
    directory: Dir,
    quota_bytes: u64,
    /// The space of the files without the downloads, which come and go outside this process.
    used: Usage,
}

impl Files {
    /// Opens the directory. Its path must be absolute and without symbolic links: the agent
    /// compares the paths that scripts name with it.
    pub(crate) fn open(scratch: &Path, scratch_mb: u32) -> io::Result<Self> {
        Ok(Files {
            path: scratch.to_owned(),
            directory: Dir::open_ambient_dir(scratch, cap_std::ambient_authority())?,
            quota_bytes: u64::from(scratch_mb) << 20,
            used: Usage::default(),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn directory(&self) -> &Dir {
        &self.directory
    }

    /// Returns `path` relative to the directory, or an error if it is outside.
    fn resolve(&self, operation: &str, path: &str) -> FileResult<PathBuf> {
        self.relative(Path::new(path)).ok_or_else(|| {
            JsErrorBox::generic(format!(
                "EACCES: permission denied, {operation} '{path}': scripts can access files in {} only; use a relative path",
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
                // A step up is allowed as long as it stays inside.
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
        let inside = self.resolve("open", path)?;
        let fail = |err| node_error(&err, "open", path);
        let file = self.directory.open(inside).map_err(fail)?;
        let length = file.metadata().map_err(fail)?.len();
        if length > MAX_READ_SIZE {
            return Err(JsErrorBox::generic(format!(
                "EFBIG: file too large, open '{path}': scripts can read files of up to {} MiB",
                MAX_READ_SIZE >> 20
            )));
        }
        let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or_default());
        file.take(MAX_READ_SIZE)
            .read_to_end(&mut bytes)
            .map_err(fail)?;
        Ok(bytes)
    }

    fn write(&mut self, path: &str, bytes: &[u8], append: bool) -> FileResult<()> {
        let inside = self.resolve("open", path)?;
        let fail = |err| node_error(&err, "open", path);
        let before = match self.directory.metadata(&inside) {
            Ok(metadata) if metadata.is_dir() => {
                return Err(fail(io::ErrorKind::IsADirectory.into()));
            }
            Ok(metadata) => Usage::file(metadata.len()),
            Err(err) if err.kind() == io::ErrorKind::NotFound => Usage::default(),
            Err(err) => return Err(fail(err)),
        };
        let length = bytes.len() as u64;
        let freed = if append { 0 } else { before.bytes };
        self.check_quota(path, length, freed, 1 - before.entries)?;
        let mut options = OpenOptions::new();
        options
            .create(true)
            .write(true)
            .append(append)
            .truncate(!append);
        // Changes nothing if it fails.
        let mut file: File = self.directory.open_with(&inside, &options).map_err(fail)?;
        let written = file.write_all(bytes);
        // A write that fails may have stored a part of the bytes.
        let stored = file.metadata().map(|metadata| metadata.len());
        let after = Usage::file(stored.unwrap_or(before.bytes + length));
        self.account(&inside, before, after);
        written.map_err(fail)
    }

    /// Returns a quota error unless `bytes` and `entries` fit into the quota once `freed` bytes are
    /// replaced.
    fn check_quota(&self, path: &str, bytes: u64, freed: u64, entries: usize) -> FileResult<()> {
        let downloads = self.downloads();
        let available =
            (self.quota_bytes + freed).saturating_sub(self.used.bytes + downloads.bytes);
        let reason = if bytes > available {
            format!("{available} bytes are available")
        } else if entries > MAX_ENTRIES.saturating_sub(self.used.entries + downloads.entries) {
            format!("the limit of {MAX_ENTRIES} files is reached")
        } else {
            return Ok(());
        };
        Err(JsErrorBox::generic(format!(
            "EDQUOT: disk quota exceeded, write '{path}': {reason}"
        )))
    }

    /// Returns the current size of the downloads, without the entry of their directory.
    fn downloads(&self) -> Usage {
        let mut usage = Usage::of(&self.directory, Path::new(DOWNLOADS)).unwrap_or_default();
        usage.entries = usage.entries.saturating_sub(1);
        usage
    }

    /// Replaces what a path took before a change by what it takes afterwards.
    fn account(&mut self, inside: &Path, before: Usage, after: Usage) {
        if counts_towards_quota(inside) {
            let Usage { bytes, entries } = self.used;
            self.used.bytes = (bytes + after.bytes).saturating_sub(before.bytes);
            self.used.entries = (entries + after.entries).saturating_sub(before.entries);
        }
    }

    fn copy(&mut self, from: &str, to: &str) -> FileResult<()> {
        // Reading is bounded by MAX_READ_SIZE; the write enforces the quota.
        let bytes = self.read(from)?;
        self.write(to, &bytes, false)
    }

    fn remove(&mut self, path: &str, recursive: bool) -> FileResult<()> {
        let inside = self.resolve("unlink", path)?;
        let fail = |err| node_error(&err, "unlink", path);
        // The directory itself: the agent removes it.
        if inside == Path::new(".") {
            return Err(fail(io::ErrorKind::ResourceBusy.into()));
        }
        let directory = &self.directory;
        let before = Usage::of(directory, &inside).map_err(fail)?;
        let metadata = directory.symlink_metadata(&inside).map_err(fail)?;
        let removed = match (metadata.is_dir(), recursive) {
            (true, true) => directory.remove_dir_all(&inside),
            (true, false) => directory.remove_dir(&inside),
            (false, _) => directory.remove_file(&inside),
        };
        // A removal that fails may have removed a part.
        let after = match Usage::of(directory, &inside) {
            Ok(usage) => usage,
            Err(err) if err.kind() == io::ErrorKind::NotFound => Usage::default(),
            Err(_) => before,
        };
        self.account(&inside, before, after);
        removed.map_err(fail)
    }

    fn make_directory(&mut self, path: &str) -> FileResult<()> {
        let inside = self.resolve("mkdir", path)?;
        let missing = self.missing_directories(&inside);
        self.check_quota(path, 0, 0, missing)?;
        let created = self.directory.create_dir_all(&inside);
        // A creation that fails may have created some of the parents.
        let entries = missing.saturating_sub(self.missing_directories(&inside));
        self.account(&inside, Usage::default(), Usage { bytes: 0, entries });
        created.map_err(|err| node_error(&err, "mkdir", path))
    }

    /// Returns how many of a directory and its parents do not exist.
    fn missing_directories(&self, inside: &Path) -> usize {
        let parents = inside.ancestors();
        let named = parents.filter(|parent| !parent.as_os_str().is_empty());
        named
            .filter(|parent| !self.directory.exists(parent))
            .count()
    }

    fn rename(&mut self, from: &str, to: &str) -> FileResult<()> {
        let (source, target) = (self.resolve("rename", from)?, self.resolve("rename", to)?);
        let fail = |err| node_error(&err, "rename", from);
        let directory = &self.directory;
        let moved = Usage::of(directory, &source).map_err(fail)?;
        let replaced = Usage::of(directory, &target).unwrap_or_default();
        directory
            .rename(&source, directory, &target)
            .map_err(fail)?;
        if source != target {
            self.account(&source, moved, Usage::default());
            self.account(&target, replaced, moved);
        }
        Ok(())
    }
}

/// Whether this process keeps account of a path. Downloads are measured instead.
fn counts_towards_quota(inside: &Path) -> bool {
    !inside.starts_with(DOWNLOADS)
}

/// The space that files take.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Usage {
    bytes: u64,
    entries: usize,
}

impl Usage {
    fn file(bytes: u64) -> Usage {
        Usage { bytes, entries: 1 }
    }

    /// Returns the usage of a file, or of a directory with its content.
    fn of(directory: &Dir, path: &Path) -> io::Result<Usage> {
        let metadata = directory.symlink_metadata(path)?;
        if !metadata.is_dir() {
            return Ok(Usage::file(metadata.len()));
        }
        let mut usage = Usage::beneath(directory, path)?;
        usage.entries += 1;
        Ok(usage)
    }

    /// Returns the usage of the content of a directory.
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

/// Converts an error to the form of Node's.
fn node_error(err: &io::Error, operation: &str, path: &str) -> JsErrorBox {
    let (code, text) = match err.kind() {
        io::ErrorKind::NotFound => ("ENOENT", "no such file or directory"),
        io::ErrorKind::AlreadyExists => ("EEXIST", "file already exists"),
        io::ErrorKind::PermissionDenied => ("EACCES", "permission denied"),
        io::ErrorKind::IsADirectory => ("EISDIR", "illegal operation on a directory"),
        io::ErrorKind::NotADirectory => ("ENOTDIR", "not a directory"),
        io::ErrorKind::DirectoryNotEmpty => ("ENOTEMPTY", "directory not empty"),
        io::ErrorKind::ResourceBusy => ("EBUSY", "resource busy or locked"),
        io::ErrorKind::StorageFull => ("ENOSPC", "no space left on device"),
        io::ErrorKind::FileTooLarge => ("EFBIG", "file too large"),
        _ => ("EIO", "i/o error"),
    };
    JsErrorBox::generic(format!("{code}: {text}, {operation} '{path}'"))
}

/// Calls `operation` with the files of the script.
fn with_files<T>(state: &OpState, operation: impl FnOnce(&mut Files) -> T) -> T {
    operation(&mut state.borrow::<Rc<Host>>().files.borrow_mut())
}

/// Returns the path of the directory. Playwright also calls this while the snapshot is created, and
/// ignores the result then.
#[op2]
#[string]
pub(crate) fn op_scratch_path(state: &mut OpState) -> String {
    state.try_borrow::<Rc<Host>>().map_or_else(
        || "/".to_owned(),
        |host| host.files.borrow().path().to_string_lossy().into_owned(),
    )
}

#[op2]
#[buffer]
pub(crate) fn op_file_read(
    state: &mut OpState,
    #[string] path: &str,
) -> Result<Vec<u8>, JsErrorBox> {
    with_files(state, |files| files.read(path))
}

#[op2(fast)]
pub(crate) fn op_file_write(
    state: &mut OpState,
    #[string] path: &str,
    #[buffer] bytes: &[u8],
    append: bool,
) -> Result<(), JsErrorBox> {
    with_files(state, |files| files.write(path, bytes, append))
}

/// Returns the kind (0 file, 1 directory, 2 other), the size, and the time of the last change in
/// milliseconds.
#[op2]
#[serde]
pub(crate) fn op_file_stat(
    state: &mut OpState,
    #[string] path: &str,
) -> Result<(u8, f64, f64), JsErrorBox> {
    with_files(state, |files| {
        let inside = files.resolve("stat", path)?;
        let metadata = files
            .directory
            .metadata(inside)
            .map_err(|err| node_error(&err, "stat", path))?;
        let kind = match (metadata.is_file(), metadata.is_dir()) {
            (true, _) => 0,
            (_, true) => 1,
            _ => 2,
        };
        let modified = metadata
            .modified()
            .ok()
            .and_then(|time| time.into_std().duration_since(UNIX_EPOCH).ok())
            .map_or(0.0, |since| since.as_secs_f64() * 1000.0);
        Ok((kind, metadata.len() as f64, modified.trunc()))
    })
}

#[op2]
#[serde]
pub(crate) fn op_file_list(
    state: &mut OpState,
    #[string] path: &str,
) -> Result<Vec<String>, JsErrorBox> {
    with_files(state, |files| {
        let inside = files.resolve("scandir", path)?;
        let list = || -> io::Result<Vec<String>> {
            let mut names = Vec::new();
            for entry in files.directory.read_dir(inside)? {
                names.push(entry?.file_name().to_string_lossy().into_owned());
            }
            names.sort();
            Ok(names)
        };
        list().map_err(|err| node_error(&err, "scandir", path))
    })
}

#[op2(fast)]
pub(crate) fn op_file_remove(
    state: &mut OpState,
    #[string] path: &str,
    recursive: bool,
) -> Result<(), JsErrorBox> {
    with_files(state, |files| files.remove(path, recursive))
}

#[op2(fast)]
pub(crate) fn op_file_make_directory(
    state: &mut OpState,
    #[string] path: &str,
) -> Result<(), JsErrorBox> {
    with_files(state, |files| files.make_directory(path))
}

#[op2(fast)]
pub(crate) fn op_file_rename(
    state: &mut OpState,
    #[string] from: &str,
    #[string] to: &str,
) -> Result<(), JsErrorBox> {
    with_files(state, |files| files.rename(from, to))
}

#[op2(fast)]
pub(crate) fn op_file_copy(
    state: &mut OpState,
    #[string] from: &str,
    #[string] to: &str,
) -> Result<(), JsErrorBox> {
    with_files(state, |files| files.copy(from, to))
}

#[cfg(test)]
mod tests;

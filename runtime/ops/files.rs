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
    /// The remaining quota, without the downloads: those come and go outside this process.
    remaining_bytes: u64,
    remaining_entries: usize,
}

impl Files {
    pub(crate) fn open(scratch: &Path, scratch_mb: u32) -> io::Result<Self> {
        Ok(Files {
            path: scratch.canonicalize()?,
            directory: Dir::open_ambient_dir(scratch, cap_std::ambient_authority())?,
            remaining_bytes: u64::from(scratch_mb) << 20,
            remaining_entries: MAX_ENTRIES,
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
        let directory = &self.directory;
        let before = match directory.metadata(&inside) {
            Ok(metadata) => Some(metadata.len()),
            Err(err) if err.kind() == io::ErrorKind::NotFound => None,
            Err(err) => return Err(fail(err)),
        };
        let freed = if append { 0 } else { before.unwrap_or(0) };
        self.reserve(&inside, path, bytes.len() as u64, freed, before.is_none())?;
        let mut options = OpenOptions::new();
        options
            .create(true)
            .write(true)
            .append(append)
            .truncate(!append);
        let mut file: File = self.directory.open_with(&inside, &options).map_err(fail)?;
        file.write_all(bytes).map_err(fail)
    }

    /// Charges a write of `bytes` that replaces `freed` bytes, or returns a quota error.
    fn reserve(
        &mut self,
        inside: &Path,
        path: &str,
        bytes: u64,
        freed: u64,
        new_entry: bool,
    ) -> FileResult<()> {
        let downloads = self.downloads();
        let available = (self.remaining_bytes + freed).saturating_sub(downloads.bytes);
        let reason = if bytes > available {
            format!("{available} bytes are available")
        } else if new_entry && self.remaining_entries <= downloads.entries {
            format!("the limit of {MAX_ENTRIES} files is reached")
        } else {
            if counts_towards_quota(inside) {
                self.remaining_bytes = self.remaining_bytes + freed - bytes;
                self.remaining_entries -= usize::from(new_entry);
            }
            return Ok(());
        };
        Err(JsErrorBox::generic(format!(
            "EDQUOT: disk quota exceeded, write '{path}': {reason}"
        )))
    }

    /// Returns the current size of the downloads.
    fn downloads(&self) -> Usage {
        Usage::beneath(&self.directory, Path::new(DOWNLOADS)).unwrap_or_default()
    }

    /// Returns `freed` to the quota.
    fn credit(&mut self, freed: Usage) {
        self.remaining_bytes += freed.bytes;
        self.remaining_entries += freed.entries;
    }

    /// Deducts `used` from the quota.
    fn charge(&mut self, used: Usage) {
        self.remaining_bytes = self.remaining_bytes.saturating_sub(used.bytes);
        self.remaining_entries = self.remaining_entries.saturating_sub(used.entries);
    }

    fn copy(&mut self, from: &str, to: &str) -> FileResult<()> {
        // Reading is bounded by MAX_READ_SIZE; the write enforces the quota.
        let bytes = self.read(from)?;
        self.write(to, &bytes, false)
    }

    fn remove(&mut self, path: &str, recursive: bool) -> FileResult<()> {
        let inside = self.resolve("unlink", path)?;
        let fail = |err| node_error(&err, "unlink", path);
        let directory = &self.directory;
        let freed = Usage::of(directory, &inside).map_err(fail)?;
        let metadata = directory.symlink_metadata(&inside).map_err(fail)?;
        match (metadata.is_dir(), recursive) {
            (true, true) => directory.remove_dir_all(&inside),
            (true, false) => directory.remove_dir(&inside),
            (false, _) => directory.remove_file(&inside),
        }
        .map_err(fail)?;
        if counts_towards_quota(&inside) {
            self.credit(freed);
        }
        Ok(())
    }

    fn make_directory(&mut self, path: &str) -> FileResult<()> {
        let inside = self.resolve("mkdir", path)?;
        let missing = inside
            .ancestors()
            .filter(|parent| !parent.as_os_str().is_empty() && !self.directory.exists(parent))
            .count();
        if missing
            > self
                .remaining_entries
                .saturating_sub(self.downloads().entries)
        {
            self.remaining_entries = 0;
            return self.reserve(&inside, path, 0, 0, true);
        }
        if counts_towards_quota(&inside) {
            self.remaining_entries -= missing;
        }
        self.directory
            .create_dir_all(&inside)
            .map_err(|err| node_error(&err, "mkdir", path))
    }

    fn rename(&mut self, from: &str, to: &str) -> FileResult<()> {
        let (source, target) = (self.resolve("rename", from)?, self.resolve("rename", to)?);
        let fail = |err| node_error(&err, "rename", from);
        let directory = &self.directory;
        let moved = Usage::of(directory, &source).map_err(fail)?;
        // A replaced target frees its space, unless it is the source itself.
        let replaced = match Usage::of(directory, &target) {
            Ok(usage) if source != target => usage,
            _ => Usage::default(),
        };
        directory
            .rename(&source, directory, &target)
            .map_err(fail)?;
        match (counts_towards_quota(&source), counts_towards_quota(&target)) {
            (true, false) => self.credit(moved),
            (false, true) => self.charge(moved),
            _ => {}
        }
        if counts_towards_quota(&target) {
            self.credit(replaced);
        }
        Ok(())
    }
}

/// Whether this process keeps account of a path. Downloads are measured instead.
fn counts_towards_quota(inside: &Path) -> bool {
    !inside.starts_with(DOWNLOADS)
}

/// The space that files take.
#[derive(Clone, Copy, Default)]
struct Usage {
    bytes: u64,
    entries: usize,
}

impl Usage {
    /// Returns the usage of a file, or of a directory with its content.
    fn of(directory: &Dir, path: &Path) -> io::Result<Usage> {
        let metadata = directory.symlink_metadata(path)?;
        if !metadata.is_dir() {
            return Ok(Usage {
                bytes: metadata.len(),
                entries: 1,
            });
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

//! Validation of the paths and link targets of an archive's entries.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Component, Path, PathBuf},
};

use super::UnpackError;

/// The limit on an entry's path and on a link's target, in bytes.
const MAX_PATH_BYTES: usize = 4095;
/// The limit on an entry's path, in components.
const MAX_DEPTH: usize = 128;

/// Returns the normalized path of an entry that must not be the root directory.
pub(super) fn entry_path(name: &[u8]) -> Result<PathBuf, UnpackError> {
    entry_or_root_path(name)?
        .ok_or_else(|| UnpackError::entry(&String::from_utf8_lossy(name), "has no name"))
}

/// Returns the normalized path of an entry, relative to the root directory; `None` for the root
/// itself. Rejects paths that could lead out of the root.
pub(super) fn entry_or_root_path(name: &[u8]) -> Result<Option<PathBuf>, UnpackError> {
    let invalid = |message| Err(UnpackError::entry(&String::from_utf8_lossy(name), message));
    if name.len() > MAX_PATH_BYTES {
        return invalid("has too long a name");
    }
    if name.contains(&0) {
        return invalid("has a NUL in its name");
    }
    let mut path = PathBuf::new();
    for component in Path::new(OsStr::from_bytes(name)).components() {
        match component {
            Component::Normal(name) => path.push(name),
            Component::CurDir => {}
            Component::ParentDir => return invalid("has `..` in its name"),
            Component::RootDir | Component::Prefix(_) => return invalid("has an absolute name"),
        }
    }
    if path.components().count() > MAX_DEPTH {
        return invalid("is nested too deep");
    }
    Ok((!path.as_os_str().is_empty()).then_some(path))
}

/// Returns whether a link's target is acceptable.
pub(super) fn is_valid_link_target(link: &Path, target: &[u8]) -> bool {
    !target.is_empty()
        && target.len() <= MAX_PATH_BYTES
        && !target.contains(&0)
        && stays_inside(link, Path::new(OsStr::from_bytes(target)))
}

/// Returns whether a relative link target stays below the root, whatever entries exist: `..` is
/// allowed only at the start, where it leads up from the link's own directory. After a name it
/// would lead up from wherever that name leads, if it is a link.
fn stays_inside(link: &Path, target: &Path) -> bool {
    let mut depth = link.components().count() - 1;
    let mut has_name = false;
    for component in target.components() {
        match component {
            Component::Normal(_) => has_name = true,
            Component::CurDir => {}
            Component::ParentDir if depth > 0 && !has_name => depth -= 1,
            _ => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_path_is_normalized_and_stays_below_root() {
        for (name, path) in [
            ("a", "a"),
            ("./a//b/", "a/b"),
            ("a/./b", "a/b"),
            ("..a", "..a"),
        ] {
            assert_eq!(entry_path(name.as_bytes()).unwrap(), Path::new(path));
        }
        let (long, deep) = ("x".repeat(MAX_PATH_BYTES + 1), "d/".repeat(MAX_DEPTH + 1));
        for invalid in ["", ".", "/a", "..", "a/../b", "a/..", "a\0", &long, &deep] {
            assert!(entry_path(invalid.as_bytes()).is_err(), "{invalid}");
        }
    }

    #[test]
    fn link_target_is_accepted_only_if_it_stays_inside() {
        for (link, target, is_inside) in [
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
            assert_eq!(stays_inside(Path::new(link), Path::new(target)), is_inside);
        }
    }
}

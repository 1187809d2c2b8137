//! Files and directories, on the wire.

use std::path::{Path, PathBuf};

use deserr::{DeserializeError, Deserr, IntoValue, Value, ValuePointerRef};
use serde::Serialize;
use utoipa::ToSchema;

use super::{field::from_text, ids::WatchId};

/// The longest path in bytes: the kernel takes no longer one.
pub const MAX_PATH: usize = 4095;

/// An absolute path on the browser's host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestPath(PathBuf);

impl GuestPath {
    /// # Errors
    /// What is wrong with the path.
    pub fn parse(text: String) -> Result<Self, String> {
        if !text.starts_with('/') {
            return Err("must be absolute".to_owned());
        }
        if text.len() > MAX_PATH {
            return Err(format!("may have {MAX_PATH} bytes at most"));
        }
        if text.contains('\0') {
            return Err("must not contain a NUL character".to_owned());
        }
        Ok(GuestPath(text.into()))
    }

    #[must_use]
    pub fn as_path(&self) -> &Path {
        &self.0
    }
}

impl<E: DeserializeError> Deserr<E> for GuestPath {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        from_text(value, location, GuestPath::parse)
    }
}

/// Which directory to watch.
#[derive(Debug, Deserr, ToSchema)]
pub struct WatchRequest {
    /// An absolute path.
    #[schema(value_type = String, max_length = 4095, example = "/tmp")]
    pub path: GuestPath,
    /// Whether all directories below it are watched as well.
    #[deserr(default)]
    #[schema(value_type = Option<bool>, default = false)]
    pub recursive: Option<bool>,
}

/// A watch that has begun.
#[derive(Debug, Serialize, ToSchema)]
pub struct WatchCreated {
    pub watch_id: WatchId,
}

/// One change in a watched directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct WatchEvent {
    #[serde(rename = "type")]
    pub kind: WatchEventKind,
    /// Absent with `OVERFLOW`. A name that is no UTF-8 is shown as well as it can be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The last part of `path`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_dir: Option<bool>,
    /// With `RENAME`: what it is called now, where it has not gone out of sight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_path: Option<String>,
    /// With `CREATE`: what it was called, where it was moved here from within the watched directories.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old_path: Option<String>,
    /// With `OVERFLOW`: how many events were dropped, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missed: Option<u64>,
}

/// What happened. A move is a `RENAME` of the old path and a `CREATE` of the new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum WatchEventKind {
    Create,
    Write,
    Delete,
    Rename,
    /// Events were lost: look at the directory itself.
    Overflow,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_absolute_and_bounded() {
        let longest = format!("/{}", "x".repeat(MAX_PATH - 1));
        for good in ["/", "/tmp", "/a/../b", "/ü", longest.as_str()] {
            assert!(GuestPath::parse(good.to_owned()).is_ok(), "{good}");
        }
        let too_long = format!("{longest}x");
        for bad in ["", "tmp", "./tmp", "~", "/a\0b", too_long.as_str()] {
            assert!(GuestPath::parse(bad.to_owned()).is_err(), "{bad}");
        }
    }
}

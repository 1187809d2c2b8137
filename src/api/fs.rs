//! Files and directories.

use std::path::{Path, PathBuf};

use deserr::{DeserializeError, Deserr, IntoValue, Value, ValuePointerRef};
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};

use super::{field::from_text, ids::WatchId, time::Timestamp};

/// The longest path that the kernel accepts, in bytes.
pub const MAX_PATH: usize = 4095;

/// An absolute path on the browser's host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestPath(PathBuf);

impl GuestPath {
    /// Parses an absolute path.
    ///
    /// # Errors
    /// Returns a message about the invalid path.
    pub fn parse(text: String) -> Result<Self, String> {
        if !text.starts_with('/') {
            return Err("must be an absolute path".to_owned());
        }
        if text.len() > MAX_PATH {
            return Err(format!("must have at most {MAX_PATH} bytes"));
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

/// Permission bits in octal: `644`, `0755`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mode(u32);

impl Mode {
    /// Parses three or four octal digits.
    ///
    /// # Errors
    /// Returns a message about the invalid text.
    pub fn parse(text: &str) -> Result<Self, String> {
        let is_octal =
            (3..=4).contains(&text.len()) && text.bytes().all(|b| (b'0'..=b'7').contains(&b));
        match u32::from_str_radix(text, 8) {
            Ok(bits) if is_octal => Ok(Mode(bits)),
            _ => Err("must be three or four octal digits, such as 644".to_owned()),
        }
    }

    #[must_use]
    pub fn bits(self) -> u32 {
        self.0
    }
}

impl<E: DeserializeError> Deserr<E> for Mode {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        from_text(value, location, |text| Mode::parse(&text))
    }
}

/// The name or number of a user or group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account(String);

impl Account {
    /// Bytes of the longest name that Linux accepts. Numbers are shorter.
    const MAX_LEN: usize = 32;

    fn parse(text: String) -> Result<Self, String> {
        if text.is_empty() || text.len() > Self::MAX_LEN || text.contains('\0') {
            return Err(format!("must have 1 to {} bytes", Self::MAX_LEN));
        }
        Ok(Account(text))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<E: DeserializeError> Deserr<E> for Account {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        from_text(value, location, Account::parse)
    }
}

/// The path of a file or directory.
#[derive(Debug, Deserr, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct PathQuery {
    /// Absolute path, at most 4095 bytes.
    #[param(value_type = String, max_length = 4095, example = "/tmp/report.txt")]
    pub path: GuestPath,
}

/// The target of a written file.
#[derive(Debug, Deserr, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct WriteQuery {
    /// Absolute path, at most 4095 bytes. The directory must exist.
    #[param(value_type = String, max_length = 4095, example = "/tmp/report.txt")]
    pub path: GuestPath,
    /// Permissions in octal. By default those of the replaced file, or 644 for a new file.
    #[deserr(default)]
    #[param(value_type = Option<String>, pattern = "^[0-7]{3,4}$", example = "644")]
    pub mode: Option<Mode>,
}

/// The compression level of an archive, from 1 (fastest) to 19 (smallest).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompressionLevel(u8);

impl CompressionLevel {
    const DEFAULT: u8 = 3;

    fn parse(text: &str) -> Result<Self, String> {
        let level = match text {
            "fastest" => Some(1),
            "default" => Some(Self::DEFAULT),
            "better" => Some(9),
            "best" => Some(19),
            digits if digits.bytes().all(|b| b.is_ascii_digit()) => digits.parse().ok(),
            _ => None,
        };
        level
            .filter(|level| (1..=19).contains(level))
            .map(CompressionLevel)
            .ok_or_else(|| {
                "must be a number from 1 to 19, or fastest, default, better or best".to_owned()
            })
    }

    #[must_use]
    pub fn number(self) -> u8 {
        self.0
    }
}

impl Default for CompressionLevel {
    fn default() -> Self {
        CompressionLevel(Self::DEFAULT)
    }
}

impl<E: DeserializeError> Deserr<E> for CompressionLevel {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        from_text(value, location, |text| CompressionLevel::parse(&text))
    }
}

/// The directory to archive.
#[derive(Debug, Deserr, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct DownloadQuery {
    /// Absolute path, at most 4095 bytes.
    #[param(value_type = String, max_length = 4095, example = "/tmp/reports")]
    pub path: GuestPath,
    /// Compression level from 1 (fastest) to 19 (smallest), or `fastest` (1), `default` (3),
    /// `better` (9), `best` (19).
    #[deserr(default)]
    #[param(value_type = Option<String>, default = "3", pattern = "^([1-9]|1[0-9]|fastest|default|better|best)$")]
    pub compression_level: Option<CompressionLevel>,
}

/// The path of a file or directory.
#[derive(Debug, Deserr, ToSchema)]
pub struct PathRequest {
    /// Absolute path, at most 4095 bytes.
    #[schema(value_type = String, max_length = 4095)]
    pub path: GuestPath,
}

/// A directory to create.
#[derive(Debug, Deserr, ToSchema)]
pub struct CreateDirectoryRequest {
    /// Absolute path, at most 4095 bytes. Missing parents are created.
    #[schema(value_type = String, max_length = 4095)]
    pub path: GuestPath,
    /// Permissions of the directory in octal.
    #[deserr(default)]
    #[schema(value_type = Option<String>, pattern = "^[0-7]{3,4}$", default = "755")]
    pub mode: Option<Mode>,
}

/// Files to upload: a content and a path per file, numbered from 0.
#[derive(Debug, ToSchema)]
pub struct UploadForm {
    /// Content of the first file. The next files are `files.1.file`, `files.2.file` and so on.
    #[schema(rename = "files.0.file", value_type = String, format = Binary)]
    pub file: (),
    /// Absolute path of the first file, at most 4095 bytes.
    #[schema(
        rename = "files.0.dest_path",
        max_length = 4095,
        example = "/tmp/report.txt"
    )]
    pub dest_path: String,
}

/// A ZIP archive to upload and extract.
#[derive(Debug, ToSchema)]
pub struct UploadZipForm {
    /// The archive.
    #[schema(value_type = String, format = Binary)]
    pub zip_file: (),
    /// Absolute path, at most 4095 bytes.
    #[schema(max_length = 4095, example = "/tmp/site")]
    pub dest_path: String,
}

/// A file or directory to move.
#[derive(Debug, Deserr, ToSchema)]
pub struct MoveRequest {
    /// Absolute path, at most 4095 bytes.
    #[schema(value_type = String, max_length = 4095)]
    pub src_path: GuestPath,
    /// New absolute path, at most 4095 bytes. An existing file is replaced.
    #[schema(value_type = String, max_length = 4095)]
    pub dest_path: GuestPath,
}

/// The new permissions of a file or directory.
#[derive(Debug, Deserr, ToSchema)]
pub struct PermissionsRequest {
    /// Absolute path, at most 4095 bytes.
    #[schema(value_type = String, max_length = 4095)]
    pub path: GuestPath,
    /// Permissions in octal.
    #[schema(value_type = String, pattern = "^[0-7]{3,4}$")]
    pub mode: Mode,
    /// Name or number of the new owner.
    #[deserr(default)]
    #[schema(value_type = Option<String>, max_length = 32)]
    pub owner: Option<Account>,
    /// Name or number of the new group.
    #[deserr(default)]
    #[schema(value_type = Option<String>, max_length = 32)]
    pub group: Option<Account>,
}

/// A file, directory or other entry of the file system. A symbolic link is not followed.
#[derive(Debug, Serialize, ToSchema)]
pub struct FileInfo {
    /// The last part of `path`.
    pub name: String,
    pub path: String,
    pub is_dir: bool,
    /// Type and permissions in the format of `ls -l`.
    #[schema(example = "drwxr-xr-x")]
    pub mode: String,
    pub size_bytes: u64,
    pub mod_time: Timestamp,
}

/// The directory to watch.
#[derive(Debug, Deserr, ToSchema)]
pub struct WatchRequest {
    /// Absolute path, at most 4095 bytes.
    #[schema(value_type = String, max_length = 4095, example = "/tmp")]
    pub path: GuestPath,
    /// Watch all directories below it as well.
    #[deserr(default)]
    #[schema(value_type = Option<bool>, default = false)]
    pub recursive: Option<bool>,
}

/// A new watch.
#[derive(Debug, Serialize, ToSchema)]
pub struct WatchResponse {
    pub watch_id: WatchId,
}

/// A change in a watched directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct WatchEvent {
    #[serde(rename = "type")]
    pub kind: WatchEventKind,
    /// Path of the entry. Absent with `OVERFLOW`. Invalid UTF-8 is replaced by U+FFFD.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The last part of `path`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_dir: Option<bool>,
    /// With `RENAME`: the new path. Absent if it lies outside the watched directories.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_path: Option<String>,
    /// With `CREATE`: the old path, if the entry was moved within the watched directories.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old_path: Option<String>,
    /// With `OVERFLOW`: number of dropped events, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missed: Option<u64>,
}

/// The kind of a change. A move is a `RENAME` of the old path and a `CREATE` of the new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum WatchEventKind {
    Create,
    Write,
    Delete,
    Rename,
    /// Events were lost: list the directory again.
    Overflow,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mode_is_octal() {
        for (text, bits) in [
            ("644", 0o644),
            ("0755", 0o755),
            ("4755", 0o4755),
            ("000", 0),
        ] {
            assert_eq!(Mode::parse(text).map(Mode::bits), Ok(bits));
        }
        for bad in ["", "64", "00644", "648", "+64", "rwx", "0o64", "-644"] {
            assert!(Mode::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn compression_level_is_a_name_or_a_number() {
        for (text, level) in [("1", 1), ("19", 19), ("default", 3), ("best", 19)] {
            let parsed = CompressionLevel::parse(text).map(CompressionLevel::number);
            assert_eq!(parsed, Ok(level));
        }
        for bad in ["", "0", "20", "-1", "+3", "3.0", "Best", "259"] {
            assert!(CompressionLevel::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn path_is_absolute_and_bounded() {
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

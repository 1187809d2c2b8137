//! Files and directories, on the wire.

use std::path::{Path, PathBuf};

use deserr::{DeserializeError, Deserr, IntoValue, Value, ValuePointerRef};
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};

use super::{field::from_text, ids::WatchId, time::Timestamp};

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

/// Permission bits, written in octal: `644`, `0755`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mode(u32);

impl Mode {
    /// # Errors
    /// What is wrong with the text.
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

/// A user's or group's name, or its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account(String);

impl Account {
    /// The longest name that Linux takes, and no number is longer.
    const MAX_LEN: usize = 32;

    fn parse(text: String) -> Result<Self, String> {
        if text.is_empty() || text.len() > Self::MAX_LEN || text.contains('\0') {
            return Err(format!(
                "must be a name of 1 to {} characters",
                Self::MAX_LEN
            ));
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

/// A path in the query.
#[derive(Debug, Deserr, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct PathQuery {
    /// An absolute path.
    #[param(value_type = String, max_length = 4095, example = "/tmp/report.txt")]
    pub path: GuestPath,
}

/// Where a file is written, and with which permissions.
#[derive(Debug, Deserr, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct WriteQuery {
    /// An absolute path. Its directory must exist.
    #[param(value_type = String, max_length = 4095, example = "/tmp/report.txt")]
    pub path: GuestPath,
    /// Octal permissions; those of the file that is replaced where nothing is said, else 644.
    #[deserr(default)]
    #[param(value_type = Option<String>, pattern = "^[0-7]{3,4}$", example = "644")]
    pub mode: Option<Mode>,
}

/// How small an archive is to be made, from 1 (fastest) to 19 (smallest).
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
            .ok_or_else(|| "must be 1 to 19, fastest, default, better or best".to_owned())
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

/// Which directory is archived, and how small.
#[derive(Debug, Deserr, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct DownloadQuery {
    /// An absolute path.
    #[param(value_type = String, max_length = 4095, example = "/tmp/report.txt")]
    pub path: GuestPath,
    /// 1 (fastest) to 19 (smallest); or `fastest` (1), `default` (3), `better` (9), `best` (19).
    #[deserr(default)]
    #[param(value_type = Option<String>, default = "3", pattern = "^([1-9]|1[0-9]|fastest|default|better|best)$")]
    pub compression_level: Option<CompressionLevel>,
}

/// A path in the body.
#[derive(Debug, Deserr, ToSchema)]
pub struct PathRequest {
    /// An absolute path.
    #[schema(value_type = String, max_length = 4095)]
    pub path: GuestPath,
}

/// A directory to make.
#[derive(Debug, Deserr, ToSchema)]
pub struct CreateDirectoryRequest {
    /// An absolute path; missing parents are made as well.
    #[schema(value_type = String, max_length = 4095)]
    pub path: GuestPath,
    /// Octal permissions of the directory itself.
    #[deserr(default)]
    #[schema(value_type = Option<String>, pattern = "^[0-7]{3,4}$", default = "755")]
    pub mode: Option<Mode>,
}

/// Files to upload: two parts for each, of the same number.
#[derive(Debug, ToSchema)]
pub struct UploadForm {
    /// The content of the first file; `files.1.file` is that of the second, and so on.
    #[schema(rename = "files.0.file", value_type = String, format = Binary)]
    pub file: (),
    /// Its absolute path.
    #[schema(rename = "files.0.dest_path", max_length = 4095, example = "/tmp/report.txt")]
    pub dest_path: String,
}

/// An archive to upload, and where it is unpacked.
#[derive(Debug, ToSchema)]
pub struct UploadZipForm {
    #[schema(value_type = String, format = Binary)]
    pub zip_file: (),
    /// An absolute path.
    #[schema(max_length = 4095, example = "/tmp/site")]
    pub dest_path: String,
}

/// What is to be called otherwise.
#[derive(Debug, Deserr, ToSchema)]
pub struct MoveRequest {
    /// An absolute path.
    #[schema(value_type = String, max_length = 4095)]
    pub src_path: GuestPath,
    /// An absolute path. A file that is there is replaced.
    #[schema(value_type = String, max_length = 4095)]
    pub dest_path: GuestPath,
}

/// Who may do what with a file or directory.
#[derive(Debug, Deserr, ToSchema)]
pub struct PermissionsRequest {
    /// An absolute path.
    #[schema(value_type = String, max_length = 4095)]
    pub path: GuestPath,
    /// Octal permissions.
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

/// A file, a directory, or what else has a name. Of a symbolic link, the link itself.
#[derive(Debug, Serialize, ToSchema)]
pub struct FileInfo {
    /// The last part of `path`.
    pub name: String,
    pub path: String,
    pub is_dir: bool,
    /// As `ls -l` writes it.
    #[schema(example = "drwxr-xr-x")]
    pub mode: String,
    pub size_bytes: u64,
    pub mod_time: Timestamp,
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
    fn a_mode_is_octal() {
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
    fn a_compression_level_has_a_name_or_a_number() {
        for (text, level) in [("1", 1), ("19", 19), ("default", 3), ("best", 19)] {
            let parsed = CompressionLevel::parse(text).map(CompressionLevel::number);
            assert_eq!(parsed, Ok(level));
        }
        for bad in ["", "0", "20", "-1", "+3", "3.0", "Best", "259"] {
            assert!(CompressionLevel::parse(bad).is_err(), "{bad}");
        }
    }

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

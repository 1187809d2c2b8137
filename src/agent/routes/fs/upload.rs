//! `POST /fs/upload`.

use axum::extract::State;
use http::StatusCode;

use super::{
    FULL_RETRY_DELAY, TAG, blocking, file_error,
    receive::{read_path, receive_part},
};
use crate::{
    agent::fs::upload::{MAX_FILES, Upload, UploadError, Uploads},
    api::{ErrorBody, agent::Done, fs::UploadForm},
    http::{ApiError, ApiResult, FieldErrors, Json, Multipart, Part},
};

/// Upload files
///
/// Each file is two parts with the same number N: `files.N.file`, its content, and
/// `files.N.dest_path`, its absolute path, in any order; sending the path first avoids a copy of
/// the content. `files[N].file`, `files[N][file]` and `files[][file]` are other forms of the same
/// name. A request may have 1,000 files of up to 64 GiB each.
///
/// All files appear once the request is complete, each atomically; an invalid or interrupted
/// request changes nothing. If a file then cannot be put in place, for instance over a mount point,
/// the error names it, and the files with lower numbers are in place. A replaced file keeps its
/// permissions and owner, a new one gets mode 644. Missing directories are created with mode 755;
/// they appear together with their files. A symbolic link is followed: its target is written, or
/// created if it is missing. In a sticky directory such as `/tmp`, links and files of other users
/// are rejected. Other file parts, and other parts whose names start with `files`, are rejected;
/// other text parts are ignored.
///
/// Content is stored beside its destination, or in the agent's state directory until its path has
/// arrived: the disk needs room for all of it, twice for content that precedes its path. A body
/// without progress for 30 seconds is rejected.
#[utoipa::path(
    post,
    path = "/fs/upload",
    operation_id = "upload_files",
    tag = TAG,
    request_body(content = UploadForm, content_type = "multipart/form-data"),
    responses(
        (status = 201, body = Done),
        (status = 400, body = ErrorBody, description = "A part is missing, duplicate or not an absolute path, or a destination is not a regular file or is below another one"),
        (status = 403, body = ErrorBody, description = "Permission denied, or a destination is among the agent's own files"),
        (status = 404, body = ErrorBody, description = "The directory cannot be created: a dangling link leads there, or its file system has no files"),
        (status = 408, body = ErrorBody, description = "The body made no progress for 30 s"),
        (status = 413, body = ErrorBody, description = "A file exceeds 64 GiB, or the space on the disk"),
        (status = 415, body = ErrorBody, description = "The body is not multipart/form-data"),
        (status = 429, body = ErrorBody, description = "The uploads in progress write to too many directories; nothing was changed"),
    )
)]
pub(crate) async fn upload(
    State(uploads): State<Uploads>,
    mut parts: Multipart,
) -> ApiResult<(StatusCode, Json<Done>)> {
    let mut reader = UploadReader {
        upload: uploads.start(),
        names: PartNames::default(),
        errors: UploadErrors::default(),
    };
    while let Some(part) = parts.next_part().await? {
        reader = reader.read_part(part).await?;
    }
    reader.publish().await?;
    Ok((StatusCode::CREATED, Json(Done { ok: true })))
}

/// Reads the parts of a request into an [`Upload`].
struct UploadReader {
    upload: Upload,
    names: PartNames,
    errors: UploadErrors,
}

impl UploadReader {
    async fn read_part(mut self, part: Part<'_>) -> ApiResult<Self> {
        let Some((number, kind)) = self.names.parse(part.name()) else {
            // The client may have meant a file, which must not be lost silently.
            if part.is_file() || part.name().starts_with("files") {
                let reason = "must be named files.N.file or files.N.dest_path";
                self.errors.fields.add(part.name(), reason);
            }
            part.skip().await?;
            return Ok(self);
        };
        if !self.upload.has_room_for(number) {
            let reason = format!("exceeds the limit of {MAX_FILES} files");
            return Err(ApiError::bad_field(kind.field(number), reason));
        }
        match kind {
            PartKind::Path => self.read_path(part, number).await,
            // The request will be rejected: its other content is not needed.
            PartKind::File if !self.errors.fields.is_empty() => {
                part.skip().await?;
                self.upload.mark_content_invalid(number);
                Ok(self)
            }
            PartKind::File => self.read_content(part, number).await,
        }
    }

    async fn read_path(mut self, part: Part<'_>, number: u32) -> ApiResult<Self> {
        let field = PartKind::Path.field(number);
        match read_path(part).await? {
            Err(reason) => {
                self.errors.fields.add(field, reason);
                self.upload.mark_path_invalid(number);
            }
            Ok(path) => {
                let result;
                (self.upload, result) = blocking_with(self.upload, move |upload| {
                    upload.set_destination(number, path.as_path())
                })
                .await?;
                // Repeated for each file, it would be reported as an invalid request.
                if let Err(error @ UploadError::DirectoryLimit(_)) = result {
                    return Err(upload_error(&field, error));
                }
                self.errors.collect(field, result);
            }
        }
        Ok(self)
    }

    async fn read_content(mut self, part: Part<'_>, number: u32) -> ApiResult<Self> {
        let field = PartKind::File.field(number);
        let result;
        (self.upload, result) =
            blocking_with(self.upload, move |upload| upload.create_content(number)).await?;
        match self.errors.collect(field.clone(), result) {
            Some(file) => {
                receive_part(part, file, &field).await?;
                let result;
                (self.upload, result) =
                    blocking_with(self.upload, move |upload| upload.finish_content(number)).await?;
                self.errors.collect(field, result);
            }
            None => part.skip().await?,
        }
        Ok(self)
    }

    /// Puts all files in place, or returns the errors of the request.
    async fn publish(mut self) -> ApiResult<()> {
        for (number, error) in self.upload.validate() {
            let kind = match error {
                UploadError::MissingContent => PartKind::File,
                _ => PartKind::Path,
            };
            self.errors.collect::<()>(kind.field(number), Err(error));
        }
        if self.upload.is_empty() {
            self.errors.fields.add("files.0.file", "is required");
            self.errors.fields.add("files.0.dest_path", "is required");
        }
        self.errors.into_result()?;
        let upload = self.upload;
        blocking(move || upload.publish())
            .await?
            .map_err(|(number, error)| upload_error(&PartKind::Path.field(number), error))
    }
}

/// Runs blocking `work` on the upload, off the server's own threads.
async fn blocking_with<T: Send + 'static>(
    mut upload: Upload,
    work: impl FnOnce(&mut Upload) -> T + Send + 'static,
) -> ApiResult<(Upload, T)> {
    blocking(move || {
        let result = work(&mut upload);
        (upload, result)
    })
    .await
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PartKind {
    File,
    Path,
}

impl PartKind {
    fn field(self, number: u32) -> String {
        let name = match self {
            PartKind::File => "file",
            PartKind::Path => "dest_path",
        };
        format!("files.{number}.{name}")
    }
}

/// Parses the names of parts. Parts without a number are numbered in their order.
#[derive(Debug, Default)]
struct PartNames {
    files: u32,
    paths: u32,
}

impl PartNames {
    /// Returns the number and kind of a part, or `None` if it does not belong to a file.
    fn parse(&mut self, name: &str) -> Option<(u32, PartKind)> {
        let rest = name.strip_prefix("files")?;
        let (number, rest) = match rest.strip_prefix('.') {
            Some(rest) => rest.split_once('.')?,
            None => {
                let (number, rest) = rest.strip_prefix('[')?.split_once(']')?;
                let inner = rest
                    .strip_prefix('[')
                    .and_then(|rest| rest.strip_suffix(']'));
                (number, inner.or_else(|| rest.strip_prefix('.'))?)
            }
        };
        let kind = match rest {
            "file" => PartKind::File,
            "dest_path" => PartKind::Path,
            _ => return None,
        };
        if number.is_empty() && name.starts_with("files[") {
            let count = match kind {
                PartKind::File => &mut self.files,
                PartKind::Path => &mut self.paths,
            };
            *count += 1;
            return Some((*count - 1, kind));
        }
        let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
        Some((number.parse().ok().filter(|_| is_number)?, kind))
    }
}

/// Collects all errors of a request.
#[derive(Debug, Default)]
struct UploadErrors {
    fields: FieldErrors,
    /// The first error of a file. If it is the only error, its status is that of the response.
    first_file_error: Option<ApiError>,
}

impl UploadErrors {
    /// Returns the value of `result`, or records its error.
    fn collect<T>(&mut self, field: String, result: Result<T, UploadError>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.fields.add(&field, error.to_string());
                if let UploadError::File(error) = error {
                    self.first_file_error
                        .get_or_insert(file_error(&field, error));
                }
                None
            }
        }
    }

    fn into_result(self) -> ApiResult<()> {
        match self.first_file_error {
            _ if self.fields.is_empty() => Ok(()),
            Some(error) if self.fields.count() == 1 => Err(error),
            _ => Err(self.fields.into()),
        }
    }
}

fn upload_error(field: &str, error: UploadError) -> ApiError {
    match error {
        UploadError::File(error) => file_error(field, error),
        UploadError::DirectoryLimit(_) => {
            ApiError::limit_exceeded(error.to_string(), FULL_RETRY_DELAY)
        }
        error => ApiError::bad_field(field, error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_names_are_parsed_in_four_forms() {
        let mut names = PartNames::default();
        for (name, number, kind) in [
            ("files.0.file", 0, PartKind::File),
            ("files.12.dest_path", 12, PartKind::Path),
            ("files[3].file", 3, PartKind::File),
            ("files[3][dest_path]", 3, PartKind::Path),
            ("files[][file]", 0, PartKind::File),
            ("files[][file]", 1, PartKind::File),
            ("files[][dest_path]", 0, PartKind::Path),
        ] {
            assert_eq!(names.parse(name), Some((number, kind)), "{name}");
        }
        for unknown in [
            "",
            "file",
            "files",
            "files.file",
            "files..file",
            "files.x.file",
            "files.+1.file",
            "files.0.name",
            "files[0]file",
            "files[0",
            "files.99999999999.file",
            "xfiles.0.file",
        ] {
            assert_eq!(names.parse(unknown), None, "{unknown}");
        }
    }
}

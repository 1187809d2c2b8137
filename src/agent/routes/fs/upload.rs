//! `POST /fs/upload`

use axum::extract::State;
use http::StatusCode;

use super::{TAG, blocking, receive::Receiving, refusal};
use crate::{
    agent::{
        Agent,
        fs::upload::{MAX_FILES, Upload, UploadError},
    },
    api::{
        ErrorBody,
        agent::Done,
        fs::{GuestPath, MAX_PATH, UploadForm},
    },
    http::{ApiError, ApiResult, FieldErrors, Json, Multipart},
};

/// Upload files
///
/// Each file is two parts of the same number N: `files.N.file`, its content, and `files.N.dest_path`, its absolute path; in any order, though a
/// path that comes first spares a copy. `files[N].file`, `files[N][file]` and `files[][file]` name the same. 1,000 files at most, of 64 GiB each.
///
/// All files appear once all of them have come whole, each in one step; a request that is wrong or breaks off changes nothing. Should one not be able
/// to appear then, such as over a file that is a mount point, the answer names it and those of lower numbers are there. A file that is replaced
/// keeps its permissions and owner, a new one gets 644. Their directories must exist. Where a path is a symbolic link, what it leads to is
/// written, or made where there is nothing; the link stays. Other parts that are files, or named as if of one, are refused; text parts are passed over.
/// What has come waits beside its place, or in the agent's state folder as long as its path has not come: the disk needs room for all of it, twice
/// for what came before its path. A body that stands still for 30 seconds is given up.
#[utoipa::path(
    post,
    path = "/fs/upload",
    operation_id = "upload_files",
    tag = TAG,
    request_body(content = UploadForm, content_type = "multipart/form-data"),
    responses(
        (status = 201, body = Done),
        (status = 400, body = ErrorBody, description = "a part is missing, there twice or no absolute path; or something that is no regular file is in its place"),
        (status = 403, body = ErrorBody, description = "a file may not be written"),
        (status = 404, body = ErrorBody, description = "there is no such directory"),
        (status = 408, body = ErrorBody, description = "nothing more of the body came for 30 seconds"),
        (status = 413, body = ErrorBody, description = "over 64 GiB, or more than the disk takes"),
        (status = 415, body = ErrorBody, description = "not multipart/form-data"),
    )
)]
pub async fn upload(
    State(agent): State<Agent>,
    mut parts: Multipart,
) -> ApiResult<(StatusCode, Json<Done>)> {
    let mut upload = Upload::new(agent.temp_files.clone(), &agent.config.state_dir.work());
    let mut names = Names::default();
    let mut problems = Problems::default();
    while let Some(mut part) = parts.next().await? {
        let Some((number, kind)) = names.read(part.name()) else {
            // What may be meant as a file must not be lost unnoticed.
            if part.is_file() || part.name().starts_with("files") {
                let what = "is no part of a file: see files.N.file and files.N.dest_path";
                problems.fields.add(part.name(), what);
            }
            part.skip().await?;
            continue;
        };
        let field = kind.field(number);
        if !upload.has_room_for(number) {
            let what = format!("{MAX_FILES} files may come at once");
            return Err(ApiError::bad_field(field, what));
        }
        match kind {
            Kind::Path => {
                let path = match part.text(MAX_PATH).await? {
                    Some(text) => GuestPath::parse(text),
                    None => Err(format!("must be UTF-8 of {MAX_PATH} bytes at most")),
                };
                let path = match path {
                    Ok(path) => path,
                    Err(what) => {
                        problems.fields.add(field, what);
                        upload.mark_path_invalid(number);
                        continue;
                    }
                };
                let placed;
                (upload, placed) = with(upload, move |upload| {
                    upload.set_destination(number, path.as_path())
                })
                .await?;
                problems.take(field, placed);
            }
            // It is no use any more.
            Kind::File if !problems.fields.is_empty() => {
                part.skip().await?;
                upload.mark_content_invalid(number);
            }
            Kind::File => {
                let file;
                (upload, file) = with(upload, move |upload| upload.create_content(number)).await?;
                let Some(file) = problems.take(field.clone(), file) else {
                    part.skip().await?;
                    continue;
                };
                let mut receiving = Receiving::new(file, field);
                while let Some(chunk) = part.chunk().await? {
                    receiving.write(&chunk).await?;
                }
                receiving.finish().await?;
            }
        }
    }
    for (number, problem) in upload.validate() {
        let kind = match problem {
            UploadError::MissingContent => Kind::File,
            _ => Kind::Path,
        };
        problems.take::<()>(kind.field(number), Err(problem));
    }
    if upload.is_empty() {
        problems.fields.add("files.0.file", "is required");
        problems.fields.add("files.0.dest_path", "is required");
    }
    problems.into_result()?;
    match blocking(move || upload.publish()).await? {
        Ok(()) => Ok((StatusCode::CREATED, Json(Done { ok: true }))),
        Err((number, problem)) => {
            problems_of(Kind::Path.field(number), problem).into_result()?;
            Err(ApiError::internal("a problem that is none"))
        }
    }
}

/// Does something with the upload beside the server's own threads.
async fn with<T: Send + 'static>(
    mut upload: Upload,
    work: impl FnOnce(&mut Upload) -> T + Send + 'static,
) -> ApiResult<(Upload, T)> {
    blocking(move || {
        let done = work(&mut upload);
        (upload, done)
    })
    .await
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    File,
    Path,
}

impl Kind {
    fn field(self, number: u32) -> String {
        let name = match self {
            Kind::File => "file",
            Kind::Path => "dest_path",
        };
        format!("files.{number}.{name}")
    }
}

/// Reads the names of parts; those without a number are counted.
#[derive(Debug, Default)]
struct Names {
    files: u32,
    paths: u32,
}

impl Names {
    /// `None` for a part that is not of a file.
    fn read(&mut self, name: &str) -> Option<(u32, Kind)> {
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
            "file" => Kind::File,
            "dest_path" => Kind::Path,
            _ => return None,
        };
        if number.is_empty() && name.starts_with("files[") {
            let count = match kind {
                Kind::File => &mut self.files,
                Kind::Path => &mut self.paths,
            };
            *count += 1;
            return Some((*count - 1, kind));
        }
        let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
        Some((number.parse().ok().filter(|_| is_number)?, kind))
    }
}

/// All that is wrong with a request.
#[derive(Debug, Default)]
struct Problems {
    fields: FieldErrors,
    /// Where it is the only one, its status is the answer's.
    first: Option<ApiError>,
}

impl Problems {
    fn take<T>(&mut self, field: String, result: Result<T, UploadError>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(problem) => {
                self.fields.add(&field, problem.to_string());
                if let UploadError::File(error) = problem {
                    self.first.get_or_insert(refusal(&field, error));
                }
                None
            }
        }
    }

    fn into_result(self) -> ApiResult<()> {
        match self.first {
            _ if self.fields.is_empty() => Ok(()),
            Some(error) if self.fields.count() == 1 => Err(error),
            _ => Err(self.fields.into()),
        }
    }
}

fn problems_of(field: String, problem: UploadError) -> Problems {
    let mut problems = Problems::default();
    problems.take::<()>(field, Err(problem));
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_named_in_four_ways() {
        let mut names = Names::default();
        for (name, number, kind) in [
            ("files.0.file", 0, Kind::File),
            ("files.12.dest_path", 12, Kind::Path),
            ("files[3].file", 3, Kind::File),
            ("files[3][dest_path]", 3, Kind::Path),
            ("files[][file]", 0, Kind::File),
            ("files[][file]", 1, Kind::File),
            ("files[][dest_path]", 0, Kind::Path),
        ] {
            assert_eq!(names.read(name), Some((number, kind)), "{name}");
        }
        for other in [
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
            assert_eq!(names.read(other), None, "{other}");
        }
    }
}

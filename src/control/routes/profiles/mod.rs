//! `/profiles`, and the conversion of profiles and their errors to API types.

use std::{io, time::Duration};

use http::StatusCode;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{DISK_FULL_RETRY_AFTER, PROJECT_ARCHIVED};
use crate::{
    api::{
        agent::NEWER_CHROMIUM,
        profiles::{Profile, ProfileReceipt, ProfileVersion, SaveFailure},
        time::Timestamp,
    },
    control::{
        Control,
        blobs::BlobError,
        fleet::AgentError,
        profiles::{ArchiveSourceError, ProfileError, inspection::InspectError},
        store::{ProfileRow, ProfileVersionRow},
    },
    http::ApiError,
};

mod collection;
mod download;
mod item;
mod upload;
mod versions;

const TAG: &str = crate::api::groups::PROFILES;
/// `Retry-After` while a profile or a browser is being saved.
const SAVE_RETRY_DELAY: Duration = Duration::from_secs(2);
/// `Retry-After` while the blob store or a browser is not available.
const UNAVAILABLE_RETRY_DELAY: Duration = Duration::from_secs(5);
/// The code of a 409 because something else saves the profile.
pub(super) const PROFILE_IN_USE: &str = "profile_in_use";

pub(crate) fn router() -> OpenApiRouter<Control> {
    OpenApiRouter::new()
        .routes(routes!(collection::create, collection::list))
        .routes(routes!(item::get, item::update, item::delete))
        .routes(routes!(download::download))
        .routes(routes!(upload::upload))
        .routes(routes!(versions::collection::list))
        .routes(routes!(versions::restore::restore))
}

fn to_profile(row: ProfileRow) -> Profile {
    let failure = row.save_failure.map(|(message, failed_at)| SaveFailure {
        message,
        failed_at: failed_at.into(),
    });
    Profile {
        id: row.id,
        name: row.name,
        created_at: row.created_at.into(),
        updated_at: row.updated_at.into(),
        last_used_at: row.last_used_at.map(Timestamp::from),
        version: (row.version > 0).then_some(row.version),
        size_bytes: row.size_bytes,
        last_save_error: failure,
    }
}

fn to_version(row: ProfileVersionRow, current: u64) -> ProfileVersion {
    ProfileVersion {
        version: row.number,
        is_current: row.number == current,
        created_at: row.created_at.into(),
        size_bytes: row.size_bytes,
        sha256: row.sha256().to_owned(),
        chromium_version: row.chromium_version,
        restored_from: row.restored_from,
        content: row.content,
    }
}

fn to_receipt(row: ProfileVersionRow) -> ProfileReceipt {
    ProfileReceipt {
        profile_id: row.profile_id,
        version: row.number,
        size_bytes: row.size_bytes,
        content: row.content,
    }
}

impl From<ProfileError> for ApiError {
    fn from(error: ProfileError) -> Self {
        match error {
            error @ (ProfileError::NotFound | ProfileError::VersionNotFound) => {
                ApiError::not_found(error.to_string())
            }
            error @ ProfileError::NameTaken => ApiError::conflict(error.to_string())
                .detail("name", "is taken")
                .permanent(),
            error @ ProfileError::ProjectInactive => {
                ApiError::forbidden(error.to_string()).code(PROJECT_ARCHIVED)
            }
            error @ ProfileError::InUse => {
                ApiError::conflict(error.to_string()).code(PROFILE_IN_USE)
            }
            error @ (ProfileError::UsedByPool(_) | ProfileError::UsedByConnection(_)) => {
                ApiError::conflict(error.to_string())
                    .code(PROFILE_IN_USE)
                    .permanent()
            }
            error @ ProfileError::ConnectionExists => ApiError::conflict(error.to_string())
                .detail("name", "is that of another auth connection's profile")
                .permanent(),
            error @ ProfileError::Superseded => ApiError::conflict(error.to_string()),
            error @ ProfileError::Empty => {
                ApiError::not_found(error.to_string()).code("profile_empty")
            }
            error @ ProfileError::TooLarge(_) => ApiError::payload_too_large(error.to_string()),
            error @ ProfileError::Timeout(_) => ApiError::request_timeout(error.to_string()),
            ProfileError::Source(error) => receive_error(error),
            ProfileError::Inspect(InspectError::Io(cause)) => io_error(&cause),
            ProfileError::Inspect(error @ InspectError::TooLarge(_)) => {
                ApiError::payload_too_large(format!("the archive {error}"))
            }
            ProfileError::Inspect(error @ InspectError::NewerChromium { .. }) => {
                ApiError::conflict(format!("the archive {error}"))
                    .code(NEWER_CHROMIUM)
                    .permanent()
            }
            ProfileError::Inspect(error) => ApiError::bad_field("body", error.to_string()),
            ProfileError::Restore(cause) => {
                tracing::error!(%cause, "cannot restore a profile");
                let message = "the profile could not be restored";
                ApiError::unavailable(message, UNAVAILABLE_RETRY_DELAY)
            }
            error @ ProfileError::Busy(_) => {
                ApiError::unavailable(error.to_string(), SAVE_RETRY_DELAY)
            }
            error @ ProfileError::ShuttingDown => {
                ApiError::unavailable(error.to_string(), SAVE_RETRY_DELAY)
            }
            ProfileError::Store(cause) => cause.into(),
            ProfileError::Blob(BlobError::Remote(cause)) => {
                tracing::error!(%cause, "blob store not available");
                let message = "the storage of profiles is not available";
                ApiError::unavailable(message, UNAVAILABLE_RETRY_DELAY)
            }
            ProfileError::Blob(cause) if cause.is_disk_full() => disk_full(&cause),
            ProfileError::Blob(cause) => ApiError::internal(cause),
            ProfileError::Io(cause) => io_error(&cause),
            cause @ (ProfileError::Corrupt | ProfileError::Task(_)) => ApiError::internal(cause),
        }
    }
}

/// Returns the error for an archive that ended before it was complete.
fn receive_error(error: ArchiveSourceError) -> ApiError {
    let cause = match error {
        ArchiveSourceError::Incomplete => {
            return ApiError::bad_request("the request body is incomplete");
        }
        error @ ArchiveSourceError::IdleTimeout(_) => {
            return ApiError::request_timeout(error.to_string());
        }
        ArchiveSourceError::Agent(cause) => cause,
    };
    tracing::warn!(%cause, "cannot archive a browser");
    match cause {
        AgentError::Rejected {
            status: StatusCode::CONFLICT,
            ..
        } => ApiError::conflict("the user data of the browser is being archived or restored"),
        AgentError::Rejected { status, .. } if status != StatusCode::SERVICE_UNAVAILABLE => {
            ApiError::bad_gateway("the browser did not provide its user data")
        }
        _ => {
            let message = "the browser did not provide its user data";
            ApiError::unavailable(message, UNAVAILABLE_RETRY_DELAY)
        }
    }
}

fn io_error(cause: &io::Error) -> ApiError {
    match cause.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => disk_full(cause),
        _ => ApiError::internal(cause),
    }
}

fn disk_full(cause: &dyn std::error::Error) -> ApiError {
    tracing::error!(%cause, "the disk is full");
    ApiError::unavailable("the disk of the server is full", DISK_FULL_RETRY_AFTER)
}

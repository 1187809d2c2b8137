//! `/org/api_keys`. A key that is bound to a project lists and creates only keys of that project.

use std::time::Duration;

use secrecy::SecretString;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    api::api_keys::{ApiKey, ApiKeyCreator, ApiKeyWithSecret},
    control::{
        Control,
        keys::{self, KeyError},
        secret_token::reveal,
        store::ApiKeyRecord,
    },
    http::ApiError,
};

mod collection;
mod item;
mod rotate;

const TAG: &str = crate::api::groups::API_KEYS;
/// The `Retry-After` of a deletion that cannot be stored yet.
const DELETION_RETRY_AFTER: Duration = Duration::from_secs(5);

pub(crate) fn router() -> OpenApiRouter<Control> {
    OpenApiRouter::new()
        .routes(routes!(collection::create, collection::list))
        .routes(routes!(item::get, item::update, item::delete))
        .routes(routes!(rotate::rotate))
}

fn to_api_key(ApiKeyRecord { row, project_name }: ApiKeyRecord) -> ApiKey {
    ApiKey {
        masked_key: keys::FORMAT.mask(&row.public_part),
        id: row.id,
        name: row.name,
        project_id: row.project_id,
        project_name,
        created_at: row.created_at.into(),
        created_by: row.created_by.map(|creator| ApiKeyCreator {
            id: creator.id,
            name: creator.name,
        }),
        updated_at: row.updated_at.into(),
        expires_at: row.expires_at.map(Into::into),
        deleted_at: row.deleted_at.map(Into::into),
    }
}

/// Converts a new key to its API representation, which includes the key itself.
fn to_created_key((record, key): (ApiKeyRecord, SecretString)) -> ApiKeyWithSecret {
    ApiKeyWithSecret {
        record: to_api_key(record),
        key: reveal(&key),
    }
}

impl From<KeyError> for ApiError {
    fn from(error: KeyError) -> Self {
        match error {
            KeyError::NotFound => ApiError::not_found("no API key with that id"),
            KeyError::Expired => ApiError::unauthorized("the API key has expired"),
            KeyError::UnknownProject => ApiError::not_found("no project with that id")
                .detail("project_id", "is not the id of a project"),
            KeyError::ForeignProject => {
                ApiError::forbidden("the API key of the request belongs to another project").detail(
                    "project_id",
                    "is not the project of the API key of the request",
                )
            }
            error @ KeyError::OutlivesCaller(_) => ApiError::forbidden(error.to_string()),
            error @ KeyError::RotationExpired => ApiError::conflict(error.to_string()).permanent(),
            error @ KeyError::CallerInvalid => ApiError::unauthorized(error.to_string()),
            error @ KeyError::DeletionNotStored => {
                ApiError::unavailable(error.to_string(), DELETION_RETRY_AFTER)
            }
            KeyError::Store(cause) => cause.into(),
            KeyError::Task(cause) => ApiError::internal(cause),
        }
    }
}

//! `/org/api_keys`. A key that is bound to a project sees and makes keys of that project alone.

use secrecy::SecretString;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    api::api_keys::{ApiKey, FreshApiKey},
    control::{
        Control,
        keys::{KeyError, mask, reveal},
        store::ApiKeyRow,
    },
    http::ApiError,
};

mod collection;
mod item;
mod rotate;

const TAG: &str = crate::api::groups::API_KEYS;

pub fn router() -> OpenApiRouter<Control> {
    OpenApiRouter::new()
        .routes(routes!(collection::create, collection::list))
        .routes(routes!(item::get, item::delete))
        .routes(routes!(rotate::rotate))
}

fn show(row: ApiKeyRow) -> ApiKey {
    ApiKey {
        masked_key: mask(&row.public_part),
        id: row.id,
        name: row.name,
        project_id: row.project_id,
        created_at: row.created_at.into(),
        updated_at: row.updated_at.into(),
        expires_at: row.expires_at.map(Into::into),
    }
}

fn show_fresh((row, key): (ApiKeyRow, SecretString)) -> FreshApiKey {
    FreshApiKey {
        record: show(row),
        key: reveal(&key),
    }
}

impl From<KeyError> for ApiError {
    fn from(error: KeyError) -> Self {
        match error {
            KeyError::NotFound => ApiError::not_found("there is no such key"),
            KeyError::Expired => ApiError::unauthorized("the key has expired"),
            KeyError::UnknownProject => ApiError::not_found("there is no such project")
                .detail("project_id", "is not a project's id"),
            KeyError::Store(cause) => ApiError::internal(cause),
            KeyError::Task(cause) => ApiError::internal(cause),
        }
    }
}

//! `/fleet/join_tokens`.

use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    api::{api_keys::ApiKeyCreator, fleet::JoinToken},
    control::{
        Control,
        fleet::registered::{JOIN_TOKEN_FORMAT, JoinTokenError},
        store::JoinTokenRow,
    },
    http::ApiError,
};

mod collection;
mod item;

pub(super) fn router() -> OpenApiRouter<Control> {
    OpenApiRouter::new()
        .routes(routes!(collection::create, collection::list))
        .routes(routes!(item::delete))
}

fn to_join_token(row: JoinTokenRow) -> JoinToken {
    JoinToken {
        masked_token: JOIN_TOKEN_FORMAT.mask(&row.public_part),
        id: row.id,
        uses: row.max_uses,
        remaining_uses: row.max_uses.saturating_sub(row.uses),
        labels: row.labels,
        created_at: row.created_at.into(),
        created_by: ApiKeyCreator {
            id: row.created_by.id,
            name: row.created_by.name,
        },
        last_used_at: row.last_used_at.map(Into::into),
        expires_at: row.expires_at.map(Into::into),
    }
}

impl From<JoinTokenError> for ApiError {
    fn from(error: JoinTokenError) -> Self {
        match error {
            error @ JoinTokenError::NotFound => ApiError::not_found(error.to_string()),
            error @ JoinTokenError::Invalid => ApiError::unauthorized(error.to_string()),
            JoinTokenError::Key(cause) => cause.into(),
            JoinTokenError::Store(cause) => cause.into(),
        }
    }
}

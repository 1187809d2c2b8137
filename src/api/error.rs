use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The body of every error response.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// Stable, machine-readable: `bad_request`, `not_found`, …
    pub code: String,
    /// For people. Never carries internals.
    pub message: String,
    /// One entry per invalid field (its path is the `code`), or per step that explains the error.
    #[serde(default)]
    pub details: Vec<ErrorDetail>,
    pub inner_error: Option<ErrorDetail>,
}

/// One detail of an error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorDetail {
    pub code: String,
    pub message: String,
}

//! The body of error responses.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The body of every error response.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// Stable, machine-readable code, such as `bad_request` or `not_found`.
    pub code: String,
    /// Human-readable description.
    pub message: String,
    /// Details: one per invalid field of the request, whose path is the `code`, or one per fact
    /// that explains the error.
    #[serde(default)]
    pub details: Vec<ErrorDetail>,
    /// The error of another component that caused this one.
    pub inner_error: Option<ErrorDetail>,
}

/// A detail of an error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorDetail {
    /// Path of the invalid field, such as `viewport.width`, or a machine-readable code.
    pub code: String,
    /// Human-readable description.
    pub message: String,
}

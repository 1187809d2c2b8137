//! `/audit-logs`. The log covers all projects, so that it needs a key that is valid for all.

use std::time::Duration;

use http::{HeaderName, HeaderValue};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::authentication::Principal;
use crate::{
    control::{Control, audit::AuditLogError},
    http::{ApiError, ApiResult},
};

mod collection;
mod export;

const TAG: &str = crate::api::groups::AUDIT_LOG;
const HAS_MORE: HeaderName = HeaderName::from_static("x-has-more");
/// `Retry-After` while others read the log.
const BUSY_RETRY_DELAY: Duration = Duration::from_secs(2);

pub(crate) fn router() -> OpenApiRouter<Control> {
    OpenApiRouter::new()
        .routes(routes!(collection::list))
        .routes(routes!(export::chunk::export))
}

/// Rejects session tokens, and keys that are bound to a project.
fn check_access(principal: &Principal) -> ApiResult<()> {
    principal.organization_key("the audit log covers")?;
    Ok(())
}

fn has_more(has_more: bool) -> (HeaderName, HeaderValue) {
    let value = if has_more { "true" } else { "false" };
    (HAS_MORE, HeaderValue::from_static(value))
}

impl From<AuditLogError> for ApiError {
    fn from(error: AuditLogError) -> Self {
        match error {
            error @ AuditLogError::Busy(_) => {
                ApiError::limit_exceeded(error.to_string(), BUSY_RETRY_DELAY)
            }
            AuditLogError::Store(cause) => cause.into(),
            error @ (AuditLogError::Encode(_) | AuditLogError::Task(_)) => {
                ApiError::internal(error)
            }
        }
    }
}

//! Access to `/metrics`, which cover all projects.

use http::HeaderMap;

use super::principal::identify_api_key;
use crate::{
    control::Control,
    http::{ApiError, ApiResult, StaticToken, bearer_token},
};

pub(super) const METRICS_PATH: &str = "/metrics";

/// Accepts the metrics token, which is valid for nothing else, and API keys that are valid for
/// every project.
pub(super) async fn authorize_metrics(control: &Control, headers: &HeaderMap) -> ApiResult<()> {
    let presented = bearer_token(headers)?;
    let is_metrics_token = |token: &StaticToken| token.matches(presented);
    if control.metrics_token.as_ref().is_some_and(is_metrics_token) {
        return Ok(());
    }
    match identify_api_key(control, presented).await?.project {
        None => Ok(()),
        Some(_) => Err(ApiError::forbidden(
            "the metrics cover all projects, and the API key belongs to one of them",
        )),
    }
}

//! `/fleet`. The fleet serves all projects, so that its routes need a key that is valid for all,
//! except for those that hosts call.

use utoipa_axum::router::OpenApiRouter;

use super::authentication::Principal;
use crate::{
    control::{Control, keys::Identity},
    http::ApiResult,
};

mod hosts;
mod join_tokens;

const TAG: &str = crate::api::groups::FLEET;

pub(crate) fn router() -> OpenApiRouter<Control> {
    OpenApiRouter::new()
        .merge(hosts::router())
        .merge(join_tokens::router())
}

/// Returns the API key of a request. Rejects session tokens, and keys that are bound to a project.
fn organization_key(principal: &Principal) -> ApiResult<&Identity> {
    principal.organization_key("the fleet serves")
}

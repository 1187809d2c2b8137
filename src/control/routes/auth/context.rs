//! `/auth/context`.

use crate::{
    api::api_keys::{AuthContext, CallerApiKey},
    control::routes::auth::Principal,
    http::{ApiResult, Json},
};

/// Get the authentication context
///
/// Returns the API key of the request, and the project that the request applies to.
#[utoipa::path(
    get,
    path = "/auth/context",
    operation_id = "get_auth_context",
    tag = crate::api::groups::AUTHENTICATION,
    responses((status = 200, body = AuthContext))
)]
pub(crate) async fn get(principal: Principal) -> ApiResult<Json<AuthContext>> {
    let key = principal.api_key()?.clone();
    Ok(Json(AuthContext {
        api_key: CallerApiKey {
            id: key.key,
            name: key.name,
            project_id: key.project,
            expires_at: key.expires_at.map(Into::into),
        },
        project_id: principal.project,
    }))
}

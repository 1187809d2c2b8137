use crate::{
    api::{
        ErrorBody,
        api_keys::{AskingKey, AuthContext},
    },
    control::routes::guard::Caller,
    http::{ApiResult, Json},
};

/// Who is asking, and for which project.
#[utoipa::path(
    get,
    path = "/auth/context",
    tag = "auth",
    responses((status = 200, body = AuthContext), (status = 401, body = ErrorBody))
)]
pub async fn get(caller: Caller) -> ApiResult<Json<AuthContext>> {
    let key = caller.key()?.clone();
    Ok(Json(AuthContext {
        api_key: AskingKey {
            id: key.key,
            name: key.name,
            project_id: key.project,
            expires_at: key.expires_at.map(Into::into),
        },
        project_id: caller.project,
    }))
}

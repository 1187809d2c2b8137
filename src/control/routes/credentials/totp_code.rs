//! `/credentials/{id_or_name}/totp-code`, and its alias `totp_code`.

use axum::extract::State;
use http::{HeaderName, header::CACHE_CONTROL};
use secrecy::ExposeSecret;

use super::TAG;
use crate::{
    api::{ErrorBody, credentials::TotpCode},
    control::{credentials::StoredCredentials, routes::authentication::Principal},
    http::{ApiResult, Json, Path},
};

/// A response that no cache stores.
type NotStored<T> = ([(HeaderName, &'static str); 1], Json<T>);

/// Get a one-time code
///
/// Returns the current code. Reading a code does not use it up.
#[utoipa::path(
    get,
    path = "/credentials/{id_or_name}/totp-code",
    operation_id = "get_totp_code",
    tag = TAG,
    params(("id_or_name" = String, Path, description = "The id or name of the credential", example = "shop-admin")),
    responses(
        (status = 200, body = TotpCode),
        (status = 404, body = ErrorBody, description = "There is no such credential, or it has no secret for one-time codes (`totp_not_configured`)"),
        (status = 503, body = ErrorBody, description = "A key of the server's stored secrets is missing"),
    )
)]
pub(crate) async fn get(
    State(credentials): State<StoredCredentials>,
    principal: Principal,
    Path(id_or_name): Path<String>,
) -> ApiResult<NotStored<TotpCode>> {
    let code = credentials.totp_code(&principal.project, &id_or_name);
    let code = code.await?;
    let code = TotpCode {
        code: code.code.expose_secret().to_owned(),
        expires_at: code.expires_at.into(),
    };
    Ok(([(CACHE_CONTROL, "no-store")], Json(code)))
}

/// Get a one-time code (alias)
///
/// The same as `GET /credentials/{id_or_name}/totp-code`.
#[utoipa::path(
    get,
    path = "/credentials/{id_or_name}/totp_code",
    operation_id = "get_totp_code_alias",
    tag = TAG,
    params(("id_or_name" = String, Path, description = "The id or name of the credential", example = "shop-admin")),
    responses(
        (status = 200, body = TotpCode),
        (status = 404, body = ErrorBody, description = "There is no such credential, or it has no secret for one-time codes (`totp_not_configured`)"),
        (status = 503, body = ErrorBody, description = "A key of the server's stored secrets is missing"),
    )
)]
pub(crate) async fn get_by_alias(
    credentials: State<StoredCredentials>,
    principal: Principal,
    id_or_name: Path<String>,
) -> ApiResult<NotStored<TotpCode>> {
    get(credentials, principal, id_or_name).await
}

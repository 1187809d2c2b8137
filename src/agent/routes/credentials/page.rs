//! `GET /credentials/page`.

use axum::extract::State;

use super::TAG;
use crate::{
    agent::credentials::CredentialFiller,
    api::{ErrorBody, credential_fill::FrontPageAddress},
    http::{ApiResult, Json},
};

/// Get the address of the page in front
///
/// Control looks for the credential of its domain. Clients do not reach this route.
#[utoipa::path(
    get,
    path = "/credentials/page",
    operation_id = "get_page_in_front",
    tag = TAG,
    responses(
        (status = 200, body = FrontPageAddress),
        (status = 503, body = ErrorBody, description = "The browser is down, or has no tab"),
        (status = 504, body = ErrorBody),
    )
)]
pub(crate) async fn get(
    State(filler): State<CredentialFiller>,
) -> ApiResult<Json<FrontPageAddress>> {
    let url = filler.page_url().await?;
    Ok(Json(FrontPageAddress { url }))
}

//! `POST /credentials/fill`.

use axum::extract::State;

use super::TAG;
use crate::{
    agent::credentials::CredentialFiller,
    api::{
        ErrorBody,
        credential_fill::{AgentFillRequest, FillResponse},
    },
    http::{ApiResult, Json, LargeJson},
};

/// The most bytes of a body, in which each byte of the values can be escaped.
const BODY_LIMIT: usize = 1 << 20;

/// Fill credentials into the page in front
///
/// Writes values into the fields of one frame of the page in front, and shows dots in their place.
/// In the step that writes, it verifies the origin of the frame and of all frames around it, and
/// that a user sees the fields. Fields of registration, search and newsletter forms are left out
/// unless a selector names them. Control calls this route; clients do not reach it.
///
/// Nothing was written if the response is an error.
#[utoipa::path(
    post,
    path = "/credentials/fill",
    operation_id = "fill_credentials",
    tag = TAG,
    request_body(content = AgentFillRequest, example = json!({
        "domain": "example.com",
        "values": {"username": "ada", "password": "correct horse"},
        "submit": true,
    })),
    responses(
        (status = 200, body = FillResponse),
        (status = 400, body = ErrorBody, description = "A field is missing or out of bounds, names no value, or its selector is invalid"),
        (status = 403, body = ErrorBody, description = "`origin_refused`: the page is not of the domain or of an allowed one, or has no TLS"),
        (status = 409, body = ErrorBody, description = "`ambiguous_fields`: several fields match equally well. `page_changed`: the page navigated meanwhile"),
        (status = 503, body = ErrorBody, description = "The browser is down, or has no tab"),
        (status = 504, body = ErrorBody, description = "`timeout`: the page did not respond in time"),
    )
)]
pub(crate) async fn fill(
    State(filler): State<CredentialFiller>,
    LargeJson(request): LargeJson<AgentFillRequest, BODY_LIMIT>,
) -> ApiResult<Json<FillResponse>> {
    filler.fill(request).await.map(Json).map_err(Into::into)
}

//! `/browsers/{id}/credentials/fill`.

use std::time::Duration;

use axum::{Extension, extract::State};
use http::StatusCode;

use crate::{
    api::{ErrorBody, credential_fill::FillResponse, fill::FillCredentials, groups},
    control::{
        credentials::{
            fill::{FillPageError, PageFiller},
            material::MaterialError,
        },
        fleet::AgentError,
        providers::LookupError,
        routes::{
            auditing::UsedResource, authentication::Principal, browsers::RESTART_RETRY_DELAY,
            org::credential_providers::provider_error,
        },
    },
    http::{ApiError, ApiResult, Json, Path},
};

/// `Retry-After` if other requests use the one-time codes.
const CODE_RETRY_DELAY: Duration = Duration::from_secs(30);

/// Fill credentials into the page in front
///
/// Writes the values of a credential, or of an item of a provider, into the page in front, without
/// showing them to the client. In the step that writes, the agent beside the browser verifies that
/// the frame is of the domain of the values and that a user sees the fields, and it shows dots in
/// their place. A one-time code is added if the page has a field for it; each is used once.
/// Requires an API key.
///
/// Nothing was written if the response is an error.
#[utoipa::path(
    post,
    path = "/browsers/{id}/credentials/fill",
    operation_id = "fill_credentials",
    tag = groups::CREDENTIALS,
    params(("id" = String, Path, description = "The id or name of the browser", example = "brw_01kgc3v7e8r9t0w1x2y3z4a5b6")),
    request_body(content = FillCredentials, example = json!({"credential": "shop-admin", "submit": true})),
    responses(
        (status = 200, body = FillResponse),
        (status = 403, body = ErrorBody, description = "`origin_refused`: the page is not of the domain of the values or of an allowed one, or has `http` where the server does not permit that"),
        (status = 404, body = ErrorBody, description = "There is no such browser, credential, provider or item"),
        (status = 409, body = ErrorBody, description = "`ambiguous_fields`: several fields match equally well. `ambiguous_credential`: several credentials do. `page_changed`: the page navigated meanwhile. Otherwise the source has no values, no domain or too many, its provider is disabled, or the page has no host"),
        (status = 502, body = ErrorBody, description = "The provider has no answer that can be used"),
        (status = 503, body = ErrorBody, description = "The browser or the provider is not available, or all one-time codes are used by others"),
        (status = 504, body = ErrorBody, description = "The page or the provider did not respond in time"),
    )
)]
pub(crate) async fn fill(
    State(filler): State<PageFiller>,
    principal: Principal,
    Extension(used): Extension<UsedResource>,
    Path(id): Path<String>,
    Json(request): Json<FillCredentials>,
) -> ApiResult<Json<FillResponse>> {
    principal.api_key()?;
    let prepared = filler.prepare(&principal.project, &id, request).await?;
    used.set(format!("credentials/{}", prepared.source()));
    Ok(Json(filler.fill(prepared).await?))
}

impl From<FillPageError> for ApiError {
    fn from(error: FillPageError) -> Self {
        match error {
            FillPageError::Browser(error) => error.into(),
            FillPageError::Material(error) => error.into(),
            FillPageError::Credential(error) => error.into(),
            FillPageError::UnknownField(index) => {
                ApiError::bad_field(format!("fields[{index}].name"), "names no value")
            }
            error @ FillPageError::CodesUsed => {
                ApiError::unavailable(error.to_string(), CODE_RETRY_DELAY)
            }
            error @ FillPageError::Timeout => ApiError::timeout(error.to_string()),
            error @ FillPageError::TooManyDomains => {
                ApiError::bad_field("allowed_domains", error.to_string())
            }
            FillPageError::Agent(error) => agent_error(error),
        }
    }
}

impl From<MaterialError> for ApiError {
    fn from(error: MaterialError) -> Self {
        match error {
            MaterialError::Credential(error) => error.into(),
            MaterialError::Provider(error) => error.into(),
            MaterialError::Lookup(LookupError::ProviderFailed { error, .. }) => {
                provider_error(&error)
            }
            MaterialError::Lookup(error @ LookupError::NotFound) => {
                ApiError::not_found(error.to_string())
            }
            MaterialError::Lookup(error @ LookupError::Ambiguous { .. }) => {
                ApiError::conflict(error.to_string())
                    .code("ambiguous_credential")
                    .permanent()
            }
            MaterialError::Lookup(error @ LookupError::Disabled { .. }) => {
                ApiError::conflict(error.to_string()).permanent()
            }
            MaterialError::Lookup(error @ LookupError::InvalidHost) => {
                ApiError::not_found(error.to_string())
            }
            error @ MaterialError::NoMatch(_) => ApiError::not_found(error.to_string()),
            error @ MaterialError::Ambiguous(_) => ApiError::conflict(error.to_string())
                .code("ambiguous_credential")
                .permanent(),
            error @ (MaterialError::NoDomain
            | MaterialError::TooManyDomains
            | MaterialError::NoHost
            | MaterialError::Empty) => ApiError::conflict(error.to_string()).permanent(),
        }
    }
}

/// Passes the refusals of an agent on.
fn agent_error(cause: AgentError) -> ApiError {
    let AgentError::Rejected { status, error } = cause else {
        tracing::warn!(%cause, "agent failed to fill a page");
        return ApiError::unavailable("the browser does not respond", RESTART_RETRY_DELAY);
    };
    let converted = match (status, error.code.as_str()) {
        (StatusCode::BAD_REQUEST, _) => ApiError::bad_request(error.message),
        (StatusCode::FORBIDDEN, "origin_refused") => {
            ApiError::forbidden(error.message).code("origin_refused")
        }
        (StatusCode::CONFLICT, "ambiguous_fields") => ApiError::conflict(error.message)
            .code("ambiguous_fields")
            .permanent(),
        (StatusCode::CONFLICT, "page_changed") => {
            ApiError::conflict(error.message).code("page_changed")
        }
        (StatusCode::GATEWAY_TIMEOUT, _) => ApiError::timeout(error.message),
        (StatusCode::SERVICE_UNAVAILABLE, _) => {
            ApiError::unavailable(error.message, RESTART_RETRY_DELAY)
        }
        _ => {
            tracing::warn!(%status, code = error.code, "agent refused to fill a page");
            return ApiError::bad_gateway("the browser refused to fill the page");
        }
    };
    converted.details(error.details)
}

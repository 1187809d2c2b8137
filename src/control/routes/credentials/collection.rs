//! `/credentials`.

use axum::extract::State;

use super::{TAG, to_credential, to_saved_credential};
use crate::{
    api::{
        ErrorBody,
        credentials::{CreateCredential, Credential, ListCredentials},
        paging::Page,
    },
    control::{
        credentials::StoredCredentials,
        routes::{auditing::Created, authentication::Principal, paged::Paged},
        store::CredentialListing,
    },
    http::{ApiResult, Json, Query},
};

/// Create a credential
///
/// The values and the secret of one-time codes are stored encrypted and never returned. If there is
/// such a secret, the response has the current code, to confirm an enrolment.
#[utoipa::path(
    post,
    path = "/credentials",
    operation_id = "create_credential",
    tag = TAG,
    request_body(content = CreateCredential, example = json!({
        "name": "shop-admin",
        "domain": "example.com",
        "values": {"username": "admin@example.com", "password": "correct horse battery staple"},
        "totp_secret": "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ",
    })),
    responses(
        (status = 201, body = Credential),
        (status = 409, body = ErrorBody, description = "The name is taken"),
        (status = 503, body = ErrorBody, description = "The disk of the server is full, or a key of its stored secrets is missing"),
    )
)]
pub(crate) async fn create(
    State(credentials): State<StoredCredentials>,
    principal: Principal,
    Json(request): Json<CreateCredential>,
) -> ApiResult<Created<Credential>> {
    let saved = credentials.create(&principal.project, request).await?;
    Ok(Created {
        id: saved.row.id.to_string(),
        body: to_saved_credential(saved),
    })
}

/// List credentials
///
/// Newest first.
#[utoipa::path(
    get,
    path = "/credentials",
    operation_id = "list_credentials",
    tag = TAG,
    params(ListCredentials, Page),
    responses((status = 200, body = Vec<Credential>, headers(
        ("X-Has-More" = bool, description = "Whether there are more entries"),
        ("X-Next-Offset" = u64, description = "The offset of the next page, 0 on the last one"),
    )))
)]
pub(crate) async fn list(
    State(credentials): State<StoredCredentials>,
    principal: Principal,
    Query(request): Query<ListCredentials>,
) -> ApiResult<Paged<Credential>> {
    let page = request.page();
    let listing = CredentialListing {
        name: request.name.map(Into::into),
        domain: request.domain.map(|domain| domain.as_str().to_owned()),
        query: request.query.map(Into::into),
        offset: page.offset.get().into(),
        limit: page.limit.get().into(),
    };
    let rows = credentials.list(&principal.project, &listing).await?;
    Ok(Paged::new(page, rows, to_credential))
}

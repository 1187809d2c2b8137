//! `/org/credential_providers`.

use axum::extract::State;

use super::{TAG, check_access, to_provider};
use crate::{
    api::{
        ErrorBody,
        credential_providers::{
            CreateCredentialProvider, CredentialProvider, ListCredentialProviders,
        },
        paging::Page,
    },
    control::{
        providers::service::Providers,
        routes::{auditing::Created, authentication::Principal, paged::Paged},
        store::ProviderListing,
    },
    http::{ApiResult, Json, Query},
};

/// Create a credential provider
///
/// The token is stored encrypted and never returned. Nothing is sent to the provider; a test shows
/// whether it works. Requires a key that is not bound to a project.
#[utoipa::path(
    post,
    path = "/org/credential_providers",
    operation_id = "create_credential_provider",
    tag = TAG,
    request_body(content = CreateCredentialProvider, example = json!({
        "name": "Team vault",
        "provider_type": "vendorpassword",
        "token": "the-token-of-the-connect-server",
        "base_url": "https://connect.example.com",
    })),
    responses(
        (status = 201, body = CredentialProvider),
        (status = 403, body = ErrorBody, description = "The key of the request is bound to a project"),
        (status = 409, body = ErrorBody, description = "The name is taken, or there are as many providers as there may be"),
        (status = 503, body = ErrorBody, description = "The disk of the server is full, or a key of its stored secrets is missing"),
    )
)]
pub(crate) async fn create(
    State(providers): State<Providers>,
    principal: Principal,
    Json(request): Json<CreateCredentialProvider>,
) -> ApiResult<Created<CredentialProvider>> {
    check_access(&principal)?;
    let row = providers.create(request).await?;
    Ok(Created {
        id: row.id.to_string(),
        body: to_provider(row),
    })
}

/// List credential providers
///
/// In the order in which they are asked. Requires a key that is not bound to a project.
#[utoipa::path(
    get,
    path = "/org/credential_providers",
    operation_id = "list_credential_providers",
    tag = TAG,
    params(ListCredentialProviders, Page),
    responses(
        (status = 200, body = Vec<CredentialProvider>, headers(
            ("X-Has-More" = bool, description = "Whether there are more entries"),
            ("X-Next-Offset" = u64, description = "The offset of the next page, 0 on the last one"),
        )),
        (status = 403, body = ErrorBody, description = "The key of the request is bound to a project"),
    )
)]
pub(crate) async fn list(
    State(providers): State<Providers>,
    principal: Principal,
    Query(request): Query<ListCredentialProviders>,
) -> ApiResult<Paged<CredentialProvider>> {
    check_access(&principal)?;
    let page = request.page();
    let listing = ProviderListing {
        query: request.query.map(Into::into),
        offset: page.offset.get().into(),
        limit: page.limit.get().into(),
    };
    let rows = providers.list(&listing).await?;
    Ok(Paged::new(page, rows, to_provider))
}

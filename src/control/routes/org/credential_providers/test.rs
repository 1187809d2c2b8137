//! `/org/credential_providers/{id}/test`.

use axum::extract::State;

use super::{TAG, check_access};
use crate::{
    api::{
        ErrorBody,
        credential_providers::{ProviderTest, ProviderTestVault},
    },
    control::{providers::service::Providers, routes::authentication::Principal},
    http::{ApiResult, Json, Path},
};

/// Test a credential provider
///
/// Asks the provider for the vaults that its token can read, also if it is disabled. A refused
/// token and a provider that cannot be reached are a result, not an error. Requires a key that is
/// not bound to a project.
#[utoipa::path(
    post,
    path = "/org/credential_providers/{id}/test",
    operation_id = "test_credential_provider",
    tag = TAG,
    params(("id" = String, Path, description = "The id of the provider", example = "prov_01kgc3v7e8r9t0w1x2y3z4a5b6")),
    responses(
        (status = 200, body = ProviderTest),
        (status = 403, body = ErrorBody, description = "The key of the request is bound to a project"),
        (status = 503, body = ErrorBody, description = "A key of the server's stored secrets is missing"),
    )
)]
pub(crate) async fn test(
    State(providers): State<Providers>,
    principal: Principal,
    Path(id): Path<String>,
) -> ApiResult<Json<ProviderTest>> {
    check_access(&principal)?;
    Ok(Json(match providers.test(&id).await? {
        Ok(vaults) => {
            let vaults = vaults.into_iter().map(|vault| ProviderTestVault {
                id: vault.id,
                name: vault.name,
            });
            ProviderTest {
                success: true,
                vaults: vaults.collect(),
                error: None,
            }
        }
        Err(error) => ProviderTest {
            success: false,
            vaults: Vec::new(),
            error: Some(error.to_string()),
        },
    }))
}

//! `/auth/context`.

use axum::extract::State;

use crate::{
    api::auth::{
        AuthContext, AuthPrincipal, AuthScope, Authentication, Authorization, CredentialKind,
        Organization,
    },
    control::{projects::Projects, routes::authentication::Principal},
    http::{ApiResult, Json},
};

/// Get the authentication context
///
/// Returns the API key of the request, and the projects that the key and the request are limited
/// to.
#[utoipa::path(
    get,
    path = "/auth/context",
    operation_id = "get_auth_context",
    tag = crate::api::groups::AUTHENTICATION,
    responses((status = 200, body = AuthContext))
)]
pub(crate) async fn get(
    State(projects): State<Projects>,
    principal: Principal,
) -> ApiResult<Json<AuthContext>> {
    let key = principal.api_key()?.clone();
    Ok(Json(AuthContext {
        authentication: Authentication {
            method: CredentialKind::ApiKey,
            source: CredentialKind::ApiKey,
            credential_id: key.key.clone(),
        },
        authorization: Authorization {
            credential_scope: AuthScope {
                project_id: key.project,
            },
            effective_scope: AuthScope {
                project_id: principal.selected_project,
            },
        },
        organization: Organization {
            id: projects.organization_id().await?,
        },
        principal: AuthPrincipal {
            id: key.key,
            kind: CredentialKind::ApiKey,
        },
        project_id: principal.project,
    }))
}

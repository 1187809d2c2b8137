//! The credential of a request.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ids::{KeyId, OrganizationId, ProjectId};

/// The caller of the request, and what it has access to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuthContext {
    pub authentication: Authentication,
    pub authorization: Authorization,
    pub organization: Organization,
    pub principal: AuthPrincipal,
    /// The project that the request applies to.
    pub project_id: ProjectId,
}

/// The credential of the request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Authentication {
    pub method: CredentialKind,
    pub source: CredentialKind,
    /// The id of the API key.
    pub credential_id: KeyId,
}

/// A kind of credential, and of caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CredentialKind {
    ApiKey,
}

/// The projects that the credential and the request are limited to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Authorization {
    /// The limit of the credential.
    pub credential_scope: AuthScope,
    /// The limit of the request: that of the credential, or the project that its headers select.
    pub effective_scope: AuthScope,
}

/// A limit to one project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuthScope {
    /// The project. Null if there is no limit.
    #[schema(required)]
    pub project_id: Option<ProjectId>,
}

/// The organization, which all projects belong to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Organization {
    pub id: OrganizationId,
}

/// The caller of the request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuthPrincipal {
    /// The id of the API key.
    pub id: KeyId,
    #[serde(rename = "type")]
    pub kind: CredentialKind,
}

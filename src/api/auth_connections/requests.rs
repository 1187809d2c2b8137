//! Requests about auth connections.

use deserr::Deserr;
use utoipa::{IntoParams, ToSchema};

use super::{
    AllowedDomains, ConnectionCredential, ConnectionCredentialFields, FieldChange,
    HealthCheckInterval, LoginUrl,
};
use crate::api::{
    credentials::CredentialDomain,
    field::Unsupported,
    paging::{Limit, Offset, Page, SearchText},
    profiles::ProfileName,
};

/// The properties of a new auth connection.
#[derive(Debug, Clone, PartialEq, Eq, Deserr, ToSchema)]
pub struct CreateAuthConnection {
    /// Domain of the site, such as `example.com`, in whose pages, and those of its registrable
    /// domain, values may be entered. It never changes.
    #[schema(value_type = String, min_length = 1, max_length = 253)]
    pub domain: CredentialDomain,
    /// Name of the profile that is logged in: 1–255 characters (`A-Z a-z 0-9 . _ -`). The first
    /// login creates it if the project has none of that name. A profile has one connection per
    /// domain.
    #[schema(value_type = String, min_length = 1, max_length = 255)]
    pub profile_name: ProfileName,
    /// Page with which the login begins, by default one that is found from the domain: an `https`
    /// URL, or `http` of `localhost`, of the domain, an allowed domain or a well-known identity
    /// provider. At most 4096 bytes. Null and an empty text stand for none.
    #[deserr(default)]
    #[schema(value_type = Option<String>, max_length = 4096)]
    pub login_url: FieldChange<LoginUrl>,
    /// Credential with which the connection is logged in without a person. One of the project must
    /// be for the registrable domain of the connection.
    #[deserr(default)]
    #[schema(value_type = Option<ConnectionCredentialFields>)]
    pub credential: FieldChange<ConnectionCredential>,
    /// Further domains in whose pages, and those of their subdomains, values may be entered. Up to
    /// 32.
    #[deserr(default)]
    #[schema(value_type = Option<Vec<String>>, max_items = 32)]
    pub allowed_domains: FieldChange<AllowedDomains>,
    /// Check regularly whether the profile is still logged in.
    #[deserr(default)]
    #[schema(default = true)]
    pub health_checks: Option<bool>,
    /// Seconds between two health checks.
    #[deserr(default)]
    #[schema(value_type = Option<u32>, minimum = 60, maximum = 86_400, default = 3600)]
    pub health_check_interval: Option<HealthCheckInterval>,
    /// Log in again when a health check fails, if that is possible without a person.
    #[deserr(default)]
    #[schema(default = true)]
    pub auto_reauth: Option<bool>,
    /// Store what a person enters in a login that succeeds as the credential of the connection.
    #[deserr(default)]
    #[schema(default = true)]
    pub save_credentials: Option<bool>,
    /// Record the screen during each login as a replay.
    #[deserr(default)]
    #[schema(default = false)]
    pub record_session: Option<bool>,
    /// Not supported by this build.
    #[deserr(default)]
    #[schema(value_type = Option<Object>)]
    pub proxy: Unsupported,
    /// Not supported by this build.
    #[deserr(default)]
    #[schema(value_type = Option<String>)]
    pub proxy_id: Unsupported,
}

/// Changes of an auth connection. Absent fields are not changed. Null removes `login_url`,
/// `credential` and `allowed_domains`, and changes nothing else. A record of the connection can be
/// sent back.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserr, ToSchema)]
pub struct UpdateAuthConnection {
    /// Domain of the connection, which cannot be changed.
    #[deserr(default)]
    #[schema(value_type = Option<String>, min_length = 1, max_length = 253)]
    pub domain: Option<CredentialDomain>,
    /// Name of the connection's profile, which cannot be changed here. A new name of the profile is
    /// that of its connections, too.
    #[deserr(default)]
    #[schema(value_type = Option<String>, min_length = 1, max_length = 255)]
    pub profile_name: Option<ProfileName>,
    /// New page with which the login begins. An empty text removes it, like null.
    #[deserr(default)]
    #[schema(value_type = Option<String>, max_length = 4096)]
    pub login_url: FieldChange<LoginUrl>,
    /// New credential. That of the connection stays, even if it does not exist any more.
    #[deserr(default)]
    #[schema(value_type = Option<ConnectionCredentialFields>)]
    pub credential: FieldChange<ConnectionCredential>,
    /// New list of further domains. Up to 32. One that is not in the present list needs
    /// `credential` in the same request if the connection has one, because that would be entered
    /// in its pages, too.
    #[deserr(default)]
    #[schema(value_type = Option<Vec<String>>, max_items = 32)]
    pub allowed_domains: FieldChange<AllowedDomains>,
    /// Check regularly whether the profile is still logged in.
    #[deserr(default)]
    pub health_checks: Option<bool>,
    /// Seconds between two health checks.
    #[deserr(default)]
    #[schema(value_type = Option<u32>, minimum = 60, maximum = 86_400)]
    pub health_check_interval: Option<HealthCheckInterval>,
    /// Log in again when a health check fails, if that is possible without a person.
    #[deserr(default)]
    pub auto_reauth: Option<bool>,
    /// Store what a person enters in a login that succeeds as the credential of the connection.
    #[deserr(default)]
    pub save_credentials: Option<bool>,
    /// Record the screen during each login as a replay.
    #[deserr(default)]
    pub record_session: Option<bool>,
    /// Not supported by this build.
    #[deserr(default)]
    #[schema(value_type = Option<Object>)]
    pub proxy: Unsupported,
    /// Not supported by this build.
    #[deserr(default)]
    #[schema(value_type = Option<String>)]
    pub proxy_id: Unsupported,
}

impl From<CreateAuthConnection> for UpdateAuthConnection {
    /// Returns the settings of the request as changes of the default ones.
    fn from(request: CreateAuthConnection) -> Self {
        UpdateAuthConnection {
            domain: Some(request.domain),
            profile_name: Some(request.profile_name),
            login_url: request.login_url,
            credential: request.credential,
            allowed_domains: request.allowed_domains,
            health_checks: request.health_checks,
            health_check_interval: request.health_check_interval,
            auto_reauth: request.auto_reauth,
            save_credentials: request.save_credentials,
            record_session: request.record_session,
            proxy: request.proxy,
            proxy_id: request.proxy_id,
        }
    }
}

/// Filters and paging of the list of auth connections.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserr, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ListAuthConnections {
    /// Exact domain of the connection.
    #[deserr(default)]
    #[param(value_type = Option<String>, example = "example.com")]
    pub domain: Option<CredentialDomain>,
    /// Exact name of the connection's profile. At most 255 characters.
    #[deserr(default)]
    #[param(value_type = Option<String>, example = "shop-login")]
    pub profile_name: Option<SearchText>,
    /// Text to search for in id, domain and name of the profile, case-insensitive. At most 255
    /// characters.
    #[deserr(default)]
    #[param(value_type = Option<String>, example = "shop")]
    pub query: Option<SearchText>,
    #[deserr(default)]
    #[param(ignore)]
    pub limit: Limit,
    #[deserr(default)]
    #[param(ignore)]
    pub offset: Offset,
}

impl ListAuthConnections {
    #[must_use]
    pub fn page(&self) -> Page {
        Page {
            limit: self.limit,
            offset: self.offset,
        }
    }
}

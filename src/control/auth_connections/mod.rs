//! The service of auth connections: the logins of profiles to sites.
//!
//! - [`sites`]: the hosts that a connection permits.
//! - [`credential`]: the credentials of connections, and whether they suffice to log in.
//! - [`flow`]: the state machine of a login. [`flow_tokens`]: the tokens of its person.
//! - [`logins`]: logins in a browser. [`health`]: keeps connections logged in.

use chrono::Utc;
use url::Url;

use self::{
    health::{ConnectionHealth, ScheduleContext},
    sites::ConnectionSites,
};
use super::{
    credentials::{CredentialError, StoredCredentials},
    providers::service::{ProviderServiceError, Providers},
    store::{
        AuthConnectionListing, AuthConnectionRow, AuthConnectionSettings,
        CreateAuthConnectionError, Store, StoreError, UniqueConstraint,
    },
};
use crate::api::{
    auth_connections::{
        AuthConnectionStatus, CreateAuthConnection, FieldChange, HealthCheckInterval, ReauthReason,
        UpdateAuthConnection,
    },
    credentials::CredentialDomain,
    ids::{AuthConnectionId, ProjectId},
    profiles::ProfileName,
};

mod credential;
pub mod flow;
pub mod flow_tokens;
pub mod health;
pub mod logins;
pub mod sites;

/// The most attempts of a change while other requests change the connection, too.
const MAX_UPDATE_ATTEMPTS: usize = 8;

/// Why an operation on an auth connection failed.
#[derive(Debug, thiserror::Error)]
pub enum AuthConnectionError {
    #[error("no auth connection with that id")]
    NotFound,
    #[error("the project has an auth connection with that domain and profile")]
    AlreadyExists,
    #[error("the project is archived or deleted")]
    ProjectInactive,
    #[error("auth connection limit reached ({0})")]
    LimitReached(u32),
    /// The name of the field is `domain` or `profile_name`.
    #[error("{0} cannot be changed")]
    FixedField(&'static str),
    #[error("credential is required with a further allowed domain")]
    CredentialRequired,
    #[error("login_url {0}")]
    InvalidLoginUrl(&'static str),
    #[error("no credential with that name or id")]
    CredentialNotFound,
    #[error("the credential is for {credential}, not for {connection}")]
    CredentialOfOtherDomain {
        /// The domain of the credential.
        credential: String,
        /// The domain of the connection.
        connection: String,
    },
    #[error("no credential provider with that name or id")]
    ProviderNotFound,
    #[error("the auth connection is being changed by other requests")]
    Contended,
    #[error(transparent)]
    Credential(CredentialError),
    #[error(transparent)]
    Provider(ProviderServiceError),
    #[error(transparent)]
    Store(StoreError),
}

impl From<StoreError> for AuthConnectionError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::UniqueViolation(UniqueConstraint::AuthConnection) => {
                AuthConnectionError::AlreadyExists
            }
            other => AuthConnectionError::Store(other),
        }
    }
}

/// An auth connection, and what is known about it.
pub struct AuthConnectionDetails {
    pub row: AuthConnectionRow,
    pub reauth_reason: ReauthReason,
}

/// The number of auth connections of the organization.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuthConnectionUsage {
    pub limit: u32,
    pub used: u32,
}

/// The service of auth connections. Clones share its state.
#[derive(Clone)]
pub struct AuthConnections {
    store: Store,
    credentials: StoredCredentials,
    providers: Providers,
    /// The most connections of the organization.
    limit: u32,
    /// Whether login pages of other machines may have `http`.
    allow_http: bool,
}

impl AuthConnections {
    #[must_use]
    pub fn new(
        store: Store,
        credentials: StoredCredentials,
        providers: Providers,
        (limit, allow_http): (u32, bool),
    ) -> AuthConnections {
        AuthConnections {
            store,
            credentials,
            providers,
            limit,
            allow_http,
        }
    }

    /// Creates a connection. Nothing is logged in.
    pub async fn create(
        &self,
        project: &ProjectId,
        request: CreateAuthConnection,
    ) -> Result<AuthConnectionDetails, AuthConnectionError> {
        let now = Utc::now();
        let mut row = AuthConnectionRow {
            id: AuthConnectionId::generate(),
            project_id: project.clone(),
            domain: request.domain.as_str().to_owned(),
            profile_name: request.profile_name.as_str().to_owned(),
            status: AuthConnectionStatus::NeedsAuth,
            settings: default_settings(),
            post_login_url: None,
            last_auth_at: None,
            last_auth_check_at: None,
            browser_id: None,
            revision: 1,
            created_at: now,
            updated_at: now,
            health: ConnectionHealth::default(),
        };
        row.settings = self.changed_settings(&row, &request.into()).await?;
        let created = self.store.create_auth_connection(&row, self.limit.into());
        match created.await {
            Ok(()) => self.details(row).await,
            Err(CreateAuthConnectionError::ProjectInactive) => {
                Err(AuthConnectionError::ProjectInactive)
            }
            Err(CreateAuthConnectionError::LimitReached) => {
                Err(AuthConnectionError::LimitReached(self.limit))
            }
            Err(CreateAuthConnectionError::Store(error)) => Err(error.into()),
        }
    }

    /// Finds a connection by its id.
    pub async fn get(
        &self,
        project: &ProjectId,
        id: &str,
    ) -> Result<AuthConnectionDetails, AuthConnectionError> {
        let row = self.find(project, id).await?;
        self.details(row).await
    }

    /// Lists connections, newest first, with one more than the limit if there are more.
    pub async fn list(
        &self,
        project: &ProjectId,
        listing: &AuthConnectionListing,
    ) -> Result<Vec<AuthConnectionDetails>, AuthConnectionError> {
        let rows = self.store.list_auth_connections(project, listing).await?;
        let known = self.known_credentials(project, &rows).await?;
        let details = rows.into_iter().map(|row| AuthConnectionDetails {
            reauth_reason: known.reauth_reason(&row),
            row,
        });
        Ok(details.collect())
    }

    /// Changes the settings of a connection.
    pub async fn update(
        &self,
        project: &ProjectId,
        id: &str,
        request: &UpdateAuthConnection,
    ) -> Result<AuthConnectionDetails, AuthConnectionError> {
        for _ in 0..MAX_UPDATE_ATTEMPTS {
            let row = self.find(project, id).await?;
            check_fixed_fields(&row, request)?;
            let settings = self.changed_settings(&row, request).await?;
            if settings == row.settings {
                return self.details(row).await;
            }
            let changed = AuthConnectionRow {
                health: health_with(&row, &settings),
                settings,
                revision: row.revision + 1,
                updated_at: Utc::now(),
                ..row
            };
            if self.store.update_auth_connection(&changed).await? {
                return self.details(changed).await;
            }
        }
        Err(AuthConnectionError::Contended)
    }

    /// Deletes a connection. Its profile stays as it is.
    pub async fn delete(&self, project: &ProjectId, id: &str) -> Result<(), AuthConnectionError> {
        let id = parse_id(id)?;
        match self.store.delete_auth_connection(project, &id).await? {
            true => Ok(()),
            false => Err(AuthConnectionError::NotFound),
        }
    }

    /// Returns how many connections the organization has and may have.
    pub async fn usage(&self) -> Result<AuthConnectionUsage, AuthConnectionError> {
        let used = self.store.count_auth_connections().await?;
        Ok(AuthConnectionUsage {
            limit: self.limit,
            used: u32::try_from(used).unwrap_or(u32::MAX),
        })
    }

    /// Returns whether a connection has a credential with which it can be logged in.
    async fn has_credential(&self, row: &AuthConnectionRow) -> Result<bool, AuthConnectionError> {
        let rows = std::slice::from_ref(row);
        let known = self.known_credentials(&row.project_id, rows).await?;
        Ok(known.reauth_reason(row).permits_reauth())
    }

    async fn find(
        &self,
        project: &ProjectId,
        id: &str,
    ) -> Result<AuthConnectionRow, AuthConnectionError> {
        let id = parse_id(id)?;
        let found = self.store.find_auth_connection(project, &id).await?;
        found.ok_or(AuthConnectionError::NotFound)
    }

    async fn details(
        &self,
        row: AuthConnectionRow,
    ) -> Result<AuthConnectionDetails, AuthConnectionError> {
        let rows = std::slice::from_ref(&row);
        let known = self.known_credentials(&row.project_id, rows).await?;
        Ok(AuthConnectionDetails {
            reauth_reason: known.reauth_reason(&row),
            row,
        })
    }

    /// Returns the settings of a connection with the changes of a request.
    async fn changed_settings(
        &self,
        row: &AuthConnectionRow,
        request: &UpdateAuthConnection,
    ) -> Result<AuthConnectionSettings, AuthConnectionError> {
        let current = &row.settings;
        let credential = match &request.credential {
            FieldChange::Unchanged => current.credential.clone(),
            FieldChange::Remove => None,
            FieldChange::Set(credential) => Some(self.resolve(row, credential).await?),
        };
        let allowed_domains = match &request.allowed_domains {
            FieldChange::Unchanged => current.allowed_domains.clone(),
            FieldChange::Remove => Vec::new(),
            FieldChange::Set(domains) => {
                let names = domains.0.iter().map(CredentialDomain::as_str);
                names.map(str::to_owned).collect()
            }
        };
        check_further_domains(current, request, &allowed_domains)?;
        let login_url = match &request.login_url {
            FieldChange::Unchanged => current.login_url.clone(),
            FieldChange::Remove => None,
            FieldChange::Set(url) => Some(url.0.to_string()),
        };
        let sites = ConnectionSites {
            domain: &row.domain,
            allowed_domains: &allowed_domains,
        };
        check_login_url(&sites, login_url.as_deref(), self.allow_http)?;
        let interval = request.health_check_interval.map(HealthCheckInterval::get);
        Ok(AuthConnectionSettings {
            credential,
            allowed_domains,
            login_url,
            health_checks: request.health_checks.unwrap_or(current.health_checks),
            health_check_interval: interval.unwrap_or(current.health_check_interval),
            auto_reauth: request.auto_reauth.unwrap_or(current.auto_reauth),
            save_credentials: request.save_credentials.unwrap_or(current.save_credentials),
            record_session: request.record_session.unwrap_or(current.record_session),
        })
    }
}

/// Returns the settings of connections that are created without any.
fn default_settings() -> AuthConnectionSettings {
    AuthConnectionSettings {
        credential: None,
        allowed_domains: Vec::new(),
        login_url: None,
        health_checks: true,
        health_check_interval: 3600,
        auto_reauth: true,
        save_credentials: true,
        record_session: false,
    }
}

fn parse_id(id: &str) -> Result<AuthConnectionId, AuthConnectionError> {
    id.parse().map_err(|_| AuthConnectionError::NotFound)
}

/// Rejects another domain or profile than that of the connection.
fn check_fixed_fields(
    row: &AuthConnectionRow,
    request: &UpdateAuthConnection,
) -> Result<(), AuthConnectionError> {
    let domain = request.domain.as_ref().map(CredentialDomain::as_str);
    if domain.is_some_and(|domain| domain != row.domain) {
        return Err(AuthConnectionError::FixedField("domain"));
    }
    let profile = request.profile_name.as_ref().map(ProfileName::as_str);
    if profile.is_some_and(|profile| profile != row.profile_name) {
        return Err(AuthConnectionError::FixedField("profile_name"));
    }
    Ok(())
}

/// Returns the schedule of a connection with other settings. Only those of the login have a failed
/// one be attempted again.
fn health_with(row: &AuthConnectionRow, after: &AuthConnectionSettings) -> ConnectionHealth {
    let before = &row.settings;
    let context = ScheduleContext::new(after.health_check_interval, Utc::now());
    let login = |settings: &AuthConnectionSettings| {
        let url = settings.login_url.clone();
        (settings.credential.clone(), url, settings.auto_reauth)
    };
    let checks = |settings: &AuthConnectionSettings| {
        (settings.health_checks, settings.health_check_interval)
    };
    if login(before) != login(after) {
        row.health.after_change(row.status, context)
    } else if checks(before) != checks(after) {
        row.health.rescheduled(context)
    } else {
        row.health.clone()
    }
}

/// Rejects a further domain in whose pages the stored credential would be entered, unless the
/// request names the credential, too.
fn check_further_domains(
    current: &AuthConnectionSettings,
    request: &UpdateAuthConnection,
    allowed_domains: &[String],
) -> Result<(), AuthConnectionError> {
    let is_further = |domain: &String| !current.allowed_domains.contains(domain);
    let keeps_credential =
        current.credential.is_some() && request.credential == FieldChange::Unchanged;
    match keeps_credential && allowed_domains.iter().any(is_further) {
        true => Err(AuthConnectionError::CredentialRequired),
        false => Ok(()),
    }
}

fn check_login_url(
    sites: &ConnectionSites<'_>,
    login_url: Option<&str>,
    allow_http: bool,
) -> Result<(), AuthConnectionError> {
    let Some(login_url) = login_url else {
        return Ok(());
    };
    let url = Url::parse(login_url).map_err(|_| "is not a URL");
    url.and_then(|url| sites.check_login_url(&url, allow_http))
        .map_err(AuthConnectionError::InvalidLoginUrl)
}

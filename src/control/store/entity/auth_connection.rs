//! The table of auth connections.

use sea_orm::entity::prelude::*;

#[sea_orm::model]
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "auth_connections")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    pub project_id: String,
    /// Never changes. Unique with the name of the profile in its project.
    pub domain: String,
    /// The profile may not exist yet.
    pub profile_name: String,
    pub status: String,
    /// The name of a credential of the project, which may have been deleted.
    pub credential_name: Option<String>,
    /// The name of a provider, which may have been deleted.
    pub credential_provider: Option<String>,
    /// The item of the provider. Without one, that for the domain.
    pub credential_path: Option<String>,
    /// A JSON array of domains.
    pub allowed_domains: String,
    pub login_url: Option<String>,
    pub post_login_url: Option<String>,
    pub health_checks: bool,
    pub health_check_interval_seconds: i64,
    pub auto_reauth: bool,
    pub save_credentials: bool,
    pub record_session: bool,
    pub last_auth_at: Option<i64>,
    pub last_auth_check_at: Option<i64>,
    /// The browser of the last login.
    pub browser_id: Option<String>,
    /// Grows with each change of the settings.
    pub revision: i64,
    pub created_at: i64,
    pub updated_at: i64,
    /// The next health check.
    pub check_at: Option<i64>,
    /// The checks in a row that have found the profile logged out.
    pub failed_checks: i64,
    /// The next login without a person.
    pub reauth_at: Option<i64>,
    pub reauth_failures: i64,
    pub reauth_failing_since: Option<i64>,
    /// The error for which logins without a person were given up.
    pub reauth_stopped: Option<String>,
    /// The id of the cookie that ends the session.
    pub session_cookie: Option<String>,
    pub session_expires_at: Option<i64>,
    /// The time at which a warning of the expiry is due.
    pub warn_at: Option<i64>,
    /// Grows with each change of the columns from `check_at` on.
    pub health_revision: i64,
}

impl ActiveModelBehavior for ActiveModel {}

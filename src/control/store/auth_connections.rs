//! The table of auth connections.
//!
//! A connection refers to its profile, its credential and its provider by name. Those that are
//! renamed stay its own; those that are deleted may be created again.

use chrono::{DateTime, Utc};
use sea_orm::{
    ActiveModelTrait, ColumnTrait, ConnectionTrait, DatabaseTransaction, EntityTrait, ExprTrait,
    PaginatorTrait, QueryFilter, QueryOrder, QuerySelect, Select, TransactionTrait, UpdateMany,
    sea_query::Expr,
};

use super::{
    Store, StoreError,
    auth_flows::{delete_flows_of, name_of},
    corrupt,
    entity::auth_connection::{self, Column},
    from_millis,
    projects::{lock_active_project, lock_organization},
    revision_column,
    search::contains,
    to_millis,
};
use crate::{
    api::{
        auth_connections::AuthConnectionStatus,
        ids::{AuthConnectionId, BrowserId, ProjectId},
    },
    control::auth_connections::health::ConnectionHealth,
};

mod health;
#[cfg(test)]
mod tests;

pub use health::HealthChange;
pub(super) use health::{begin_login, record_failed_reauth, record_login, resume_reauth};

/// A row of the table of auth connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthConnectionRow {
    pub id: AuthConnectionId,
    pub project_id: ProjectId,
    pub domain: String,
    pub profile_name: String,
    pub status: AuthConnectionStatus,
    pub settings: AuthConnectionSettings,
    pub post_login_url: Option<String>,
    pub last_auth_at: Option<DateTime<Utc>>,
    pub last_auth_check_at: Option<DateTime<Utc>>,
    /// The browser of the last login.
    pub browser_id: Option<BrowserId>,
    /// Grows with each change of the settings.
    pub revision: u64,
    pub created_at: DateTime<Utc>,
    /// The time of the last change of the settings.
    pub updated_at: DateTime<Utc>,
    pub health: ConnectionHealth,
}

/// The part of an auth connection that users change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthConnectionSettings {
    pub credential: Option<CredentialReference>,
    pub allowed_domains: Vec<String>,
    pub login_url: Option<String>,
    pub health_checks: bool,
    /// In seconds.
    pub health_check_interval: u32,
    pub auto_reauth: bool,
    pub save_credentials: bool,
    pub record_session: bool,
}

/// The credential of an auth connection, which may not exist any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CredentialReference {
    /// The credential of the project with that name.
    Credential(String),
    /// An item of the provider with that name.
    Item { provider: String, path: String },
    /// The item of the provider with that name for the domain of the connection.
    ProviderMatch { provider: String },
}

/// A page of the list of auth connections, with its filters.
#[derive(Debug, Clone, Default)]
pub struct AuthConnectionListing {
    pub domain: Option<String>,
    pub profile_name: Option<String>,
    /// Searched in the id, the domain and the name of the profile, ignoring case.
    pub query: Option<String>,
    pub offset: u64,
    pub limit: u64,
}

/// Why the row of an auth connection was not inserted.
#[derive(Debug, thiserror::Error)]
pub enum CreateAuthConnectionError {
    #[error("the project is archived or deleted")]
    ProjectInactive,
    #[error("the limit of auth connections is reached")]
    LimitReached,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl CredentialReference {
    /// Returns the reference that the columns of a row stand for.
    fn of(row: &auth_connection::Model) -> Option<CredentialReference> {
        let provider = row.credential_provider.clone();
        match (row.credential_name.clone(), provider, &row.credential_path) {
            (Some(name), ..) => Some(CredentialReference::Credential(name)),
            (None, Some(provider), Some(path)) => Some(CredentialReference::Item {
                provider,
                path: path.clone(),
            }),
            (None, Some(provider), None) => Some(CredentialReference::ProviderMatch { provider }),
            (None, None, _) => None,
        }
    }

    /// Returns the name of the credential, the name of the provider, and the path.
    fn columns(reference: Option<&CredentialReference>) -> [Option<String>; 3] {
        match reference.cloned() {
            None => [None, None, None],
            Some(CredentialReference::Credential(name)) => [Some(name), None, None],
            Some(CredentialReference::Item { provider, path }) => {
                [None, Some(provider), Some(path)]
            }
            Some(CredentialReference::ProviderMatch { provider }) => [None, Some(provider), None],
        }
    }
}

impl TryFrom<auth_connection::Model> for AuthConnectionRow {
    type Error = StoreError;

    fn try_from(row: auth_connection::Model) -> Result<Self, StoreError> {
        let interval = row.health_check_interval_seconds;
        Ok(AuthConnectionRow {
            health: health::of_model(&row)?,
            id: row
                .id
                .parse()
                .map_err(|_| corrupt("auth connection id", &row.id))?,
            project_id: row
                .project_id
                .parse()
                .map_err(|_| corrupt("project id", &row.project_id))?,
            status: AuthConnectionStatus::parse(&row.status)
                .ok_or_else(|| corrupt("auth connection status", &row.status))?,
            settings: AuthConnectionSettings {
                credential: CredentialReference::of(&row),
                allowed_domains: serde_json::from_str(&row.allowed_domains)
                    .map_err(|_| corrupt("allowed domains", &row.allowed_domains))?,
                login_url: row.login_url,
                health_checks: row.health_checks,
                health_check_interval: interval
                    .try_into()
                    .map_err(|_| corrupt("health check interval", interval))?,
                auto_reauth: row.auto_reauth,
                save_credentials: row.save_credentials,
                record_session: row.record_session,
            },
            domain: row.domain,
            profile_name: row.profile_name,
            post_login_url: row.post_login_url,
            last_auth_at: row.last_auth_at.map(from_millis).transpose()?,
            last_auth_check_at: row.last_auth_check_at.map(from_millis).transpose()?,
            browser_id: row
                .browser_id
                .map(|id| id.parse().map_err(|_| corrupt("browser id", id)))
                .transpose()?,
            revision: row
                .revision
                .try_into()
                .map_err(|_| corrupt("revision", row.revision))?,
            created_at: from_millis(row.created_at)?,
            updated_at: from_millis(row.updated_at)?,
        })
    }
}

impl AuthConnectionRow {
    fn to_model(&self) -> Result<auth_connection::Model, StoreError> {
        let settings = &self.settings;
        let [credential_name, credential_provider, credential_path] =
            CredentialReference::columns(settings.credential.as_ref());
        let health = &self.health;
        let expiry = health.expiry.as_ref();
        Ok(auth_connection::Model {
            id: self.id.to_string(),
            project_id: self.project_id.to_string(),
            domain: self.domain.clone(),
            profile_name: self.profile_name.clone(),
            status: self.status.as_str().to_owned(),
            credential_name,
            credential_provider,
            credential_path,
            allowed_domains: serde_json::to_string(&settings.allowed_domains)
                .map_err(|error| corrupt("allowed domains", error))?,
            login_url: settings.login_url.clone(),
            post_login_url: self.post_login_url.clone(),
            health_checks: settings.health_checks,
            health_check_interval_seconds: settings.health_check_interval.into(),
            auto_reauth: settings.auto_reauth,
            save_credentials: settings.save_credentials,
            record_session: settings.record_session,
            last_auth_at: self.last_auth_at.map(to_millis),
            last_auth_check_at: self.last_auth_check_at.map(to_millis),
            browser_id: self.browser_id.as_ref().map(BrowserId::to_string),
            revision: revision_column(self.revision)?,
            created_at: to_millis(self.created_at),
            updated_at: to_millis(self.updated_at),
            check_at: health.check_at.map(to_millis),
            failed_checks: health.failed_checks.into(),
            reauth_at: health.reauth_at.map(to_millis),
            reauth_failures: health.reauth_failures.into(),
            reauth_failing_since: health.reauth_failing_since.map(to_millis),
            reauth_stopped: health.reauth_stopped.map(name_of).transpose()?,
            session_cookie: expiry.map(|expiry| expiry.cookie.clone()),
            session_expires_at: expiry.map(|expiry| to_millis(expiry.at)),
            warn_at: health.warn_at.map(to_millis),
            health_revision: revision_column(health.revision)?,
        })
    }
}

impl Store {
    /// Creates an auth connection, if its project is active and the organization has fewer than
    /// `limit`. The domain and the profile together must be unique in the project.
    pub async fn create_auth_connection(
        &self,
        row: &AuthConnectionRow,
        limit: u64,
    ) -> Result<(), CreateAuthConnectionError> {
        let insert = row.to_model()?;
        let transaction = self.writer.begin().await.map_err(StoreError::from)?;
        // Until the commit, no other connection is created, and the project is neither archived nor
        // deleted.
        lock_organization(&transaction).await?;
        let active = lock_active_project(&transaction, &row.project_id).await?;
        active.ok_or(CreateAuthConnectionError::ProjectInactive)?;
        if count_all(&transaction).await? >= limit {
            return Err(CreateAuthConnectionError::LimitReached);
        }
        let insert = auth_connection::ActiveModel::from(insert).reset_all();
        auth_connection::Entity::insert(insert)
            .exec_without_returning(&transaction)
            .await
            .map_err(StoreError::from)?;
        transaction.commit().await.map_err(StoreError::from)?;
        Ok(())
    }

    /// Finds an auth connection of `project`.
    pub async fn find_auth_connection(
        &self,
        project: &ProjectId,
        id: &AuthConnectionId,
    ) -> Result<Option<AuthConnectionRow>, StoreError> {
        let found = of_project(project).filter(Column::Id.eq(id.as_str()));
        let found = found.one(&self.db).await?;
        found.map(TryInto::try_into).transpose()
    }

    /// Lists auth connections, newest first, with one row more than the limit if there are more.
    pub async fn list_auth_connections(
        &self,
        project: &ProjectId,
        listing: &AuthConnectionListing,
    ) -> Result<Vec<AuthConnectionRow>, StoreError> {
        let rows = page_of(project, listing).all(&self.db).await?;
        rows.into_iter().map(TryInto::try_into).collect()
    }

    /// Replaces the settings of an auth connection that has the revision before that of `row`, and
    /// its schedule. Returns whether there is one, whose schedule has not changed since.
    pub async fn update_auth_connection(
        &self,
        row: &AuthConnectionRow,
    ) -> Result<bool, StoreError> {
        let mut changed = row.to_model()?;
        let update = auth_connection::Entity::update_many()
            .col_expr(
                Column::CredentialName,
                Expr::value(changed.credential_name.clone()),
            )
            .col_expr(
                Column::CredentialProvider,
                Expr::value(changed.credential_provider.clone()),
            )
            .col_expr(
                Column::CredentialPath,
                Expr::value(changed.credential_path.clone()),
            )
            .col_expr(
                Column::AllowedDomains,
                Expr::value(changed.allowed_domains.clone()),
            )
            .col_expr(Column::LoginUrl, Expr::value(changed.login_url.clone()))
            .col_expr(Column::HealthChecks, Expr::value(changed.health_checks))
            .col_expr(
                Column::HealthCheckIntervalSeconds,
                Expr::value(changed.health_check_interval_seconds),
            )
            .col_expr(Column::AutoReauth, Expr::value(changed.auto_reauth))
            .col_expr(
                Column::SaveCredentials,
                Expr::value(changed.save_credentials),
            )
            .col_expr(Column::RecordSession, Expr::value(changed.record_session))
            .col_expr(Column::Revision, Expr::value(changed.revision))
            .col_expr(Column::UpdatedAt, Expr::value(changed.updated_at))
            .filter(Column::Revision.eq(changed.revision - 1));
        changed.health_revision += 1;
        let updated = health::with_schedule(update, changed)
            .exec(&self.writer)
            .await?;
        Ok(updated.rows_affected > 0)
    }

    /// Deletes an auth connection with its flows and its timeline. Returns whether there was one.
    pub async fn delete_auth_connection(
        &self,
        project: &ProjectId,
        id: &AuthConnectionId,
    ) -> Result<bool, StoreError> {
        let transaction = self.writer.begin().await?;
        let deleted = auth_connection::Entity::delete_many()
            .filter(Column::Id.eq(id.as_str()))
            .filter(Column::ProjectId.eq(project.as_str()))
            .exec(&transaction)
            .await?;
        if deleted.rows_affected == 0 {
            return Ok(false);
        }
        let active = delete_flows_of(&transaction, id).await?;
        transaction.commit().await?;
        if let Some(flow) = active {
            self.flow_changed(&flow);
        }
        Ok(true)
    }

    /// Returns the number of auth connections of all projects.
    pub async fn count_auth_connections(&self) -> Result<u64, StoreError> {
        count_all(&self.db).await
    }
}

fn of_project(project: &ProjectId) -> Select<auth_connection::Entity> {
    auth_connection::Entity::find().filter(Column::ProjectId.eq(project.as_str()))
}

/// Returns the query of a page, with one row more than its limit.
fn page_of(
    project: &ProjectId,
    listing: &AuthConnectionListing,
) -> Select<auth_connection::Entity> {
    let mut query = of_project(project);
    if let Some(domain) = &listing.domain {
        query = query.filter(Column::Domain.eq(domain));
    }
    if let Some(name) = &listing.profile_name {
        query = query.filter(Column::ProfileName.eq(name));
    }
    if let Some(text) = &listing.query {
        let columns = [Column::Id, Column::Domain, Column::ProfileName];
        query = query.filter(contains(text, &columns));
    }
    query
        .order_by_desc(Column::Id)
        .offset(listing.offset)
        .limit(listing.limit + 1)
}

async fn count_all(db: &impl ConnectionTrait) -> Result<u64, StoreError> {
    Ok(auth_connection::Entity::find().count(db).await?)
}

/// Returns how many auth connections a project has.
pub(super) async fn count_connections_of(
    db: &impl ConnectionTrait,
    project: &ProjectId,
) -> Result<u64, StoreError> {
    Ok(of_project(project).count(db).await?)
}

/// Returns the id of an auth connection of a project that logs in the profile with that name.
pub(super) async fn connection_with_profile(
    db: &impl ConnectionTrait,
    project: &str,
    name: &str,
) -> Result<Option<String>, StoreError> {
    let found = auth_connection::Entity::find()
        .filter(Column::ProjectId.eq(project))
        .filter(Column::ProfileName.eq(name))
        .order_by_asc(Column::Id)
        .limit(1)
        .one(db);
    Ok(found.await?.map(|row| row.id))
}

/// Follows the change of the name of a project's profile.
pub(super) async fn rename_profile_of_connections(
    transaction: &DatabaseTransaction,
    project: &str,
    names: (&str, &str),
) -> Result<(), StoreError> {
    let of_project = Column::ProjectId.eq(project);
    let renamed = rename(Column::ProfileName, names).filter(of_project);
    renamed.exec(transaction).await?;
    Ok(())
}

/// Follows the change of the name of a project's credential.
pub(super) async fn rename_credential_of_connections(
    transaction: &DatabaseTransaction,
    project: &ProjectId,
    names: (&str, &str),
) -> Result<(), StoreError> {
    let of_project = Column::ProjectId.eq(project.as_str());
    let renamed = rename(Column::CredentialName, names).filter(of_project);
    renamed.exec(transaction).await?;
    Ok(())
}

/// Follows the change of the name of a credential provider.
pub(super) async fn rename_provider_of_connections(
    transaction: &DatabaseTransaction,
    names: (&str, &str),
) -> Result<(), StoreError> {
    let renamed = rename(Column::CredentialProvider, names);
    renamed.exec(transaction).await?;
    Ok(())
}

/// Returns the update of the rows that have the first name in a column to the second one. A change
/// of the settings that was read before does not restore the first one.
fn rename(column: Column, (from, to): (&str, &str)) -> UpdateMany<auth_connection::Entity> {
    auth_connection::Entity::update_many()
        .col_expr(column, Expr::value(to))
        .col_expr(Column::Revision, Expr::col(Column::Revision).add(1))
        .filter(column.eq(from))
}

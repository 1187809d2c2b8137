//! The history of the schema. A released migration is never edited; a change is a new file.
//!
//! The migrations of one start are applied in one transaction, on both databases: after a failure
//! the schema is as before.

use sea_orm::{
    DatabaseConnection, DbBackend, EntityTrait, SqliteTransactionMode, TransactionOptions,
    TransactionTrait,
};
use sea_orm_migration::{prelude::*, seaql_migrations};

use super::{open_error::OpenFailure, postgres};

mod m0001_projects_keys_browsers;
mod m0002_replays;
mod m0003_purge_clock;
mod m0004_organization;
mod m0005_audit_log;
mod m0006_api_key_records;
mod m0007_control_process;
mod m0008_hosts;
mod m0009_join_tokens;
mod m0010_host_viewports;
mod m0011_browser_use;
mod m0012_control_processes;
mod m0013_host_launches;
mod m0014_settled_hosts;
mod m0015_pools;
mod m0016_profiles;
mod m0017_pool_profiles;
mod m0018_profile_attachments;
mod m0019_secrets;
mod m0020_credentials;
mod m0021_credential_providers;
mod m0022_auth_connections;
mod m0023_webhooks;
mod m0024_auth_flows;
mod m0025_signing_keys;
mod m0026_auth_health;
mod m0027_health_check_versions;
mod m0028_restarting_hosts;

pub(crate) struct Migrator;

#[async_trait::async_trait]
impl MigratorTrait for Migrator {
    fn migrations() -> Vec<Box<dyn MigrationTrait>> {
        vec![
            Box::new(m0001_projects_keys_browsers::Migration),
            Box::new(m0002_replays::Migration),
            Box::new(m0003_purge_clock::Migration),
            Box::new(m0004_organization::Migration),
            Box::new(m0005_audit_log::Migration),
            Box::new(m0006_api_key_records::Migration),
            Box::new(m0007_control_process::Migration),
            Box::new(m0008_hosts::Migration),
            Box::new(m0009_join_tokens::Migration),
            Box::new(m0010_host_viewports::Migration),
            Box::new(m0011_browser_use::Migration),
            Box::new(m0012_control_processes::Migration),
            Box::new(m0013_host_launches::Migration),
            Box::new(m0014_settled_hosts::Migration),
            Box::new(m0015_pools::Migration),
            Box::new(m0016_profiles::Migration),
            Box::new(m0017_pool_profiles::Migration),
            Box::new(m0018_profile_attachments::Migration),
            Box::new(m0019_secrets::Migration),
            Box::new(m0020_credentials::Migration),
            Box::new(m0021_credential_providers::Migration),
            Box::new(m0022_auth_connections::Migration),
            Box::new(m0023_webhooks::Migration),
            Box::new(m0024_auth_flows::Migration),
            Box::new(m0025_signing_keys::Migration),
            Box::new(m0026_auth_health::Migration),
            Box::new(m0027_health_check_versions::Migration),
            Box::new(m0028_restarting_hosts::Migration),
        ]
    }
}

/// Returns the names of the migrations that the schema lacks, in order. Changes nothing.
pub(super) async fn pending<'c>(
    db: impl IntoSchemaManagerConnection<'c>,
) -> Result<Vec<String>, OpenFailure> {
    let known = Migrator::migrations();
    let known = || known.iter().map(|migration| migration.name());
    let applied = applied(&SchemaManager::new(db)).await?;
    if let Some(unknown) = applied
        .iter()
        .find(|name| !known().any(|known| known == *name))
    {
        return Err(OpenFailure::Newer(unknown.clone()));
    }
    let pending = known().filter(|known| !applied.iter().any(|name| name == known));
    Ok(pending.map(str::to_owned).collect())
}

/// Returns the names of the migrations that were applied, in the order of their names.
async fn applied(manager: &SchemaManager<'_>) -> Result<Vec<String>, DbErr> {
    let table = Migrator::migration_table_name().to_string();
    if !manager.has_table(table).await? {
        return Ok(Vec::new());
    }
    let rows = seaql_migrations::Entity::find();
    let mut rows = rows.all(manager.get_connection()).await?;
    rows.sort_by(|a, b| a.version.cmp(&b.version));
    Ok(rows.into_iter().map(|row| row.version).collect())
}

/// Applies the pending migrations and returns their names. Of several processes that do this at
/// once on PostgreSQL, one applies them, and the others wait for it. On SQLite the caller prevents
/// that.
pub(super) async fn migrate(db: &DatabaseConnection) -> Result<Vec<String>, OpenFailure> {
    if pending(db).await?.is_empty() {
        return Ok(Vec::new());
    }
    // A SQLite transaction that begins with a read fails if another process writes before it does.
    let options = TransactionOptions {
        sqlite_transaction_mode: Some(SqliteTransactionMode::Immediate),
        ..TransactionOptions::default()
    };
    let transaction = db.begin_with_options(options).await?;
    if db.get_database_backend() == DbBackend::Postgres {
        postgres::lock_migration(&transaction).await?;
    }
    // Another process may have applied them meanwhile.
    let pending = pending(&transaction).await?;
    Migrator::up(&transaction, None).await?;
    transaction.commit().await?;
    Ok(pending)
}

#[cfg(test)]
mod tests;

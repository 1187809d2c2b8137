//! Maps database errors to the unique constraint that was violated.

use sea_orm::{DbErr, RuntimeErr};
use sqlx::error::DatabaseError;

/// The unique constraints of the schema that callers tell apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UniqueConstraint {
    ApiKeyPublicPart,
    AuthConnection,
    AuthFlow,
    BrowserIdempotencyKey,
    BrowserLiveName,
    CredentialName,
    CredentialProviderName,
    DataKey,
    DefaultProject,
    HostLaunchSlot,
    HostPublicKey,
    PoolName,
    ProfileAttachment,
    ProfileLiveName,
    ProfileSave,
    ProfileWriteLock,
    ProjectLiveName,
}

/// Each constraint, its name in PostgreSQL and its columns as SQLite reports them.
///
/// PostgreSQL names the constraint of a unique column `<table>_<column>_key`. The others have the
/// name of their index in the migration.
const CONSTRAINTS: [(UniqueConstraint, &str, &str); 17] = [
    (
        UniqueConstraint::ApiKeyPublicPart,
        "api_keys_public_part_key",
        "api_keys.public_part",
    ),
    (
        UniqueConstraint::AuthConnection,
        "auth_connections_domain_and_profile",
        "auth_connections.project_id, auth_connections.domain, auth_connections.profile_name",
    ),
    (
        UniqueConstraint::AuthFlow,
        "auth_flows_active_connection",
        "auth_flows.active_connection_id",
    ),
    (
        UniqueConstraint::BrowserIdempotencyKey,
        "browsers_idempotency_key",
        "browsers.project_id, browsers.idempotency_key",
    ),
    (
        UniqueConstraint::BrowserLiveName,
        "browsers_live_name",
        "browsers.project_id, browsers.live_name",
    ),
    (
        UniqueConstraint::CredentialName,
        "credentials_name",
        "credentials.project_id, credentials.name",
    ),
    (
        UniqueConstraint::CredentialProviderName,
        "credential_providers_name_key",
        "credential_providers.name",
    ),
    (
        UniqueConstraint::DataKey,
        "data_keys_pkey",
        "data_keys.scope, data_keys.version",
    ),
    (
        UniqueConstraint::DefaultProject,
        "projects_default_marker_key",
        "projects.default_marker",
    ),
    (
        UniqueConstraint::HostLaunchSlot,
        "host_launches_slot_key",
        "host_launches.slot",
    ),
    (
        UniqueConstraint::HostPublicKey,
        "hosts_public_key",
        "hosts.public_key",
    ),
    (
        UniqueConstraint::PoolName,
        "pools_name",
        "pools.project_id, pools.name",
    ),
    (
        UniqueConstraint::ProfileAttachment,
        "profile_attachments_browser_id_key",
        "profile_attachments.browser_id",
    ),
    (
        UniqueConstraint::ProfileLiveName,
        "profiles_live_name",
        "profiles.project_id, profiles.live_name",
    ),
    (
        UniqueConstraint::ProfileSave,
        "profile_operations_saving_profile_id_key",
        "profile_operations.saving_profile_id",
    ),
    (
        UniqueConstraint::ProfileWriteLock,
        "profile_write_locks_pkey",
        "profile_write_locks.profile_id",
    ),
    (
        UniqueConstraint::ProjectLiveName,
        "projects_live_name_key",
        "projects.live_name",
    ),
];

/// The start of SQLite's message about a violated unique constraint. Its columns follow.
const SQLITE_MESSAGE: &str = "UNIQUE constraint failed: ";

/// Returns the unique constraint that caused `error`, or `None` for any other error.
pub(super) fn violated_constraint(error: &DbErr) -> Option<UniqueConstraint> {
    let error = database_error(error)?;
    if !error.is_unique_violation() {
        return None;
    }
    match error.constraint() {
        Some(name) => find(|(_, constraint, _)| *constraint == name),
        None => violated_columns(error),
    }
}

/// Returns the error that the database itself reported, if it did.
pub(super) fn database_error(error: &DbErr) -> Option<&dyn DatabaseError> {
    let (DbErr::Exec(RuntimeErr::SqlxError(error))
    | DbErr::Query(RuntimeErr::SqlxError(error))
    | DbErr::Conn(RuntimeErr::SqlxError(error))) = error
    else {
        return None;
    };
    match &**error {
        sqlx::Error::Database(error) => Some(&**error),
        _ => None,
    }
}

/// Identifies the constraint by its columns, because SQLite does not report its name.
fn violated_columns(error: &dyn DatabaseError) -> Option<UniqueConstraint> {
    let columns = error.message().strip_prefix(SQLITE_MESSAGE)?;
    find(|(_, _, known)| *known == columns)
}

fn find(matches: impl Fn(&(UniqueConstraint, &str, &str)) -> bool) -> Option<UniqueConstraint> {
    let found = CONSTRAINTS.iter().find(|entry| matches(entry));
    found.map(|(constraint, ..)| *constraint)
}

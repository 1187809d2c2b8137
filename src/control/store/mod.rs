//! The database of control. Only this module and its children use SQL.
//!
//! - [`projects`], [`limits`], [`api_keys`], [`browsers`], [`hosts`], [`registered_hosts`],
//!   [`host_launches`], [`join_tokens`], [`pools`], [`replays`], [`profiles`], [`data_keys`],
//!   [`credentials`], [`totp_steps`], [`credential_providers`], [`auth_connections`],
//!   [`auth_flows`], [`signing_keys`], [`webhooks`], [`audit_logs`], [`purge_clock`]: the queries
//!   on each table.
//! - [`processes`]: the control processes that serve from the database; [`hints`]: what they tell
//!   each other.
//! - [`search`]: conditions that search for a text.
//! - [`entity`]: the tables as sea-orm entities.
//! - [`migration`]: the history of the schema.
//! - [`constraints`], [`error`]: what a database error is about.
//! - [`sqlite`], [`postgres`]: open a database; [`open_error`]: why one cannot be opened.
//! - [`check`]: the command `berth database check`.
//!
//! All statements of the queries go through the query builder and avoid dialects, so that they work
//! on SQLite, the embedded default, and on PostgreSQL. State machines live outside: an update names
//! the state it expects, and the number of changed rows shows whether the row was in that state.

use std::{path::Path, sync::Arc};

use chrono::{DateTime, TimeZone, Utc};
use hints::HintSender;
use sea_orm::{DatabaseConnection, EntityTrait};
use tokio::sync::Notify;

mod api_keys;
mod audit_logs;
mod auth_connections;
mod auth_flows;
mod browsers;
mod check;
mod constraints;
mod credential_providers;
mod credentials;
mod data_keys;
#[expect(
    unreachable_pub,
    reason = "the derives of sea-orm generate and require public items"
)]
mod entity;
mod error;
mod hints;
mod host_launches;
mod hosts;
mod join_tokens;
mod limits;
mod migration;
mod open_error;
mod pools;
mod postgres;
mod processes;
mod profiles;
mod projects;
mod purge_clock;
mod registered_hosts;
mod replays;
mod search;
mod signing_keys;
mod sqlite;
#[cfg(test)]
pub(crate) mod test_database;
#[cfg(test)]
mod tests;
mod totp_steps;
mod webhooks;

pub use api_keys::{
    ApiKeyRecord, ApiKeyRow, Authorized, CallerKey, KeyCreator, KeyListing, KeyOrder,
    KeyStatusFilter, NewApiKey,
};
pub use auth_connections::{
    AuthConnectionListing, AuthConnectionRow, AuthConnectionSettings, CreateAuthConnectionError,
    CredentialReference, HealthChange,
};
pub use auth_flows::{
    AuthFlowRow, AuthTimelineListing, AuthTimelineRow, CreateAuthFlowError, FlowChanges,
    FlowStateRow, HandoffCode, SealedAnswers,
};
pub use browsers::{
    ActiveBrowser, AttachProfileError, BrowserProfileRow, BrowserRow, Change, CreateBrowserError,
    Creation, Listing, NewBrowserRow, PoolOrigin, StateFilter, UnfinishedBrowser,
};
pub use check::DatabaseReport;
pub use constraints::UniqueConstraint;
pub use credential_providers::{CreateProviderOutcome, ProviderListing, ProviderRow};
pub use credentials::{
    CreateCredentialError, CredentialChange, CredentialListing, CredentialRow, SealedField,
    TotpOptions,
};
pub use data_keys::{AddDataKey, DataKeyRow, KeyUsage, RetireKeyOutcome};
pub use error::StoreError;
pub use hints::{Hint, Notice};
pub use host_launches::{HostLaunchRow, LaunchToken};
pub use hosts::{Fleet, HostMode, HostRow};
pub use join_tokens::{JoinTokenRow, NewJoinToken};
pub use limits::{OrganizationRow, ProjectLimitsRow};
pub use open_error::{OpenError, OpenFailure};
pub use pools::{
    Claim, DeletePoolOutcome, LeasedBrowser, PoolBrowserRow, PoolBrowserStart, PoolBrowserState,
    PoolCounts, PoolHost, PoolLeaseError, PoolListing, PoolProfile, PoolRow, PoolSettings,
    PoolSummary, PoolsOverview, SavePoolError, WaiterTicket,
};
pub use postgres::{Displaced, HintChannel, PostgresConfig, ProcessLock, RotationLock, UrlError};
pub use processes::{ControlProcessId, NewProcess, ProcessRow};
pub use profiles::{
    BeginSave, BlobRemoval, CreateProfileError, DeleteProfileOutcome, NewProfileVersion,
    ProfileListing, ProfileLoad, ProfileRow, ProfileSave, ProfileVersionRow, PublishedVersion,
    RestoreOutcome, SaveSource,
};
pub use projects::{ProjectChange, ProjectListing, ProjectOutcome, ProjectRow};
pub use purge_clock::PurgeClock;
pub use registered_hosts::{HostMachine, NewRegisteredHost, RegisteredHostRow};
pub use replays::{ReplayEnd, ReplayRow};
pub use signing_keys::{PUBLIC_KEY_BYTES, SigningKeyRow};
pub use webhooks::{
    CreateWebhookOutcome, WebhookAttempt, WebhookClaim, WebhookDeliveryListing, WebhookDeliveryRow,
    WebhookRow,
};

/// A handle to the database. Clones share its connections.
#[derive(Clone)]
pub struct Store {
    /// The connections for statements that read.
    db: DatabaseConnection,
    /// The connections for statements and transactions that write: a single one on SQLite, those
    /// that read on PostgreSQL.
    writer: DatabaseConnection,
    /// Names the database in messages.
    name: Arc<str>,
    /// The number of this process, once it has one.
    process: Option<ControlProcessId>,
    /// Reaches the other processes, if there may be any.
    hints: Option<HintSender>,
    /// Notified when deliveries to webhooks were recorded.
    new_deliveries: Arc<Notify>,
    changed_flows: FlowChanges,
}

impl Store {
    /// Opens the SQLite file at `path`, creates it if it is missing, and migrates its schema.
    ///
    /// The caller must hold the state directory's store lock, because two processes must not
    /// migrate at once.
    pub async fn open_sqlite(path: &Path) -> Result<Store, OpenError> {
        let (store, _) = Store::migrate_sqlite(path).await?;
        Ok(store)
    }

    /// Does the same as [`Self::open_sqlite`] and returns the names of the applied migrations.
    pub async fn migrate_sqlite(path: &Path) -> Result<(Store, Vec<String>), OpenError> {
        let name = path.display().to_string();
        let opened = async {
            let writer = sqlite::open_writer(path).await?;
            let applied = migration::migrate(&writer).await?;
            sqlite::checkpoint(&writer).await;
            let db = sqlite::open_readers(path).await?;
            Ok((Store::new(db, writer, &name), applied))
        };
        let opened = opened.await;
        opened.map_err(|failure: OpenFailure| failure.of(name))
    }

    /// Connects to a PostgreSQL database and migrates its schema. Other processes may do the same
    /// at the same time.
    pub async fn open_postgres(config: &PostgresConfig) -> Result<Store, OpenError> {
        let (store, _) = Store::migrate_postgres(config).await?;
        Ok(store)
    }

    /// Does the same as [`Self::open_postgres`] and returns the names of the applied migrations.
    pub async fn migrate_postgres(
        config: &PostgresConfig,
    ) -> Result<(Store, Vec<String>), OpenError> {
        let name = config.to_string();
        let opened = async {
            let db = postgres::connect(config).await?;
            let applied = migration::migrate(&db).await?;
            Ok((Store::new(db.clone(), db, &name), applied))
        };
        let opened = opened.await;
        opened.map_err(|failure: OpenFailure| failure.of(name))
    }

    /// Opens the SQLite file at `path` for statements that read. Changes nothing: fails if the file
    /// is missing, or its schema has pending migrations.
    pub async fn read_sqlite(path: &Path) -> Result<Store, OpenError> {
        let name = path.display().to_string();
        let opened = async {
            let db = sqlite::open_read_only(path).await?;
            Store::of_current(db, &name).await
        };
        let opened = opened.await;
        opened.map_err(|failure: OpenFailure| failure.of(name))
    }

    /// Connects to a PostgreSQL database for statements that read. Changes nothing: fails if its
    /// schema has pending migrations.
    pub async fn read_postgres(config: &PostgresConfig) -> Result<Store, OpenError> {
        let name = config.to_string();
        let opened = async {
            let db = postgres::connect(config).await?;
            Store::of_current(db, &name).await
        };
        let opened = opened.await;
        opened.map_err(|failure: OpenFailure| failure.of(name))
    }

    /// Returns the store of a database without pending migrations.
    async fn of_current(db: DatabaseConnection, name: &str) -> Result<Store, OpenFailure> {
        match migration::pending(&db).await?.is_empty() {
            true => Ok(Store::new(db.clone(), db, name)),
            false => Err(OpenFailure::Outdated),
        }
    }

    fn new(db: DatabaseConnection, writer: DatabaseConnection, name: &str) -> Store {
        Store {
            db,
            writer,
            name: name.into(),
            process: None,
            hints: None,
            new_deliveries: Arc::default(),
            changed_flows: FlowChanges::default(),
        }
    }

    /// Makes this process one that serves from a PostgreSQL database. Returns the store that it
    /// uses from now on.
    pub async fn join_processes(
        &self,
        config: &PostgresConfig,
        process: NewProcess,
    ) -> Result<(Store, ProcessLock, HintChannel), OpenError> {
        let lock = ProcessLock::acquire(config.clone(), self, process, Utc::now());
        let lock = lock.await.map_err(|failure| failure.of(&self.name))?;
        let (hints, channel) = HintChannel::new(config.clone(), self.db.clone());
        let store = Store {
            hints: Some(hints),
            ..self.of_process(lock.id())
        };
        Ok((store, lock, channel))
    }

    /// Makes this process the one that serves from a SQLite database, whose lock the caller holds.
    /// Returns the store that it uses from now on.
    pub async fn begin_process(&self, process: NewProcess) -> Result<Store, StoreError> {
        let id = self.add_process(process, Utc::now()).await?;
        Ok(self.of_process(id))
    }

    fn of_process(&self, id: ControlProcessId) -> Store {
        Store {
            process: Some(id),
            ..self.clone()
        }
    }

    /// Returns the name of the database for messages. It has no password.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether there are no keys, browsers, replays and profiles with content, as in a new
    /// database.
    pub async fn is_empty(&self) -> Result<bool, StoreError> {
        Ok(entity::api_key::Entity::find()
            .one(&self.db)
            .await?
            .is_none()
            && entity::browser::Entity::find()
                .one(&self.db)
                .await?
                .is_none()
            && entity::replay::Entity::find()
                .one(&self.db)
                .await?
                .is_none()
            && !self.has_profile_versions().await?)
    }

    /// Makes what was written before survive a power failure. PostgreSQL does that at each commit.
    async fn checkpoint(&self) {
        sqlite::checkpoint(&self.db).await;
    }

    /// Checks that the database responds to reads and writes.
    pub async fn ping(&self) -> Result<(), StoreError> {
        self.db.ping().await?;
        Ok(self.writer.ping().await?)
    }

    /// Finishes running statements and closes all connections. SQLite writes its log back into the
    /// file.
    pub async fn close(self) -> Result<(), StoreError> {
        self.db.close().await?;
        Ok(self.writer.close().await?)
    }
}

fn to_millis(time: DateTime<Utc>) -> i64 {
    time.timestamp_millis()
}

fn from_millis(millis: i64) -> Result<DateTime<Utc>, StoreError> {
    Utc.timestamp_millis_opt(millis)
        .single()
        .ok_or_else(|| corrupt("time", millis))
}

/// Converts a revision to its column.
fn revision_column(revision: u64) -> Result<i64, StoreError> {
    i64::try_from(revision).map_err(|_| corrupt("revision", revision))
}

fn corrupt(field: &'static str, value: impl ToString) -> StoreError {
    StoreError::Corrupt {
        field,
        value: value.to_string(),
    }
}

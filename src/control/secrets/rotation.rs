//! The commands `berth secrets status`, `rotate` and `retire`.
//!
//! A rotation wraps data keys with the first key of the ring, one at a time. After each of them the
//! database can be used with both keys, so a rotation may end anywhere and be repeated. The secrets
//! themselves are not decrypted.

use chrono::Utc;

use super::{
    SecretError, data_keys,
    key_ring::{KeyRing, UnknownKey},
    ring_source::{self, RingSourceError},
    settings::SecretsSettings,
};
use crate::{
    control::{
        ControlError, database,
        settings::{DatabaseConfig, DatabaseSettings, SettingsError, StateSettings},
        state_dir::{StateDir, StateDirError},
        store::{DataKeyRow, RetireKeyOutcome, RotationLock, Store, StoreError},
    },
    state_dir::FileLock,
};

/// The most data keys that are read at once.
const PAGE: u64 = 256;

/// The options that all commands share.
#[derive(Debug, Clone, clap::Args)]
pub struct SecretsOptions {
    #[command(flatten)]
    pub state: StateSettings,

    #[command(flatten)]
    pub database: DatabaseSettings,

    #[command(flatten)]
    pub secrets: SecretsSettings,
}

/// Options of `berth secrets rotate`.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub struct RotateOptions {
    #[command(flatten)]
    pub common: SecretsOptions,

    /// Print what would be done, and change nothing
    #[arg(long, required_unless_present = "apply", conflicts_with = "apply")]
    pub plan: bool,

    /// Wrap all data keys with the first of the keys
    #[arg(long)]
    pub apply: bool,
}

/// Options of `berth secrets retire`.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub struct RetireOptions {
    #[command(flatten)]
    pub common: SecretsOptions,

    /// Id of the key, as `berth secrets status` prints it
    #[arg(value_name = "KEY")]
    pub key: String,
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum RotationError {
    #[error(transparent)]
    Control(#[from] ControlError),
    #[error(transparent)]
    Ring(#[from] RingSourceError),
    #[error(transparent)]
    Secret(#[from] SecretError),
    #[error("cannot use the database: {0}")]
    Store(#[from] StoreError),
    #[error("another rotation is in progress")]
    InProgress,
    #[error("there are no keys: neither settings nor the state directory have any")]
    NoKeys,
    #[error("{0} data keys are wrapped with the key; run berth secrets rotate --apply")]
    InUse(u64),
    #[error("the key wraps new data keys; put another one first")]
    Primary,
}

impl From<UnknownKey> for RotationError {
    fn from(error: UnknownKey) -> Self {
        RotationError::Secret(error.into())
    }
}

impl From<StateDirError> for RotationError {
    fn from(error: StateDirError) -> Self {
        RotationError::Control(error.into())
    }
}

/// The state of one key of the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyStatus {
    pub id: String,
    /// Whether the settings have the key.
    pub is_available: bool,
    /// Whether the key wraps new data keys.
    pub is_primary: bool,
    pub is_retired: bool,
    /// The number of data keys that are wrapped with the key.
    pub data_keys: u64,
}

/// The effects of a rotation, or those that it would have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RotationReport {
    /// The key that wraps all data keys then.
    pub primary: String,
    /// The scope, version and earlier key of each data key.
    pub rewrapped: Vec<(String, u32, String)>,
}

/// The database and the keys that a command changes.
struct Opened {
    store: Store,
    ring: KeyRing,
    state_dir: StateDir,
    database: DatabaseConfig,
}

impl SecretsOptions {
    async fn open(&self) -> Result<Opened, RotationError> {
        let database = self.check_database()?;
        let state_dir = StateDir::open(&self.state.path()?)?;
        let ring = self.ring(&state_dir)?;
        let (store, _) = database::migrate_store(&state_dir, &database).await?;
        Ok(Opened {
            store,
            ring,
            state_dir,
            database,
        })
    }

    /// Opens the database, without changing it, and reads the keys.
    async fn open_read_only(&self) -> Result<(Store, KeyRing), RotationError> {
        let database = self.check_database()?;
        let root = self.state.path()?;
        let store = database::read_store(&root, &database).await?;
        let ring = self.ring(&StateDir::open(&root)?)?;
        Ok((store, ring))
    }

    fn check_database(&self) -> Result<DatabaseConfig, ControlError> {
        Ok(self.database.check().map_err(SettingsError::from)?)
    }

    fn ring(&self, state_dir: &StateDir) -> Result<KeyRing, RotationError> {
        match self.secrets.check()? {
            Some(ring) => Ok(ring),
            None => ring_source::of_state_dir(state_dir)?.ok_or(RotationError::NoKeys),
        }
    }
}

/// Returns the state of each key that the settings have or the database needs. Leaves the database
/// as it is.
pub async fn status(options: &SecretsOptions) -> Result<Vec<KeyStatus>, RotationError> {
    let (store, ring) = options.open_read_only().await?;
    let keys = key_states(&store, &ring).await?;
    store.close().await?;
    Ok(keys)
}

async fn key_states(store: &Store, ring: &KeyRing) -> Result<Vec<KeyStatus>, RotationError> {
    let retired = store.retired_keys().await?;
    let usage = store.data_key_usage().await?;
    let mut ids: Vec<&str> = ring.ids().collect();
    let others = usage.iter().map(|usage| &*usage.key_id);
    let others = others.filter(|id| ring.find(id).is_err());
    ids.extend(others);
    let keys = ids.into_iter().map(|id| KeyStatus {
        is_available: ring.find(id).is_ok(),
        is_primary: ring.primary_id() == Some(id),
        is_retired: retired.iter().any(|retired| retired == id),
        data_keys: usage
            .iter()
            .find(|usage| usage.key_id == id)
            .map_or(0, |usage| usage.data_keys),
        id: id.to_owned(),
    });
    Ok(keys.collect())
}

/// Wraps all data keys with the first key, or only reports which ones that would be and leaves the
/// database as it is.
pub async fn rotate(options: &RotateOptions) -> Result<RotationReport, RotationError> {
    if !options.apply {
        let (store, ring) = options.common.open_read_only().await?;
        let planned = plan(&store, &ring).await;
        store.close().await?;
        return planned;
    }
    let opened = options.common.open().await?;
    let rotated = apply(&opened).await;
    opened.store.close().await?;
    rotated
}

async fn apply(opened: &Opened) -> Result<RotationReport, RotationError> {
    let Opened { store, ring, .. } = opened;
    let _lock = lock(opened).await?;
    if let Some(primary) = ring.primary_id()
        && store.is_retired_key(primary).await?
    {
        return Err(SecretError::RetiredKey(primary.to_owned()).into());
    }
    // Before the first change, so that a missing key is not noticed in the middle.
    plan(store, ring).await?;
    rewrap_all(store, ring, usize::MAX).await
}

/// Wraps up to `limit` data keys with the first key.
pub(super) async fn rewrap_all(
    store: &Store,
    ring: &KeyRing,
    limit: usize,
) -> Result<RotationReport, RotationError> {
    let mut rotation = DataKeyPages::new(ring)?;
    let mut rewrapped = Vec::new();
    while let Some(rows) = rotation.next(store).await? {
        for row in rows {
            if rewrapped.len() == limit {
                return Ok(rotation.report(rewrapped));
            }
            let wrapped = data_keys::rewrap(ring, &row)?;
            // Else its project was deleted.
            if store.rewrap_data_key(&row.key_id, &wrapped).await? {
                rewrapped.push((row.scope, row.version, row.key_id));
            }
        }
    }
    Ok(rotation.report(rewrapped))
}

/// Checks that all data keys can be wrapped with the first key, and returns those that are not yet.
async fn plan(store: &Store, ring: &KeyRing) -> Result<RotationReport, RotationError> {
    let mut rotation = DataKeyPages::new(ring)?;
    let mut planned = Vec::new();
    while let Some(rows) = rotation.next(store).await? {
        for row in rows {
            data_keys::unwrap(ring, &row)?;
            planned.push((row.scope, row.version, row.key_id));
        }
    }
    Ok(rotation.report(planned))
}

/// The data keys that another key than the first one wraps, in pages.
struct DataKeyPages<'a> {
    primary: &'a str,
    last: Option<(String, u32)>,
}

impl<'a> DataKeyPages<'a> {
    fn new(ring: &'a KeyRing) -> Result<Self, UnknownKey> {
        Ok(DataKeyPages {
            primary: ring.primary()?.id(),
            last: None,
        })
    }

    async fn next(&mut self, store: &Store) -> Result<Option<Vec<DataKeyRow>>, StoreError> {
        let after = self.last.as_ref();
        let after = after.map(|(scope, version)| (scope.as_str(), *version));
        let rows = store.data_keys_not_wrapped_with(self.primary, after, PAGE);
        let rows = rows.await?;
        let last = rows.last().map(|row| (row.scope.clone(), row.version));
        self.last = last.or(self.last.take());
        Ok((!rows.is_empty()).then_some(rows))
    }

    fn report(&self, rewrapped: Vec<(String, u32, String)>) -> RotationReport {
        RotationReport {
            primary: self.primary.to_owned(),
            rewrapped,
        }
    }
}

/// Retires a key that wraps nothing. No process wraps with it any more.
pub async fn retire(options: &RetireOptions) -> Result<(), RotationError> {
    let opened = options.common.open().await?;
    let retired = retire_in(&opened, &options.key).await;
    opened.store.close().await?;
    retired
}

async fn retire_in(opened: &Opened, key: &str) -> Result<(), RotationError> {
    let Opened { store, ring, .. } = opened;
    let _lock = lock(opened).await?;
    if ring.primary_id() == Some(key) {
        return Err(RotationError::Primary);
    }
    // A key that neither is available nor wraps anything is a mistake.
    let known = key_states(store, ring).await?;
    if !known.iter().any(|known| known.id == key) {
        return Err(SecretError::from(UnknownKey(key.to_owned())).into());
    }
    match store.retire_key(key, Utc::now()).await? {
        RetireKeyOutcome::Retired => Ok(()),
        RetireKeyOutcome::InUse(data_keys) => Err(RotationError::InUse(data_keys)),
    }
}

/// Excludes other rotations until it is dropped, also when the process is killed.
enum Lock {
    File { _lock: FileLock },
    Database { _lock: RotationLock },
}

async fn lock(opened: &Opened) -> Result<Lock, RotationError> {
    match &opened.database {
        DatabaseConfig::Sqlite => match opened.state_dir.rotation_lock()? {
            Some(lock) => Ok(Lock::File { _lock: lock }),
            None => Err(RotationError::InProgress),
        },
        DatabaseConfig::Postgres(config) => {
            let lock = RotationLock::try_acquire(config).await;
            match lock.map_err(ControlError::OpenStore)? {
                Some(lock) => Ok(Lock::Database { _lock: lock }),
                None => Err(RotationError::InProgress),
            }
        }
    }
}

/// Prints the states of keys on standard output.
pub fn print_status(keys: &[KeyStatus]) {
    for key in keys {
        let mut notes = Vec::new();
        if key.is_primary {
            notes.push("wraps new data keys".to_owned());
        }
        notes.push(match key.data_keys {
            0 => "not needed".to_owned(),
            count => format!("needed for {count} data keys"),
        });
        if !key.is_available {
            notes.push("MISSING".to_owned());
        }
        if key.is_retired {
            notes.push("retired".to_owned());
        }
        println!("key {}: {}", key.id, notes.join(", "));
    }
}

/// Prints what a rotation has done, or would do, on standard output.
pub fn print_report(report: &RotationReport, is_applied: bool) {
    for (scope, version, from) in &report.rewrapped {
        println!(
            "{scope} version {version}: from key {from} to {}",
            report.primary
        );
    }
    let verb = if is_applied { "were" } else { "would be" };
    let count = report.rewrapped.len();
    println!(
        "{count} data keys {verb} wrapped with the key {}",
        report.primary
    );
}

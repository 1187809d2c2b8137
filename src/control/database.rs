//! Opens the database; the commands `berth database migrate` and `berth database check`.

use std::path::Path;

use chrono::Utc;

use super::{
    ControlError, DEFAULT_PROJECT,
    settings::{DatabaseConfig, DatabaseSettings, SettingsError, StateSettings},
    state_dir::StateDir,
    store::{DatabaseReport, Store},
};

/// Options of `berth database migrate` and `berth database check`.
#[derive(Debug, Clone, clap::Args)]
pub struct DatabaseOptions {
    #[command(flatten)]
    pub state: StateSettings,

    #[command(flatten)]
    pub database: DatabaseSettings,
}

/// The verdict of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Usable,
    /// Migrations have to be applied, which control does at its start.
    Outdated,
    Damaged,
}

/// Applies the pending migrations. Returns the names of the database and of the migrations.
pub async fn migrate(options: &DatabaseOptions) -> Result<(String, Vec<String>), ControlError> {
    let database = options.database.check().map_err(SettingsError::from)?;
    let state_dir = StateDir::open(&options.state.path()?)?;
    let (store, applied) = migrate_store(&state_dir, &database).await?;
    let name = store.name().to_owned();
    store.close().await?;
    Ok((name, applied))
}

/// Opens and migrates the database. Creates the default project on first use. Refuses an empty
/// database beside the blobs of an earlier one, of which `blobs` is the place.
pub(super) async fn open_store(
    state_dir: &StateDir,
    database: &DatabaseConfig,
    blobs: Option<String>,
) -> Result<Store, ControlError> {
    let (store, _) = migrate_store(state_dir, database).await?;
    let unused = state_dir.database();
    if matches!(database, DatabaseConfig::Postgres(_)) && unused.exists() {
        tracing::warn!(file = %unused.display(), "not used: control uses PostgreSQL");
    }
    if let Some(blobs) = blobs
        && store.is_empty().await?
    {
        let database = store.name().to_owned();
        return Err(ControlError::DatabaseLost { database, blobs });
    }
    store.default_project(DEFAULT_PROJECT, Utc::now()).await?;
    Ok(store)
}

/// Opens a database and applies the pending migrations, whose names it returns.
pub(super) async fn migrate_store(
    state_dir: &StateDir,
    database: &DatabaseConfig,
) -> Result<(Store, Vec<String>), ControlError> {
    Ok(match database {
        DatabaseConfig::Sqlite => {
            let _lock = state_dir.store_lock().await?;
            Store::migrate_sqlite(&state_dir.prepare_database()?).await?
        }
        DatabaseConfig::Postgres(config) => Store::migrate_postgres(config).await?,
    })
}

/// Opens a database without changing it. `root` is the state directory, which may not exist. Fails
/// if migrations are pending.
pub(super) async fn read_store(
    root: &Path,
    database: &DatabaseConfig,
) -> Result<Store, ControlError> {
    Ok(match database {
        DatabaseConfig::Sqlite => Store::read_sqlite(&StateDir::database_in(root)).await?,
        DatabaseConfig::Postgres(config) => Store::read_postgres(config).await?,
    })
}

/// Checks the database without changing it.
pub async fn check(options: &DatabaseOptions) -> Result<DatabaseReport, ControlError> {
    Ok(
        match options.database.check().map_err(SettingsError::from)? {
            DatabaseConfig::Sqlite => {
                let path = options.state.path()?;
                DatabaseReport::of_sqlite(&StateDir::database_in(&path)).await?
            }
            DatabaseConfig::Postgres(config) => DatabaseReport::of_postgres(&config).await?,
        },
    )
}

/// Prints a report on standard output, and returns the verdict.
pub fn print_report(report: &DatabaseReport) -> Verdict {
    println!("{}", report.database);
    for (table, rows) in &report.tables {
        println!("table {table}: {rows} rows");
    }
    for migration in &report.pending {
        println!("pending migration: {migration}");
    }
    for problem in &report.problems {
        println!("damaged: {problem}");
    }
    let verdict = verdict(report);
    println!(
        "{}",
        match verdict {
            Verdict::Usable => "the database can be used",
            Verdict::Outdated => "migrations are pending: run berth database migrate",
            Verdict::Damaged => "the database is damaged: restore a backup",
        }
    );
    verdict
}

fn verdict(report: &DatabaseReport) -> Verdict {
    match (report.problems.is_empty(), report.pending.is_empty()) {
        (false, _) => Verdict::Damaged,
        (true, false) => Verdict::Outdated,
        (true, true) => Verdict::Usable,
    }
}

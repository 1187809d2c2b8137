//! Checks a database without changing it, for `berth database check`.

use std::path::Path;

use sea_orm::{
    ConnectionTrait, DatabaseConnection, DbBackend, DbErr, EntityTrait, FromQueryResult,
    PaginatorTrait, Statement,
};

use super::{
    entity::{
        api_key, audit_log, browser, browser_tag, control_process, host, host_launch, join_token,
        organization, project, purge_clock, replay,
    },
    migration,
    open_error::{OpenError, OpenFailure},
    postgres::{self, PostgresConfig},
    sqlite,
};

/// The most problems of SQLite's own check that are reported.
const MAX_PROBLEMS: usize = 10;

/// The result of a check.
#[derive(Debug)]
pub struct DatabaseReport {
    /// The database and the version of its program.
    pub database: String,
    /// The migrations that have to be applied.
    pub pending: Vec<String>,
    /// The tables and their numbers of rows; none if migrations are pending.
    pub tables: Vec<(String, u64)>,
    /// Descriptions of what is damaged.
    pub problems: Vec<String>,
}

impl DatabaseReport {
    /// Checks the SQLite file at `path`.
    pub async fn of_sqlite(path: &Path) -> Result<DatabaseReport, OpenError> {
        let report = async {
            let db = sqlite::open_read_only(path).await?;
            let version = text(&db, "SELECT sqlite_version()").await?;
            let mut report =
                DatabaseReport::of(&db, format!("{}, SQLite {version}", path.display())).await?;
            report.problems = sqlite_problems(&db).await?;
            db.close().await?;
            Ok(report)
        };
        report
            .await
            .map_err(|failure: OpenFailure| failure.of(path.display()))
    }

    /// Checks a PostgreSQL database.
    pub async fn of_postgres(config: &PostgresConfig) -> Result<DatabaseReport, OpenError> {
        let report = async {
            let db = postgres::connect(config).await?;
            let version = text(&db, "SELECT current_setting('server_version')").await?;
            let report = DatabaseReport::of(&db, format!("{config}, version {version}")).await?;
            db.close().await?;
            Ok(report)
        };
        report
            .await
            .map_err(|failure: OpenFailure| failure.of(config))
    }

    async fn of(db: &DatabaseConnection, database: String) -> Result<DatabaseReport, OpenFailure> {
        let pending = migration::pending(db).await?;
        let tables = match pending.is_empty() {
            true => tables(db).await?,
            false => Vec::new(),
        };
        Ok(DatabaseReport {
            database,
            pending,
            tables,
            problems: Vec::new(),
        })
    }
}

/// Reads from every table.
async fn tables(db: &DatabaseConnection) -> Result<Vec<(String, u64)>, DbErr> {
    Ok(vec![
        table::<organization::Entity>(db).await?,
        table::<project::Entity>(db).await?,
        table::<api_key::Entity>(db).await?,
        table::<browser::Entity>(db).await?,
        table::<browser_tag::Entity>(db).await?,
        table::<host::Entity>(db).await?,
        table::<replay::Entity>(db).await?,
        table::<audit_log::Entity>(db).await?,
        table::<purge_clock::Entity>(db).await?,
        table::<control_process::Entity>(db).await?,
        table::<join_token::Entity>(db).await?,
        table::<host_launch::Entity>(db).await?,
    ])
}

/// Reads a row, which fails if the table lacks a column, and counts the rows.
async fn table<E>(db: &DatabaseConnection) -> Result<(String, u64), DbErr>
where
    E: EntityTrait,
    E::Model: FromQueryResult + Send + Sync,
{
    E::find().one(db).await?;
    let rows = E::find().count(db).await?;
    Ok((
        sea_orm::EntityName::table_name(&E::default()).to_owned(),
        rows,
    ))
}

/// Has SQLite check the structure of the file and the foreign keys.
async fn sqlite_problems(db: &DatabaseConnection) -> Result<Vec<String>, DbErr> {
    let check = format!("PRAGMA quick_check({MAX_PROBLEMS})");
    let mut problems = Vec::new();
    for row in db
        .query_all_raw(statement(DbBackend::Sqlite, &check))
        .await?
    {
        let found: String = row.try_get_by_index(0)?;
        if found != "ok" {
            problems.push(found);
        }
    }
    let check = "SELECT DISTINCT \"table\", \"parent\" FROM pragma_foreign_key_check";
    for row in db
        .query_all_raw(statement(DbBackend::Sqlite, check))
        .await?
    {
        let (table, parent): (String, String) =
            (row.try_get_by_index(0)?, row.try_get_by_index(1)?);
        problems.push(format!("rows of {table} refer to missing rows of {parent}"));
    }
    Ok(problems)
}

/// Returns the only value of a query.
async fn text(db: &DatabaseConnection, query: &str) -> Result<String, DbErr> {
    let row = db.query_one_raw(statement(db.get_database_backend(), query));
    match row.await? {
        Some(row) => row.try_get_by_index(0),
        None => Err(DbErr::RecordNotFound(query.to_owned())),
    }
}

fn statement(backend: DbBackend, query: &str) -> Statement {
    Statement::from_string(backend, query.to_owned())
}

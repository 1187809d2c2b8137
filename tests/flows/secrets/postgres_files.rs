//! The files of a PostgreSQL server, with its write-ahead log.

use std::{
    fs,
    path::{Path, PathBuf},
};

use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::search::{LeakSearch, OutputKind};
use crate::support::postgres::PostgresDatabase;

/// The length of the name of a segment of the write-ahead log.
const SEGMENT_NAME: usize = 24;
/// The bytes of a page of the log, of its header, and of that of the first page of a segment.
const PAGE: usize = 8192;
const HEADER: usize = 24;
const FIRST_HEADER: usize = 40;

/// The files of the server of a database, and the position in the write-ahead log at a time. The
/// server retains its log for the whole run of the tests (`scripts/postgres`).
pub(super) struct PostgresFiles<'a> {
    database: &'a PostgresDatabase,
    first_segment: String,
}

impl<'a> PostgresFiles<'a> {
    pub(super) async fn of(database: &'a PostgresDatabase) -> Self {
        Self {
            database,
            first_segment: query(database, CURRENT_SEGMENT).await,
        }
    }

    /// Has the server write everything to its files, and searches those that belong to the database
    /// or to all, the log since the position, and the messages of the server.
    pub(super) async fn search(&self, search: &mut LeakSearch) {
        let checkpoint = ["CHECKPOINT".to_owned()];
        self.database.execute_as_superuser(&checkpoint).await;
        let last_segment = query(self.database, CURRENT_SEGMENT).await;
        let own = query(self.database, OWN_DIRECTORY).await;
        let directory = PathBuf::from(self.database.setting("data_directory").await);
        let log = fs::read_dir(directory.join("pg_wal"));
        for segment in log.expect("readable files of the server") {
            let path = segment.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            let range = self.first_segment.as_str()..=last_segment.as_str();
            if name.len() == SEGMENT_NAME && range.contains(&name) {
                let records = records(&fs::read(&path).unwrap());
                search.bytes(OutputKind::PostgresLog, name, &records);
            }
        }
        search.files(&directory, |path| {
            let mut parts = path.iter().map(|part| part.to_str().unwrap_or_default());
            match (parts.next()?, parts.next().unwrap_or_default()) {
                ("pg_wal", _) => None,
                ("base", name) if name != own => None,
                _ => Some(OutputKind::PostgresFile),
            }
        });
        let is_log = |path: &Path| (path == "log").then_some(OutputKind::PostgresFile);
        search.files(directory.parent().unwrap(), is_log);
    }
}

/// Returns the records of a segment of the log, without the headers of its pages, which may be in
/// the middle of a record.
fn records(segment: &[u8]) -> Vec<u8> {
    let pages = segment.chunks(PAGE).enumerate();
    let records = pages.flat_map(|(number, page)| match number {
        0 => &page[FIRST_HEADER..],
        _ => &page[HEADER..],
    });
    records.copied().collect()
}

const CURRENT_SEGMENT: &str = "SELECT pg_walfile_name(pg_current_wal_insert_lsn())";
const OWN_DIRECTORY: &str = "SELECT oid::text FROM pg_database WHERE datname = current_database()";

async fn query(database: &PostgresDatabase, query: &str) -> String {
    let mut connection = PgConnection::connect(&database.url()).await.unwrap();
    let result = sqlx::query_scalar(AssertSqlSafe(query.to_owned()));
    let result = result.fetch_one(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    result
}

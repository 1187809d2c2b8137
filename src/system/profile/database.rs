//! Chromium's SQLite databases: how many cookies each domain has, and what storage buckets there
//! are. No value of a cookie is read.
//!
//! A database is untrusted, and a private copy. SQLite may change it: a database that was copied
//! between two writes has a journal that must be rolled back first.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
    time::Duration,
};

use futures::executor::block_on;
use sqlx::{
    ConnectOptions, Connection, Row,
    sqlite::{SqliteConnectOptions, SqliteConnection},
};

use super::FLUSH_DOMAIN;

/// The suffixes of the files that complete a database.
pub const COMPANION_SUFFIXES: [&str; 2] = ["-journal", "-wal"];

/// The limit on rows of a result.
const MAX_ROWS: u32 = 100_000;
/// The limit on a storage key in characters. Longer ones are cut.
const MAX_STORAGE_KEY_CHARS: u32 = 1024;
/// The limit on a part of a cookie's identity in characters. Longer ones are cut.
const MAX_COOKIE_PART_CHARS: u32 = 1024;
/// The limit on a domain in characters. Longer ones, which are none, are cut.
const MAX_DOMAIN_CHARS: u32 = 255;
/// The number of instructions of SQLite's machine after which a query is interrupted: enough for
/// more than a million rows.
const INSTRUCTIONS_PER_CHECK: i32 = 1_000_000;
const MAX_CHECKS: u32 = 50;
/// The longest wait for a lock. Nothing else has the copy open.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);
/// The last bytes of a journal that names a further journal.
const SUPER_JOURNAL_MAGIC: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];

#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    #[error("is not a readable database: {0}")]
    Sqlite(#[from] sqlx::Error),
    #[error("has no table `{0}`")]
    NoTable(&'static str),
    #[error("has a table `{0}` of an unknown form")]
    UnknownTable(&'static str),
    #[error("has a journal that depends on another database")]
    SuperJournal,
    #[error("has more than {MAX_ROWS} rows")]
    TooManyRows,
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A cookie without its value. The parts are those of its database, up to a length.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CookieId {
    pub domain: String,
    pub path: String,
    pub name: String,
}

impl CookieId {
    #[must_use]
    pub fn new(domain: &str, path: &str, name: &str) -> CookieId {
        let part = |text: &str| text.chars().take(MAX_COOKIE_PART_CHARS as usize).collect();
        CookieId {
            domain: part(domain),
            path: part(path),
            name: part(name),
        }
    }
}

/// Returns the number of cookies that have not expired, by their domain. Session cookies have no
/// expiry.
///
/// # Errors
/// If it is not a readable database of cookies.
pub fn count_cookies(database: &Path) -> Result<BTreeMap<String, u64>, DatabaseError> {
    // Times are in microseconds since 1601.
    let query = format!(
        "SELECT substr(host_key, 1, {MAX_DOMAIN_CHARS}), count(*) FROM cookies
         WHERE host_key <> '{FLUSH_DOMAIN}' AND host_key <> ''
             AND (is_persistent <> 1 OR expires_utc > (unixepoch() + 11644473600) * 1000000)
         GROUP BY 1 LIMIT {MAX_ROWS} + 1"
    );
    let columns = ["host_key", "is_persistent", "expires_utc"];
    let rows = read(database, "cookies", &columns, &query)?;
    let counts = rows.into_iter();
    Ok(counts
        .map(|(domain, count)| (domain, count.unsigned_abs()))
        .collect())
}

/// Returns the cookies, without those that make Chromium write.
///
/// # Errors
/// If it is not a readable database of cookies.
pub fn cookie_ids(database: &Path) -> Result<BTreeSet<CookieId>, DatabaseError> {
    // A name may have a tab.
    let query = format!(
        "SELECT substr(host_key, 1, {MAX_COOKIE_PART_CHARS}) || char(9)
             || substr(path, 1, {MAX_COOKIE_PART_CHARS}) || char(9)
             || substr(name, 1, {MAX_COOKIE_PART_CHARS}), 0
         FROM cookies WHERE host_key <> '{FLUSH_DOMAIN}' LIMIT {MAX_ROWS} + 1"
    );
    let rows = read(database, "cookies", &["host_key", "path", "name"], &query)?;
    let ids = rows.iter().filter_map(|(text, _)| {
        let mut parts = text.splitn(3, '\t');
        let (domain, path, name) = (parts.next()?, parts.next()?, parts.next()?);
        Some(CookieId::new(domain, path, name))
    });
    Ok(ids.collect())
}

/// Returns the storage key of each storage bucket by the number that names its directory.
///
/// # Errors
/// If it is not a readable database of storage buckets.
pub fn bucket_storage_keys(database: &Path) -> Result<BTreeMap<i64, String>, DatabaseError> {
    let query = format!(
        "SELECT substr(storage_key, 1, {MAX_STORAGE_KEY_CHARS}), id FROM buckets
         LIMIT {MAX_ROWS} + 1"
    );
    let columns = ["storage_key", "id"];
    let rows = read(database, "buckets", &columns, &query)?;
    Ok(rows.into_iter().map(|(key, id)| (id, key)).collect())
}

/// Returns the number of saved passwords.
///
/// # Errors
/// If it is not a readable database of saved passwords.
pub fn count_logins(database: &Path) -> Result<u64, DatabaseError> {
    let query = "SELECT '', count(*) FROM logins WHERE blacklisted_by_user = 0";
    let rows = read(database, "logins", &["blacklisted_by_user"], query)?;
    Ok(rows.first().map_or(0, |(_, count)| count.unsigned_abs()))
}

fn read(
    database: &Path,
    table: &'static str,
    columns: &[&str],
    query: &str,
) -> Result<Vec<(String, i64)>, DatabaseError> {
    reject_super_journal(database)?;
    let options = SqliteConnectOptions::new()
        .filename(database)
        .busy_timeout(LOCK_TIMEOUT)
        .pragma("trusted_schema", "OFF")
        .pragma("cell_size_check", "ON")
        .disable_statement_logging();
    // SQLite works on a thread of its own, and needs no runtime.
    block_on(async {
        let mut connection = options.connect().await?;
        let read = query_rows(&mut connection, table, columns, query).await;
        connection.close().await?;
        read
    })
}

async fn query_rows(
    connection: &mut SqliteConnection,
    table: &'static str,
    columns: &[&str],
    query: &str,
) -> Result<Vec<(String, i64)>, DatabaseError> {
    let mut checks = 0;
    connection
        .lock_handle()
        .await?
        .set_progress_handler(INSTRUCTIONS_PER_CHECK, move || {
            checks += 1;
            checks < MAX_CHECKS
        });
    check_table(connection, table, columns).await?;
    let query = sqlx::query(sqlx::AssertSqlSafe(query));
    let rows = query.fetch_all(connection).await?;
    if rows.len() > MAX_ROWS as usize {
        return Err(DatabaseError::TooManyRows);
    }
    let parse = |row: &sqlx::sqlite::SqliteRow| Ok((row.try_get(0)?, row.try_get(1)?));
    rows.iter().map(parse).collect()
}

/// Rejects what is no plain table: a view, a virtual table or a generated column may take any time.
async fn check_table(
    connection: &mut SqliteConnection,
    table: &'static str,
    columns: &[&str],
) -> Result<(), DatabaseError> {
    let plain =
        "SELECT count(*) FROM sqlite_schema WHERE name = ? AND type = 'table' AND rootpage > 0";
    let found: i64 = sqlx::query_scalar(plain)
        .bind(table)
        .fetch_one(&mut *connection)
        .await?;
    if found == 0 {
        return Err(DatabaseError::NoTable(table));
    }
    for column in columns {
        let stored = "SELECT count(*) FROM pragma_table_xinfo(?) WHERE name = ? AND hidden = 0";
        let found: i64 = sqlx::query_scalar(stored)
            .bind(table)
            .bind(*column)
            .fetch_one(&mut *connection)
            .await?;
        if found == 0 {
            return Err(DatabaseError::UnknownTable(table));
        }
    }
    Ok(())
}

/// Rejects a journal that names a further one: SQLite opens and deletes the file of that name,
/// wherever it is. Chromium writes no such journal.
fn reject_super_journal(database: &Path) -> Result<(), DatabaseError> {
    let mut journal = match File::open(companion(database, "-journal")) {
        Ok(journal) => journal,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let mut end = [0; SUPER_JOURNAL_MAGIC.len()];
    let length = journal.metadata()?.len();
    if length >= end.len() as u64 {
        journal.seek(SeekFrom::Start(length - end.len() as u64))?;
        journal.read_exact(&mut end)?;
    }
    match end == SUPER_JOURNAL_MAGIC {
        true => Err(DatabaseError::SuperJournal),
        false => Ok(()),
    }
}

/// Returns the path of a file that completes a database.
#[must_use]
pub fn companion(database: &Path, suffix: &str) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs;

    use super::*;

    pub(crate) const COOKIES: &str =
        "CREATE TABLE cookies(host_key TEXT NOT NULL, name TEXT NOT NULL,
        is_persistent INTEGER NOT NULL, expires_utc INTEGER NOT NULL)";

    /// Creates a database.
    pub(crate) fn create(path: &Path, statements: &[&str]) {
        let options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true);
        block_on(async {
            let mut connection = options.connect().await.unwrap();
            for statement in statements {
                let statement = sqlx::query(sqlx::AssertSqlSafe(*statement));
                statement.execute(&mut connection).await.unwrap();
            }
            connection.close().await.unwrap();
        });
    }

    fn directory() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("Cookies");
        (directory, path)
    }

    #[test]
    fn cookies_are_counted_by_domain_unless_they_have_expired() {
        let (_directory, path) = directory();
        create(
            &path,
            &[
                COOKIES,
                "INSERT INTO cookies VALUES ('.example.com', 'a', 1, 99999999999999999),
                    ('.example.com', 'session', 0, 0), ('old.example', 'a', 1, 13000000000000000),
                    ('other.example', 'a', 1, 99999999999999999)",
                &format!(
                    "INSERT INTO cookies VALUES ('{FLUSH_DOMAIN}', 'a', 1, 99999999999999999)"
                ),
            ],
        );
        let counts = count_cookies(&path).unwrap();
        let expected = [
            (".example.com".to_owned(), 2),
            ("other.example".to_owned(), 1),
        ];
        assert_eq!(counts, expected.into());
    }

    #[test]
    fn domain_is_cut_when_it_is_too_long() {
        let (_directory, path) = directory();
        let insert = "INSERT INTO cookies VALUES (printf('%.*c', 300, 'x'), 'a', 1, \
            99999999999999999)";
        create(&path, &[COOKIES, insert]);
        let counts = count_cookies(&path).unwrap();
        assert_eq!(counts, [("x".repeat(255), 1)].into());
    }

    #[test]
    fn cookies_have_ids() {
        let (_directory, path) = directory();
        let long = "x".repeat(2000);
        create(
            &path,
            &[
                "CREATE TABLE cookies(host_key TEXT NOT NULL, path TEXT NOT NULL, name TEXT NOT NULL)",
                &format!(
                    "INSERT INTO cookies VALUES ('.example.com', '/', ''), ('a.example', '/p', '{long}'),
                        ('{FLUSH_DOMAIN}', '/', 'flush')"
                ),
            ],
        );
        let expected = [
            CookieId::new(".example.com", "/", ""),
            CookieId::new("a.example", "/p", &long),
        ];
        assert_eq!(cookie_ids(&path).unwrap(), expected.into());
    }

    #[test]
    fn buckets_have_storage_keys() {
        let (_directory, path) = directory();
        create(
            &path,
            &[
                "CREATE TABLE buckets(id INTEGER PRIMARY KEY, storage_key TEXT NOT NULL) STRICT",
                "INSERT INTO buckets VALUES (7, 'https://example.com/')",
            ],
        );
        let keys = bucket_storage_keys(&path).unwrap();
        assert_eq!(keys, [(7, "https://example.com/".to_owned())].into());
    }

    #[test]
    fn query_that_does_not_end_is_not_run() {
        let endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)
            SELECT x AS host_key, 0 AS is_persistent, 0 AS expires_utc FROM n";
        let generated =
            "CREATE TABLE cookies(name TEXT, is_persistent INTEGER, expires_utc INTEGER,
            host_key TEXT GENERATED ALWAYS AS (hex(zeroblob(100000000))) VIRTUAL)";
        for (statement, message) in [
            (
                format!("CREATE VIEW cookies AS {endless}"),
                "has no table `cookies`",
            ),
            (
                generated.to_owned(),
                "has a table `cookies` of an unknown form",
            ),
            ("CREATE TABLE other(x)".to_owned(), "has no table `cookies`"),
        ] {
            let (_directory, path) = directory();
            create(&path, &[&statement]);
            assert_eq!(count_cookies(&path).unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn query_is_interrupted_after_its_instructions() {
        let (_directory, path) = directory();
        create(&path, &[COOKIES]);
        let endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)
            SELECT '', count(*) FROM n";
        let error = read(&path, "cookies", &[], endless).unwrap_err();
        assert!(error.to_string().ends_with("interrupted"), "{error}");
    }

    #[test]
    fn file_that_is_no_database_is_an_error() {
        let (_directory, path) = directory();
        fs::write(
            &path,
            "no database at all, but long enough for a header: ".repeat(40),
        )
        .unwrap();
        let error = count_cookies(&path).unwrap_err().to_string();
        assert!(error.starts_with("is not a readable database"), "{error}");
        assert!(count_cookies(Path::new("/nonexistent/Cookies")).is_err());
    }

    #[test]
    fn journal_that_names_another_one_is_rejected_before_its_file_is_deleted() {
        let (directory, path) = directory();
        create(&path, &[COOKIES]);
        let victim = directory.path().join("victim");
        fs::write(&victim, "").unwrap();
        let name = victim.to_str().unwrap().as_bytes();
        let mut journal = vec![0; 512];
        journal.extend(name);
        journal.extend((name.len() as u32).to_be_bytes());
        let sum: u32 = name.iter().map(|byte| u32::from(*byte)).sum();
        journal.extend(sum.to_be_bytes());
        journal.extend(SUPER_JOURNAL_MAGIC);
        fs::write(companion(&path, "-journal"), &journal).unwrap();
        let error = count_cookies(&path).unwrap_err();
        assert!(matches!(error, DatabaseError::SuperJournal), "{error}");
        assert!(victim.exists());
    }
}

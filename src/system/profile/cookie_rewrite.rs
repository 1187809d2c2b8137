//! Encrypting the cookies of a copied profile so that a Chromium on another machine reads them.

use std::{collections::BTreeMap, path::Path};

use futures::executor::block_on;
use sqlx::{
    ConnectOptions, Connection, Row,
    sqlite::{SqliteConnectOptions, SqliteConnection},
};

use super::cookie_cipher::{CookieCipher, CookieKey, KEY_RING_VERSION};

/// The version of the database since which values are encrypted together with their domain.
const DIGEST_VERSION: i64 = 24;
/// The number of cookies that are held in memory at once.
const ROWS_PER_READ: i64 = 1_000;

/// The cookies that were deleted, because no key decrypts them, by domain.
pub type UndecryptedCookies = BTreeMap<String, u64>;

/// Why cookies were not rewritten.
#[derive(Debug, thiserror::Error)]
pub enum CookieRewriteError {
    #[error("their database is not readable: {0}")]
    Sqlite(#[from] sqlx::Error),
    #[error("their database is damaged, or changed while it was copied")]
    Damaged,
}

/// Returns whether a key of a key ring is needed for a cookie. Blocks.
///
/// # Errors
/// If it is not a readable database of cookies.
pub fn has_key_ring_cookies(database: &Path) -> Result<bool, CookieRewriteError> {
    let options = SqliteConnectOptions::new()
        .filename(database)
        .disable_statement_logging();
    block_on(async {
        let mut connection = options.connect().await?;
        let query = "SELECT EXISTS (SELECT 1 FROM cookies WHERE substr(encrypted_value, 1, 3) = ?)";
        let found = sqlx::query_scalar(query)
            .bind(KEY_RING_VERSION)
            .fetch_one(&mut connection)
            .await;
        connection.close().await?;
        Ok(found?)
    })
}

/// Encrypts all cookies of a database with the key of every Chromium. Deletes those that cannot be
/// decrypted. Blocks.
///
/// # Errors
/// If it is not a readable database of cookies.
pub fn rewrite_cookies(
    database: &Path,
    key_ring: Vec<CookieKey>,
) -> Result<UndecryptedCookies, CookieRewriteError> {
    let options = SqliteConnectOptions::new()
        .filename(database)
        .disable_statement_logging();
    block_on(async {
        let mut connection = options.connect().await?;
        let rewritten = rewrite(&mut connection, key_ring).await;
        connection.close().await?;
        rewritten
    })
}

async fn rewrite(
    connection: &mut SqliteConnection,
    key_ring: Vec<CookieKey>,
) -> Result<UndecryptedCookies, CookieRewriteError> {
    let check: String = sqlx::query_scalar("PRAGMA quick_check(1)")
        .fetch_one(&mut *connection)
        .await?;
    if check != "ok" {
        return Err(CookieRewriteError::Damaged);
    }
    let version: String = sqlx::query_scalar("SELECT value FROM meta WHERE key = 'version'")
        .fetch_one(&mut *connection)
        .await?;
    let version = version.parse().unwrap_or(0_i64);
    let cipher = CookieCipher::new(key_ring, version >= DIGEST_VERSION);
    let mut undecrypted = UndecryptedCookies::new();
    let mut transaction = connection.begin().await?;
    let mut last = i64::MIN;
    loop {
        let rows = sqlx::query(
            "SELECT rowid, host_key, encrypted_value FROM cookies
             WHERE rowid > ? AND length(encrypted_value) > 0 ORDER BY rowid LIMIT ?",
        )
        .bind(last)
        .bind(ROWS_PER_READ)
        .fetch_all(&mut *transaction)
        .await?;
        if rows.is_empty() {
            break;
        }
        for row in rows {
            last = row.try_get(0)?;
            let domain: String = row.try_get(1)?;
            let value: Vec<u8> = row.try_get(2)?;
            let statement = match cipher.reencrypt(&domain, &value) {
                Some(value) => {
                    sqlx::query("UPDATE cookies SET encrypted_value = ? WHERE rowid = ?")
                        .bind(value)
                        .bind(last)
                }
                None => {
                    *undecrypted.entry(domain).or_default() += 1;
                    sqlx::query("DELETE FROM cookies WHERE rowid = ?").bind(last)
                }
            };
            statement.execute(&mut *transaction).await?;
        }
    }
    transaction.commit().await?;
    // Nothing of a deleted cookie stays in the file.
    sqlx::query("VACUUM").execute(&mut *connection).await?;
    Ok(undecrypted)
}

#[cfg(test)]
mod tests {
    use secrecy::SecretString;
    use sha2::{Digest, Sha256};

    use super::*;
    use crate::system::profile::{cookie_cipher::tests::encrypted, database::tests::create};

    const PASSWORD: &str = "of the key ring";

    fn insert(id: i64, domain: &str, value: &[u8]) -> String {
        let value: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("INSERT INTO cookies VALUES ({id}, '{domain}', '', x'{value}')")
    }

    fn values(database: &Path) -> Vec<(i64, Vec<u8>)> {
        let options = SqliteConnectOptions::new().filename(database);
        block_on(async {
            let mut connection = options.connect().await.unwrap();
            let query = "SELECT rowid, encrypted_value FROM cookies ORDER BY rowid";
            let rows = sqlx::query_as(query).fetch_all(&mut connection).await;
            connection.close().await.unwrap();
            rows.unwrap()
        })
    }

    #[test]
    fn cookies_are_encrypted_with_basic_key_or_deleted() {
        let directory = tempfile::tempdir().unwrap();
        let database = directory.path().join("Cookies");
        let plain = |domain: &str| [&Sha256::digest(domain)[..], b"value"].concat();
        let basic = encrypted(b"v10", "peanuts", &plain("a.example"));
        let of_ring = encrypted(b"v11", PASSWORD, &plain("b.example"));
        let of_other = encrypted(b"v11", "other", &plain("c.example"));
        let mut statements = vec![
            "CREATE TABLE meta(key TEXT, value TEXT)".to_owned(),
            "INSERT INTO meta VALUES ('version', '24')".to_owned(),
            "CREATE TABLE cookies(id INTEGER PRIMARY KEY, host_key TEXT, value TEXT,
                encrypted_value BLOB)"
                .to_owned(),
            insert(1, "a.example", &basic),
            insert(2, "b.example", &of_ring),
            insert(3, "c.example", &of_other),
            insert(4, "c.example", b"v20-of-another-system"),
            insert(5, "d.example", b""),
        ];
        // More than are read at once.
        statements.extend((10..1_200).map(|id| insert(id, "a.example", &basic)));
        let statements: Vec<&str> = statements.iter().map(String::as_str).collect();
        create(&database, &statements);
        assert!(has_key_ring_cookies(&database).unwrap());
        let key = CookieKey::from_password(&SecretString::from(PASSWORD));
        let undecrypted = rewrite_cookies(&database, vec![key]).unwrap();
        assert_eq!(undecrypted, [("c.example".to_owned(), 2)].into());
        let values = values(&database);
        assert_eq!(values.len(), 1_193);
        assert_eq!(values[0], (1, basic));
        let expected = encrypted(b"v10", "peanuts", &plain("b.example"));
        assert_eq!(values[1], (2, expected));
        assert_eq!(values[2], (5, Vec::new()));
        assert!(!has_key_ring_cookies(&database).unwrap());
        let content = std::fs::read(&database).unwrap();
        let deleted = memchr::memmem::find(&content, b"v20-of-another-system");
        assert_eq!(deleted, None);
    }

    #[test]
    fn unreadable_database_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let database = directory.path().join("Cookies");
        std::fs::write(&database, [7; 9_000]).unwrap();
        let error = rewrite_cookies(&database, Vec::new()).unwrap_err();
        assert!(matches!(error, CookieRewriteError::Sqlite(_)), "{error}");
        assert!(has_key_ring_cookies(&database).is_err());
    }
}

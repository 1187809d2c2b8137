//! The validated address of a PostgreSQL database.

use std::{fmt, net::IpAddr, str::FromStr, time::Duration};

use secrecy::{ExposeSecret, SecretString};
use sqlx::{ConnectOptions, postgres::PgConnectOptions};
use url::Url;

/// The longest time a statement may run. Migrations have no such limit.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest wait of a statement for a lock of another transaction.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
/// The time after which the server ends a transaction whose client sends no statement.
const IDLE_IN_TRANSACTION_TIMEOUT: Duration = Duration::from_secs(30);

/// The parameters that a URL may have. `options` are those of the server, such as `search_path`.
const PARAMETERS: [&str; 11] = [
    "application_name",
    "dbname",
    "host",
    "options",
    "password",
    "port",
    "sslcert",
    "sslkey",
    "sslmode",
    "sslrootcert",
    "user",
];

/// The address of a database, the user and the password, and the number of connections.
#[derive(Clone)]
pub struct PostgresConfig {
    pub(super) options: PgConnectOptions,
    pub connections: u32,
}

/// Why a URL does not name a PostgreSQL database. No message contains a part of the URL that could
/// belong to a password.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum UrlError {
    #[error("is not a URL: {0}; special characters in the password must be percent-encoded")]
    Invalid(url::ParseError),
    #[error("must begin with postgres://")]
    Scheme,
    /// The rest of a password with a `#` or `/` that is not encoded.
    #[error(
        "must have one path segment and no fragment; `/`, `#` and `@` in the password must be percent-encoded"
    )]
    Path,
    /// Does not name it, because it may be the rest of a password with a `?`.
    #[error("has an unknown parameter; known are {}", PARAMETERS.join(", "))]
    Parameter,
    #[error("is invalid: {0}")]
    Value(String),
    #[error(
        "must have the parameter `sslmode`, because {host} is another machine: verify-full, or disable on a network that you trust"
    )]
    NoSslMode { host: String },
    #[error(
        "must have no password, which other users could see in the list of processes; use --database-url-file or BERTH_DATABASE_URL"
    )]
    Password,
}

impl PostgresConfig {
    /// Parses `postgres://USER:PASSWORD@HOST:PORT/NAME?PARAMETERS`. What the URL lacks comes from
    /// libpq's environment variables and password file.
    pub fn parse(url: &SecretString, connections: u32) -> Result<PostgresConfig, UrlError> {
        let url = Url::parse(url.expose_secret()).map_err(UrlError::Invalid)?;
        if !matches!(url.scheme(), "postgres" | "postgresql") {
            return Err(UrlError::Scheme);
        }
        let path = url.path().trim_start_matches('/');
        if path.contains(['/', '@']) || url.fragment().is_some() {
            return Err(UrlError::Path);
        }
        for (name, _) in url.query_pairs() {
            if !PARAMETERS.contains(&&*name) && !name.starts_with("options[") {
                return Err(UrlError::Parameter);
            }
        }
        let options = PgConnectOptions::from_url(&url);
        let options = options.map_err(|error| UrlError::Value(error.to_string()))?;
        let has_ssl_mode = url.query_pairs().any(|(name, _)| name == "sslmode");
        if let Some(host) = remote_host(&options)
            && !has_ssl_mode
        {
            let host = host.to_owned();
            return Err(UrlError::NoSslMode { host });
        }
        Ok(PostgresConfig {
            options: with_session_settings(options),
            connections,
        })
    }

    /// Parses a URL from the command line, where a password could be read by every local user.
    pub fn parse_without_password(url: &str, connections: u32) -> Result<PostgresConfig, UrlError> {
        let parsed = Url::parse(url).map_err(UrlError::Invalid)?;
        let in_query = parsed.query_pairs().any(|(name, _)| name == "password");
        if parsed.password().is_some() || in_query {
            return Err(UrlError::Password);
        }
        PostgresConfig::parse(&url.into(), connections)
    }

    pub(in crate::control::store) fn database(&self) -> &str {
        let user = self.options.get_username();
        self.options.get_database().unwrap_or(user)
    }

    pub(in crate::control::store) fn user(&self) -> &str {
        self.options.get_username()
    }
}

/// Names the database in messages, without user and password.
impl fmt::Display for PostgresConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let options = &self.options;
        let host = match options.get_socket() {
            Some(directory) => directory.display().to_string(),
            None => options.get_host().to_owned(),
        };
        let (database, port) = (self.database(), options.get_port());
        write!(f, "PostgreSQL database {database} at {host}:{port}")
    }
}

impl fmt::Debug for PostgresConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Returns the host unless it is this machine.
fn remote_host(options: &PgConnectOptions) -> Option<&str> {
    let host = options.get_host();
    let address = IpAddr::from_str(host.trim_start_matches('[').trim_end_matches(']'));
    let is_local = options.get_socket().is_some()
        || host.starts_with('/')
        || host == "localhost"
        || address.is_ok_and(|address| address.is_loopback());
    (!is_local).then_some(host)
}

/// Adds what every session has. The settings of the URL's `options` come before it.
fn with_session_settings(options: PgConnectOptions) -> PgConnectOptions {
    let millis = |time: Duration| time.as_millis().to_string();
    let name = options.get_application_name().unwrap_or("berth").to_owned();
    options
        .application_name(&name)
        .disable_statement_logging()
        .options([
            ("statement_timeout", millis(STATEMENT_TIMEOUT)),
            ("lock_timeout", millis(LOCK_TIMEOUT)),
            (
                "idle_in_transaction_session_timeout",
                millis(IDLE_IN_TRANSACTION_TIMEOUT),
            ),
            ("default_transaction_isolation", "read committed".to_owned()),
            ("client_min_messages", "warning".to_owned()),
            // The server notices within half a minute that the machine of a client has died, and
            // releases its locks.
            ("tcp_keepalives_idle", "10".to_owned()),
            ("tcp_keepalives_interval", "5".to_owned()),
            ("tcp_keepalives_count", "3".to_owned()),
        ])
}

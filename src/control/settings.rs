//! The settings of control, as options and environment variables, and the validated configuration.

use std::{net::SocketAddr, num::NonZeroU32, path::PathBuf, time::Duration};

use clap::builder::BoolishValueParser;
use secrecy::{ExposeSecret, SecretString};
use url::Url;

use super::{
    blobs::settings::{BlobConfig, BlobSettings, BlobSettingsError},
    caller_limits::CallerQuota,
    fleet::registered::{RegisteredFleetConfig, RegisteredFleetSettings},
    login_page::{LoginPageConfig, LoginPageSettings, LoginPageSettingsError},
    profiles::ProfileLimits,
    providers::settings::{ProviderSettings, ProviderSettingsConfig},
    purge::Retention,
    region::ServerRegion,
    replays::ReplayQuota,
    secrets::{key_ring::KeyRing, ring_source::RingSourceError, settings::SecretsSettings},
    session_token::SECRET_BYTES,
    state_dir::{StateDir, StateDirError, is_hex},
    store::{Fleet, PostgresConfig, UrlError},
    trusted_proxies::{ProxyNetwork, TrustedProxies},
};
use crate::token_setting;

mod local_fleet;

pub use local_fleet::{FleetConfig, FleetSettings};

/// The variable with the token for the metrics.
const METRICS_TOKEN: &str = "BERTH_METRICS_TOKEN";
/// The variable with the URL of the database, which may contain a password.
const DATABASE_URL: &str = "BERTH_DATABASE_URL";

/// Options of `berth control` and `berth dev`.
#[derive(Debug, Clone, clap::Args)]
pub struct Settings {
    /// Address and port to listen on; port 0 selects a free port
    #[arg(
        long,
        env = "BERTH_LISTEN",
        default_value = "127.0.0.1:8080",
        value_name = "ADDR:PORT"
    )]
    pub listen: SocketAddr,

    #[command(flatten)]
    pub state: StateSettings,

    #[command(flatten)]
    pub database: DatabaseSettings,

    #[command(flatten)]
    pub blobs: BlobSettings,

    /// Base URL at which clients reach this server [default: from the Host header]
    #[arg(long, env = "BERTH_PUBLIC_URL", value_name = "URL")]
    pub public_url: Option<Url>,

    /// Region of this server, which browsers and pools show; 1–64 letters, digits or `-`
    #[arg(
        long,
        env = "BERTH_REGION",
        default_value = "us-east",
        value_name = "NAME"
    )]
    pub region: ServerRegion,

    /// Seconds in which shutdown must complete (1–300)
    #[arg(long, env = "BERTH_STOP_SECONDS", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=300), value_name = "SECONDS")]
    pub stop_seconds: u64,

    /// Days for which the record of an ended browser, a deleted API key or a used-up join token is
    /// retained (1–3650)
    #[arg(long, env = "BERTH_KEEP_DAYS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=3650), value_name = "DAYS")]
    pub keep_days: u32,

    /// Days for which a finished replay is retained (1–3650)
    #[arg(long, env = "BERTH_KEEP_REPLAY_DAYS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=3650), value_name = "DAYS")]
    pub keep_replay_days: u32,

    /// Days for which the audit log is retained (1–3650)
    #[arg(long, env = "BERTH_KEEP_AUDIT_DAYS", default_value_t = 90, value_parser = clap::value_parser!(u32).range(1..=3650), value_name = "DAYS")]
    pub keep_audit_days: u32,

    /// Addresses or networks of proxies in front of this server, separated by commas, whose
    /// X-Forwarded-For is believed [default: none]
    #[arg(
        long,
        env = "BERTH_TRUSTED_PROXIES",
        value_delimiter = ',',
        value_name = "ADDR|NETWORK"
    )]
    pub trusted_proxies: Vec<ProxyNetwork>,

    /// Total size of stored replays in MiB above which new recordings are refused (1–16777216)
    #[arg(long, env = "BERTH_REPLAYS_MB", default_value_t = 20_480, value_parser = clap::value_parser!(u64).range(1..=16_777_216), value_name = "MIB")]
    pub replays_mb: u64,

    /// Total size of a project's stored replays in MiB above which its new recordings are refused
    /// (1–16777216) [default: no limit of its own]
    #[arg(long, env = "BERTH_PROJECT_REPLAYS_MB", value_parser = clap::value_parser!(u64).range(1..=16_777_216), value_name = "MIB")]
    pub project_replays_mb: Option<u64>,

    /// Maximum number of versions of a profile; older ones are deleted (1–1000)
    #[arg(long, env = "BERTH_PROFILE_VERSIONS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000), value_name = "N")]
    pub profile_versions: u32,

    /// Maximum size of a profile's archive in MiB (1–1048576)
    #[arg(long, env = "BERTH_PROFILE_MB", default_value_t = 4096, value_parser = clap::value_parser!(u64).range(1..=1_048_576), value_name = "MIB")]
    pub profile_mb: u64,

    /// Maximum number of auth connections of all projects (1–1000000)
    #[arg(long, env = "BERTH_MAX_AUTH_CONNECTIONS", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000), value_name = "N")]
    pub max_auth_connections: u32,

    /// Average number of requests of an API key per second (1–1000000)
    #[arg(long, env = "BERTH_REQUESTS_PER_SECOND", default_value = "10000", value_parser = requests_per_second, value_name = "N")]
    pub requests_per_second: NonZeroU32,

    /// Maximum number of open WebSockets, event streams and long downloads of an API key (1–100000)
    #[arg(long, env = "BERTH_MAX_STREAMS", default_value_t = 4000, value_parser = clap::value_parser!(u32).range(1..=100_000), value_name = "N")]
    pub max_streams: u32,

    /// File with a bearer token for the metrics alone, readable by its owner only; alternative: the
    /// variable BERTH_METRICS_TOKEN
    #[arg(long, env = "BERTH_METRICS_TOKEN_FILE", value_name = "FILE")]
    pub metrics_token_file: Option<PathBuf>,

    /// File with the secret that signs session tokens, 64 hexadecimal digits, readable by its owner
    /// only; several processes on one database need the same one [default: created in the state
    /// directory]
    #[arg(long, env = "BERTH_SESSION_SECRET_FILE", value_name = "FILE")]
    pub session_secret_file: Option<PathBuf>,

    #[command(flatten)]
    pub secrets: SecretsSettings,

    #[command(flatten)]
    pub providers: ProviderSettings,

    /// Permit filling credentials into pages with http, whose values everyone on their way through
    /// the network can read; pages of this machine are always permitted [default: false, with
    /// `berth dev` true]
    #[arg(
        long,
        env = "BERTH_ALLOW_HTTP_LOGINS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_parser = BoolishValueParser::new(),
        value_name = "BOOL"
    )]
    pub allow_http_logins: Option<bool>,

    #[command(flatten)]
    pub login_page: LoginPageSettings,

    /// Respond with 410 on the deprecated routes below /projects from 2026-11-24 on
    #[arg(long, env = "BERTH_ENFORCE_SUNSET")]
    pub enforce_sunset: bool,

    /// Hosts that new browsers get: those of this machine, which are started for them, or those
    /// that have registered themselves
    #[arg(
        long = "fleet",
        env = "BERTH_FLEET",
        default_value = "local",
        value_name = "FLEET"
    )]
    pub host_fleet: Fleet,

    #[command(flatten)]
    pub fleet: FleetSettings,

    #[command(flatten)]
    pub registered_fleet: RegisteredFleetSettings,
}

/// The options that select the state directory.
#[derive(Debug, Clone, clap::Args)]
pub struct StateSettings {
    /// Directory for the database, secrets and browsers' data
    /// [default: $XDG_STATE_HOME/berth or ~/.local/state/berth]
    #[arg(long, env = "BERTH_STATE_DIR", value_name = "DIR")]
    pub state_dir: Option<PathBuf>,

    #[arg(long, env = "XDG_STATE_HOME", hide = true)]
    xdg_state_home: Option<PathBuf>,

    #[arg(long, env = "HOME", hide = true)]
    home: Option<PathBuf>,
}

/// The options that select the database.
#[derive(Debug, Clone, clap::Args)]
pub struct DatabaseSettings {
    /// PostgreSQL database, postgres://USER@HOST/NAME, without a password; with one in the variable
    /// BERTH_DATABASE_URL [default: SQLite in the state directory]
    #[arg(long, value_name = "URL")]
    pub database_url: Option<String>,

    /// File with the URL of a PostgreSQL database and its password, readable by its owner only
    #[arg(long, env = "BERTH_DATABASE_URL_FILE", value_name = "FILE")]
    pub database_url_file: Option<PathBuf>,

    /// Maximum number of connections to PostgreSQL (2–500)
    #[arg(long, env = "BERTH_DATABASE_CONNECTIONS", default_value_t = 16, value_parser = clap::value_parser!(u32).range(2..=500), value_name = "N")]
    pub database_connections: u32,
}

/// The database of control.
#[derive(Debug, Clone)]
pub enum DatabaseConfig {
    /// A SQLite file in the state directory.
    Sqlite,
    Postgres(Box<PostgresConfig>),
}

impl DatabaseConfig {
    /// Returns the most connections to a server.
    #[must_use]
    pub fn connections(&self) -> usize {
        match self {
            DatabaseConfig::Sqlite => 0,
            DatabaseConfig::Postgres(config) => config.connections as usize,
        }
    }
}

/// The validated configuration of control.
#[derive(Debug, Clone)]
pub struct Config {
    pub listen: SocketAddr,
    /// Not validated; it may not exist yet.
    pub state_dir: PathBuf,
    pub database: DatabaseConfig,
    pub blobs: BlobConfig,
    pub public_url: Option<Url>,
    pub region: ServerRegion,
    pub shutdown_grace_period: Duration,
    pub retention: Retention,
    pub trusted_proxies: TrustedProxies,
    pub replay_quota: ReplayQuota,
    pub profile_limits: ProfileLimits,
    pub max_auth_connections: u32,
    pub caller_quota: CallerQuota,
    /// The token that is valid for the metrics only.
    pub metrics_token: Option<SecretString>,
    /// The secret of session tokens, if it is not that of the state directory.
    pub session_secret: Option<SecretString>,
    /// The keys of stored secrets, if they are not that of the state directory.
    pub secrets_keys: Option<KeyRing>,
    pub providers: ProviderSettingsConfig,
    /// Whether pages with `http` of other machines may be filled.
    pub allow_http_logins: bool,
    pub login_page: LoginPageConfig,
    /// Whether deprecated routes are gone from their sunset on.
    pub enforce_sunset: bool,
    /// The fleet that new browsers get their hosts from.
    pub host_fleet: Fleet,
    pub fleet: FleetConfig,
    pub registered_fleet: RegisteredFleetConfig,
}

/// The deadlines of the phases of a shutdown, counted from its request. The rest of its grace
/// period is for the removal of the browsers' directories.
#[derive(Debug, Clone, Copy)]
pub struct StopDeadlines {
    /// The agents have transferred their recordings.
    pub replays: Duration,
    /// The agents have exited. The others are killed then.
    pub agents: Duration,
}

impl StopDeadlines {
    fn within(grace_period: Duration) -> StopDeadlines {
        StopDeadlines {
            replays: grace_period.mul_f64(0.4),
            agents: grace_period.mul_f64(0.7),
        }
    }
}

/// Why the settings are invalid.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    #[error(transparent)]
    StateDir(#[from] StateDirError),
    #[error("--public-url: {0}")]
    PublicUrl(&'static str),
    #[error("--metrics-token-file: {0}")]
    MetricsToken(String),
    #[error("--session-secret-file: {0}")]
    SessionSecret(String),
    #[error(transparent)]
    SecretsKeys(#[from] RingSourceError),
    #[error("--fleet-ca-file: {0}")]
    FleetAuthority(String),
    #[error("--launch-command and --destroy-command: {0}")]
    LaunchCommands(&'static str),
    #[error(transparent)]
    Database(#[from] DatabaseSettingsError),
    #[error(transparent)]
    Blobs(#[from] BlobSettingsError),
    #[error(transparent)]
    LoginPage(#[from] LoginPageSettingsError),
    #[error("--{option}: {path} is not a file")]
    NoFile { option: &'static str, path: String },
    #[error("--chromium-flag: {}", .0.join("; "))]
    ChromiumFlags(Vec<String>),
    #[error("cannot determine the path of this program: {0}; set --agent-program")]
    OwnProgram(std::io::Error),
}

/// Why the settings of the database are invalid.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseSettingsError {
    #[error("--database-url-file: {0}")]
    File(String),
    /// The URL, which is not in the message, and the option, file or variable that has it.
    #[error("the database URL of {origin} {error}")]
    Url { origin: String, error: UrlError },
}

impl DatabaseSettings {
    /// Validates the settings without connecting. The option takes precedence over the file, and
    /// that over the variable.
    #[expect(
        clippy::disallowed_methods,
        reason = "an option would show the password in the list of processes"
    )]
    pub fn check(&self) -> Result<DatabaseConfig, DatabaseSettingsError> {
        let connections = self.database_connections;
        let invalid = |origin, error| DatabaseSettingsError::Url { origin, error };
        if let Some(url) = &self.database_url {
            let parsed = PostgresConfig::parse_without_password(url, connections);
            let config = parsed.map_err(|error| invalid("--database-url".to_owned(), error))?;
            return Ok(DatabaseConfig::Postgres(Box::new(config)));
        }
        let variable = (DATABASE_URL, std::env::var(DATABASE_URL).ok());
        let url = token_setting::read_secret(self.database_url_file.as_deref(), variable);
        let Some((url, origin)) = url.map_err(DatabaseSettingsError::File)? else {
            return Ok(DatabaseConfig::Sqlite);
        };
        let config = PostgresConfig::parse(&url, connections);
        let config = config.map_err(|error| invalid(origin, error))?;
        Ok(DatabaseConfig::Postgres(Box::new(config)))
    }
}

impl StateSettings {
    /// Returns the path of the state directory, which may not exist yet.
    pub fn path(&self) -> Result<PathBuf, StateDirError> {
        match &self.state_dir {
            Some(path) => Ok(path.clone()),
            None => StateDir::default_path(self.xdg_state_home.as_deref(), self.home.as_deref()),
        }
    }
}

impl Settings {
    /// Validates the settings without side effects. `log` is the log filter of the agents, too.
    pub fn check(&self, log: &str) -> Result<Config, SettingsError> {
        self.check_public_url()?;
        self.check_launch()?;
        let shutdown_grace_period = Duration::from_secs(self.stop_seconds);
        let stop_deadlines = StopDeadlines::within(shutdown_grace_period);
        Ok(Config {
            listen: self.listen,
            state_dir: self.state.path()?,
            database: self.database.check()?,
            blobs: self.blobs.check()?,
            public_url: self.public_url.clone(),
            region: self.region.clone(),
            shutdown_grace_period,
            retention: Retention {
                records: days(self.keep_days),
                replays: days(self.keep_replay_days),
                audit_log: days(self.keep_audit_days),
            },
            trusted_proxies: TrustedProxies::new(self.trusted_proxies.clone()),
            replay_quota: ReplayQuota {
                total_bytes: self.replays_mb << 20,
                project_bytes: self.project_replays_mb.map(|size| size << 20),
            },
            profile_limits: ProfileLimits {
                versions: self.profile_versions,
                archive_bytes: self.profile_mb << 20,
            },
            max_auth_connections: self.max_auth_connections,
            caller_quota: CallerQuota {
                requests_per_second: self.requests_per_second,
                streams: self.max_streams as usize,
            },
            metrics_token: self.metrics_token()?,
            session_secret: self.session_secret()?,
            secrets_keys: self.secrets.check()?,
            providers: self.providers.config(),
            allow_http_logins: self.allow_http_logins.unwrap_or_default(),
            login_page: self.login_page.check()?,
            enforce_sunset: self.enforce_sunset,
            host_fleet: self.host_fleet,
            fleet: self.fleet.check(log, stop_deadlines)?,
            registered_fleet: self.registered_fleet.check()?,
        })
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "an option would show the token in the list of processes"
    )]
    fn metrics_token(&self) -> Result<Option<SecretString>, SettingsError> {
        let variable = (METRICS_TOKEN, std::env::var(METRICS_TOKEN).ok());
        let token = token_setting::read(self.metrics_token_file.as_deref(), variable);
        token.map_err(SettingsError::MetricsToken)
    }

    fn session_secret(&self) -> Result<Option<SecretString>, SettingsError> {
        let file = self.session_secret_file.as_deref();
        let secret = token_setting::read_secret(file, ("", None));
        let Some((secret, source)) = secret.map_err(SettingsError::SessionSecret)? else {
            return Ok(None);
        };
        let text = secret.expose_secret();
        if !is_hex(text, SECRET_BYTES) {
            let digits = 2 * SECRET_BYTES;
            let reason = format!("the secret in {source} must be {digits} hexadecimal digits");
            return Err(SettingsError::SessionSecret(reason));
        }
        Ok(Some(secret))
    }

    fn check_public_url(&self) -> Result<(), SettingsError> {
        let Some(url) = &self.public_url else {
            return Ok(());
        };
        if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
            return Err(SettingsError::PublicUrl("must be an http or https URL"));
        }
        if url.query().is_some() || url.fragment().is_some() || !url.username().is_empty() {
            let message = "must have no user, query or fragment";
            return Err(SettingsError::PublicUrl(message));
        }
        Ok(())
    }

    /// Checks that launched hosts are used, and can reach this server.
    fn check_launch(&self) -> Result<(), SettingsError> {
        if self.registered_fleet.launch.launch_command.is_none() {
            return Ok(());
        }
        if self.host_fleet != Fleet::Registered {
            let message = "they need --fleet registered";
            return Err(SettingsError::LaunchCommands(message));
        }
        if self.public_url.is_none() && !self.listen.ip().is_loopback() {
            let message = "they need --public-url, at which launched hosts reach this server";
            return Err(SettingsError::LaunchCommands(message));
        }
        Ok(())
    }
}

fn requests_per_second(text: &str) -> Result<NonZeroU32, String> {
    let number = text.parse().ok().filter(|number| *number <= 1_000_000);
    number
        .and_then(NonZeroU32::new)
        .ok_or_else(|| "must be a whole number from 1 to 1000000".to_owned())
}

fn days(count: u32) -> Duration {
    Duration::from_secs(u64::from(count) * 24 * 60 * 60)
}

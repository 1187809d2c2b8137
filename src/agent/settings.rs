//! What the agent can be told when it starts, and the checked form of it.

use std::{
    fmt, io,
    net::SocketAddr,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use secrecy::{ExposeSecret, SecretString};
use url::Url;

use crate::{
    agent::state_dir::StateDir,
    api::{start_url::StartUrl, viewport::Viewport},
    system::{
        cdp::chromium_flags::{ChromiumFlags, Variable},
        files::archive::unpack::UnpackLimits,
    },
};

const TOKEN_VARIABLE: &str = "BERTH_AGENT_TOKEN";
/// As every program that plays sound has it.
const PULSE_VARIABLE: &str = "PULSE_SERVER";
const FFMPEG: &str = "ffmpeg";
/// Shorter tokens can be guessed.
const MIN_TOKEN_BYTES: usize = 16;
const MAX_TOKEN_BYTES: usize = 1024;

/// Where distributions put the program behind their start script; the script costs time and one process more.
const CHROMIUM_PLACES: [&str; 6] = [
    "/usr/lib/chromium/chromium",
    "/usr/lib/chromium-browser/chromium-browser",
    "/opt/google/chrome/chrome",
    "/usr/bin/chromium",
    "/usr/bin/chromium-browser",
    "/usr/bin/google-chrome",
];

/// Where flags more for Chromium can be given as well.
#[derive(Clone, Debug)]
pub struct FlagsVariable;

impl Variable for FlagsVariable {
    const NAME: &'static str = "BERTH_AGENT_CHROMIUM_FLAGS";
}

/// Options of `berth agent`. All are text here, so that everything wrong with them is told at once by [`Settings::check`].
#[derive(Clone, Debug, clap::Args)]
pub struct Settings {
    /// Address and port to listen on; port 0 takes a free one
    #[arg(
        long,
        env = "BERTH_AGENT_LISTEN",
        default_value = "127.0.0.1:10001",
        value_name = "ADDR:PORT"
    )]
    pub listen: String,

    /// Print one line of JSON with the base URL on standard output once it listens
    #[arg(long, env = "BERTH_AGENT_JSON")]
    pub json: bool,

    /// File with the bearer token, readable by its owner alone; the variable BERTH_AGENT_TOKEN does instead
    #[arg(long, env = "BERTH_AGENT_TOKEN_FILE", value_name = "FILE")]
    pub token_file: Option<PathBuf>,

    /// Folder for the profile, cache, downloads and run files
    #[arg(long, env = "BERTH_AGENT_STATE_DIR", value_name = "DIR")]
    pub state_dir: PathBuf,

    /// Run Chromium without a display
    #[arg(long, env = "BERTH_AGENT_HEADLESS")]
    pub headless: bool,

    /// Size of the screen
    #[arg(
        long,
        env = "BERTH_AGENT_VIEWPORT",
        default_value = "1920x1080@25",
        value_name = "WxH@RATE"
    )]
    pub viewport: String,

    /// Page to open in the first tab
    #[arg(long, env = "BERTH_AGENT_START_URL", value_name = "URL")]
    pub start_url: Option<String>,

    /// Chromium's program [default: the first found in the usual places]
    #[arg(long, env = "BERTH_AGENT_CHROMIUM", value_name = "PATH")]
    pub chromium: Option<PathBuf>,

    #[command(flatten)]
    pub chromium_flags: ChromiumFlags<FlagsVariable>,

    /// The X server's program
    #[arg(
        long,
        env = "BERTH_AGENT_XVFB",
        default_value = "Xvfb",
        value_name = "PATH"
    )]
    pub xvfb: PathBuf,

    /// The script worker's program [default: berth-script beside this program]
    #[arg(long, env = "BERTH_AGENT_SCRIPT_WORKER", value_name = "PATH")]
    pub script_worker: Option<PathBuf>,

    /// Script workers kept started and attached (0–16)
    #[arg(
        long,
        env = "BERTH_AGENT_WARM_WORKERS",
        default_value = "2",
        value_name = "N"
    )]
    pub warm_workers: String,

    /// Scripts that may run at once (1–64)
    #[arg(
        long,
        env = "BERTH_AGENT_MAX_EXECUTES",
        default_value = "8",
        value_name = "N"
    )]
    pub max_executes: String,

    /// MiB of heap a script may use (32–4096)
    #[arg(
        long,
        env = "BERTH_AGENT_SCRIPT_HEAP_MB",
        default_value = "256",
        value_name = "N"
    )]
    pub script_heap_mb: String,

    /// MiB of files a script may write (1–4096)
    #[arg(
        long,
        env = "BERTH_AGENT_SCRIPT_FILES_MB",
        default_value = "256",
        value_name = "N"
    )]
    pub script_files_mb: String,

    /// Who scripts run as where the agent is root
    #[arg(
        long,
        env = "BERTH_AGENT_SCRIPT_USER",
        default_value = "nobody",
        value_name = "NAME"
    )]
    pub script_user: String,

    /// Seconds a named executor outlives its last call (1–86400)
    #[arg(
        long,
        env = "BERTH_AGENT_EXECUTOR_IDLE_SECONDS",
        default_value = "600",
        value_name = "SECONDS"
    )]
    pub executor_idle_seconds: String,

    /// DevTools clients that may be connected at once (1–1024)
    #[arg(
        long,
        env = "BERTH_AGENT_MAX_CDP_CLIENTS",
        default_value = "64",
        value_name = "N"
    )]
    pub max_cdp_clients: String,

    /// Seconds a new DevTools client waits while Chromium starts (1–300)
    #[arg(
        long,
        env = "BERTH_AGENT_CDP_HOLD_SECONDS",
        default_value = "30",
        value_name = "SECONDS"
    )]
    pub cdp_hold_seconds: String,

    /// Seconds a watched directory is kept that nobody reads (1–86400)
    #[arg(
        long,
        env = "BERTH_AGENT_WATCH_IDLE_SECONDS",
        default_value = "600",
        value_name = "SECONDS"
    )]
    pub watch_idle_seconds: String,

    /// GiB that an uploaded archive may unpack to (1–1024)
    #[arg(
        long,
        env = "BERTH_AGENT_UNPACK_GB",
        default_value = "16",
        value_name = "N"
    )]
    pub unpack_gb: String,

    /// How many times its own size an uploaded archive may unpack to, beyond 64 MiB (1–10000)
    #[arg(
        long,
        env = "BERTH_AGENT_UNPACK_RATIO",
        default_value = "200",
        value_name = "N"
    )]
    pub unpack_ratio: String,

    /// Processes of clients that may be there at once (1–4096)
    #[arg(
        long,
        env = "BERTH_AGENT_MAX_PROCESSES",
        default_value = "256",
        value_name = "N"
    )]
    pub max_processes: String,

    /// MiB of output that are kept of each process for its readers (1–64)
    #[arg(
        long,
        env = "BERTH_AGENT_PROCESS_OUTPUT_MB",
        default_value = "4",
        value_name = "N"
    )]
    pub process_output_mb: String,

    /// MiB that a program run to its end may write to each of its outputs before the rest is cut off (1–64)
    #[arg(
        long,
        env = "BERTH_AGENT_EXEC_OUTPUT_MB",
        default_value = "10",
        value_name = "N"
    )]
    pub exec_output_mb: String,

    /// MiB of output that may be kept at once of all programs run to their end (1–4096)
    #[arg(
        long,
        env = "BERTH_AGENT_EXEC_TOTAL_MB",
        default_value = "256",
        value_name = "N"
    )]
    pub exec_total_mb: String,

    /// ffmpeg, which encodes recordings; without one there are none
    #[arg(
        long,
        env = "BERTH_AGENT_FFMPEG",
        default_value = FFMPEG,
        value_name = "PATH"
    )]
    pub ffmpeg: PathBuf,

    /// The sound server, as in PULSE_SERVER, which is used where this is not given; without one there are no recordings with sound
    #[arg(long, env = "BERTH_AGENT_PULSE_SERVER", value_name = "ADDRESS")]
    pub pulse_server: Option<String>,

    /// Seconds a recording lasts at most that does not say so itself (1–86400)
    #[arg(
        long,
        env = "BERTH_AGENT_REPLAY_SECONDS",
        default_value = "14400",
        value_name = "SECONDS"
    )]
    pub replay_seconds: String,

    /// MiB a recording may take (1–65536)
    #[arg(
        long,
        env = "BERTH_AGENT_REPLAY_MB",
        default_value = "1024",
        value_name = "N"
    )]
    pub replay_mb: String,

    /// MiB that the recordings kept may have taken for another one to be started (1–1048576)
    #[arg(
        long,
        env = "BERTH_AGENT_REPLAYS_MB",
        default_value = "4096",
        value_name = "N"
    )]
    pub replays_mb: String,

    /// Seconds everything has to end in when the agent is stopped (1–300)
    #[arg(
        long,
        env = "BERTH_AGENT_STOP_SECONDS",
        default_value = "15",
        value_name = "SECONDS"
    )]
    pub stop_seconds: String,
}

/// The settings, checked and resolved.
#[derive(Clone, Debug)]
pub struct Config {
    pub listen: SocketAddr,
    pub json: bool,
    pub token: Option<SecretString>,
    pub state_dir: StateDir,
    pub headless: bool,
    pub viewport: Viewport,
    pub start_url: Option<Url>,
    pub chromium: PathBuf,
    pub chromium_flags: Vec<String>,
    pub xvfb: PathBuf,
    pub script_worker: PathBuf,
    pub warm_workers: usize,
    pub max_executes: usize,
    pub script_heap_mb: u32,
    pub script_files_mb: u32,
    pub script_user: String,
    pub executor_idle: Duration,
    pub max_cdp_clients: usize,
    pub cdp_hold: Duration,
    pub watch_idle: Duration,
    pub unpack: UnpackLimits,
    pub max_processes: usize,
    pub process_output_mb: usize,
    pub exec_output_mb: usize,
    pub exec_total_mb: usize,
    pub ffmpeg: Option<PathBuf>,
    pub pulse_server: Option<String>,
    pub replay_duration: Duration,
    pub replay_bytes: u64,
    pub replays_bytes: u64,
    pub stop_grace: Duration,
}

/// Everything that is wrong with the settings, one line each.
#[derive(Debug, thiserror::Error)]
pub struct Problems(pub Vec<String>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("\n"))
    }
}

impl Settings {
    /// Checks everything and starts nothing.
    pub fn check(&self) -> Result<Config, Problems> {
        let mut problems = Vec::new();
        let mut problem = |option: &str, what: String| problems.push(format!("--{option}: {what}"));

        let listen = match self.listen.parse::<SocketAddr>() {
            Ok(listen) => Some(listen),
            Err(_) => {
                problem(
                    "listen",
                    format!("`{}` is not of the form ADDRESS:PORT", self.listen),
                );
                None
            }
        };
        let token = self.token().unwrap_or_else(|what| {
            problem("token-file", what);
            None
        });
        if let Some(listen) = listen
            && token.is_none()
            && !listen.ip().is_loopback()
        {
            problem(
                "listen",
                format!(
                    "{listen} can be reached from outside: give a token with --token-file or {TOKEN_VARIABLE}"
                ),
            );
        }
        let state_dir = StateDir::new(&self.state_dir).map_err(|error| {
            problem(
                "state-dir",
                format!("{}: {error}", self.state_dir.display()),
            );
        });
        let viewport = self
            .viewport
            .parse::<Viewport>()
            .map_err(|what| problem("viewport", what));
        let start_url = match &self.start_url {
            None => Ok(None),
            Some(text) => StartUrl::parse(text)
                .map(|url| Some(url.into()))
                .map_err(|what| problem("start-url", what)),
        };
        let chromium = self
            .find_chromium()
            .map_err(|what| problem("chromium", what));
        let chromium_flags = self.chromium_flags.check().map_err(|wrong| {
            for what in wrong {
                problem("chromium-flag", what);
            }
        });
        let xvfb = if self.headless {
            Ok(self.xvfb.clone())
        } else {
            find_program(&self.xvfb).map_err(|what| problem("xvfb", what))
        };
        let script_worker = match &self.script_worker {
            Some(path) => find_program(path).map_err(|what| problem("script-worker", what)),
            None => std::env::current_exe()
                .map(|own| own.with_file_name("berth-script"))
                .map_err(|error| problem("script-worker", error.to_string())),
        };
        let ffmpeg = match find_program(&self.ffmpeg) {
            Ok(path) => Some(path),
            // By default it is there or not.
            Err(_) if self.ffmpeg == Path::new(FFMPEG) => None,
            Err(what) => {
                problem("ffmpeg", what);
                None
            }
        };
        let pulse_server = match &self.pulse_server {
            Some(server) => Some(server.clone()),
            None => std::env::var(PULSE_VARIABLE).ok(),
        };
        let mut number = |option: &str, text: &str, from: u64, to: u64| match text.parse::<u64>() {
            Ok(value) if (from..=to).contains(&value) => value,
            _ => {
                problem(
                    option,
                    format!("`{text}` is not a number between {from} and {to}"),
                );
                from
            }
        };
        let warm_workers = number("warm-workers", &self.warm_workers, 0, 16) as usize;
        let max_executes = number("max-executes", &self.max_executes, 1, 64) as usize;
        let script_heap_mb = number("script-heap-mb", &self.script_heap_mb, 32, 4096) as u32;
        let script_files_mb = number("script-files-mb", &self.script_files_mb, 1, 4096) as u32;
        let executor_idle = number(
            "executor-idle-seconds",
            &self.executor_idle_seconds,
            1,
            86_400,
        );
        let max_cdp_clients = number("max-cdp-clients", &self.max_cdp_clients, 1, 1024) as usize;
        let cdp_hold = number("cdp-hold-seconds", &self.cdp_hold_seconds, 1, 300);
        let watch_idle = number("watch-idle-seconds", &self.watch_idle_seconds, 1, 86_400);
        let unpack_gb = number("unpack-gb", &self.unpack_gb, 1, 1024);
        let unpack_ratio = number("unpack-ratio", &self.unpack_ratio, 1, 10_000);
        let max_processes = number("max-processes", &self.max_processes, 1, 4096) as usize;
        let process_output_mb =
            number("process-output-mb", &self.process_output_mb, 1, 64) as usize;
        let exec_output_mb = number("exec-output-mb", &self.exec_output_mb, 1, 64) as usize;
        let exec_total_mb = number("exec-total-mb", &self.exec_total_mb, 1, 4096) as usize;
        let replay_seconds = number("replay-seconds", &self.replay_seconds, 1, 86_400);
        let replay_mb = number("replay-mb", &self.replay_mb, 1, 65_536);
        let replays_mb = number("replays-mb", &self.replays_mb, 1, 1_048_576);
        let stop_grace = number("stop-seconds", &self.stop_seconds, 1, 300);

        match (
            listen,
            state_dir,
            viewport,
            start_url,
            chromium,
            chromium_flags,
            xvfb,
            script_worker,
        ) {
            (
                Some(listen),
                Ok(state_dir),
                Ok(viewport),
                Ok(start_url),
                Ok(chromium),
                Ok(chromium_flags),
                Ok(xvfb),
                Ok(script_worker),
            ) if problems.is_empty() => Ok(Config {
                listen,
                json: self.json,
                token,
                state_dir,
                headless: self.headless,
                viewport,
                start_url,
                chromium,
                chromium_flags: chromium_flags.to_vec(),
                xvfb,
                script_worker,
                warm_workers,
                max_executes,
                script_heap_mb,
                script_files_mb,
                script_user: self.script_user.clone(),
                executor_idle: Duration::from_secs(executor_idle),
                max_cdp_clients,
                cdp_hold: Duration::from_secs(cdp_hold),
                watch_idle: Duration::from_secs(watch_idle),
                unpack: UnpackLimits {
                    bytes: unpack_gb << 30,
                    ratio: unpack_ratio,
                },
                max_processes,
                process_output_mb,
                exec_output_mb,
                exec_total_mb,
                ffmpeg,
                pulse_server,
                replay_duration: Duration::from_secs(replay_seconds),
                replay_bytes: replay_mb << 20,
                replays_bytes: replays_mb << 20,
                stop_grace: Duration::from_secs(stop_grace),
            }),
            _ => Err(Problems(problems)),
        }
    }

    fn token(&self) -> Result<Option<SecretString>, String> {
        let (token, source) = match &self.token_file {
            Some(file) => (Some(read_token(file)?), file.display().to_string()),
            None => (
                std::env::var(TOKEN_VARIABLE).ok().map(SecretString::from),
                TOKEN_VARIABLE.to_owned(),
            ),
        };
        let Some(token) = token else { return Ok(None) };
        let content = token.expose_secret();
        if !(MIN_TOKEN_BYTES..=MAX_TOKEN_BYTES).contains(&content.len())
            || !content.bytes().all(|byte| byte.is_ascii_graphic())
        {
            return Err(format!(
                "the token in {source} must be {MIN_TOKEN_BYTES} to {MAX_TOKEN_BYTES} printable ASCII characters without spaces"
            ));
        }
        Ok(Some(token))
    }

    fn find_chromium(&self) -> Result<PathBuf, String> {
        match &self.chromium {
            Some(path) => find_program(path).map(unwrapped),
            None => CHROMIUM_PLACES
                .iter()
                .map(PathBuf::from)
                .find(|path| is_program(path))
                .ok_or_else(|| {
                    format!(
                        "none found in the usual places ({}); install it or name its path",
                        CHROMIUM_PLACES.join(", ")
                    )
                }),
        }
    }
}

fn read_token(file: &Path) -> Result<SecretString, String> {
    let told = |error: io::Error| format!("{}: {error}", file.display());
    let found = std::fs::metadata(file).map_err(told)?;
    if !found.is_file() || found.len() > 2 * MAX_TOKEN_BYTES as u64 {
        return Err(format!("{} is not a small file", file.display()));
    }
    if found.permissions().mode() & 0o077 != 0 {
        return Err(format!(
            "{} can be read by others: chmod 600 it",
            file.display()
        ));
    }
    let content = SecretString::from(std::fs::read_to_string(file).map_err(told)?);
    Ok(SecretString::from(content.expose_secret().trim()))
}

/// Debian's `chromium` is a shell script around the program; it is skipped where the program is in its known place.
fn unwrapped(path: PathBuf) -> PathBuf {
    let inner = Path::new("/usr/lib/chromium/chromium");
    if path == Path::new("/usr/bin/chromium") && is_program(inner) {
        inner.to_owned()
    } else {
        path
    }
}

/// The absolute path of a program named by a path, or by a name to look up in `PATH`.
fn find_program(name: &Path) -> Result<PathBuf, String> {
    if name.components().count() > 1 {
        return if is_program(name) {
            std::path::absolute(name).map_err(|error| error.to_string())
        } else {
            Err(format!("{} is not a program", name.display()))
        };
    }
    std::env::var_os("PATH")
        .iter()
        .flat_map(std::env::split_paths)
        .map(|folder| folder.join(name))
        .find(|path| is_program(path))
        .ok_or_else(|| {
            format!(
                "no `{}` in PATH; install it or name its path",
                name.display()
            )
        })
}

fn is_program(path: &Path) -> bool {
    std::fs::metadata(path)
        .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

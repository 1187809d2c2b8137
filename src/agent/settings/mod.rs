//! The settings of the agent: the command-line options, and the configuration made from them.
//!
//! Each option is declared once, in [`Settings`], with its variable, default and bounds.
//! [`Settings::check`] resolves all of them into a [`Config`] and reports all errors at once.

mod child_user;
mod config;
mod control;
mod errors;
mod number;
mod programs;
mod scripts;
mod sound;
mod token;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use secrecy::SecretString;
use url::Url;

use self::programs::{find_chromium, find_program, own_script_worker};
pub use self::{
    child_user::{ChildUser, ProtectionMode},
    config::Config,
    control::{ControlConfig, ControlSettings},
    errors::SettingsErrors,
    number::Number,
    scripts::ScriptSettings,
};
use crate::{
    agent::{sessions::FIRST_GENERATION, state_dir::StateDir},
    api::{start_url::StartUrl, viewport::Viewport},
    system::{
        cdp::chromium_flags::{ChromiumFlags, Variable},
        files::archive::unpack::UnpackLimits,
    },
};

const DEFAULT_FFMPEG: &str = "ffmpeg";

/// The variable of the option `--chromium-flag`.
#[derive(Clone, Debug)]
pub struct FlagsVariable;

impl Variable for FlagsVariable {
    const NAME: &'static str = "BERTH_AGENT_CHROMIUM_FLAGS";
}

/// The options of `berth agent`. Parsing them does not fail, so that [`Settings::check`] reports
/// all errors at once.
#[derive(Clone, Debug, clap::Args)]
pub struct Settings {
    /// Address and port to listen on; port 0 selects a free one
    #[arg(
        long,
        env = "BERTH_AGENT_LISTEN",
        default_value = "127.0.0.1:10001",
        value_name = "ADDR:PORT"
    )]
    pub listen: String,

    /// Print one line of JSON with the base URL on standard output when listening
    #[arg(long, env = "BERTH_AGENT_JSON")]
    pub json: bool,

    /// File with the bearer token, readable by its owner only; alternative: the variable
    /// BERTH_AGENT_TOKEN
    #[arg(long, env = "BERTH_AGENT_TOKEN_FILE", value_name = "FILE")]
    pub token_file: Option<PathBuf>,

    /// Leave the log lines of forwarded requests to control, which passes this option to agents
    /// that it starts; follows from --control-url
    #[arg(long, env = "BERTH_AGENT_BEHIND_CONTROL")]
    pub behind_control: bool,

    #[command(flatten)]
    pub control: ControlSettings,

    /// Directory for the profile, cache, downloads and run files
    #[arg(long, env = "BERTH_AGENT_STATE_DIR", value_name = "DIR")]
    pub state_dir: PathBuf,

    /// Prepare the next session, with a Chromium that runs already, while the current one lasts
    #[arg(long, env = "BERTH_AGENT_SPARE")]
    pub spare: bool,

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

    /// Path of Chromium [default: the first one in the usual locations]
    #[arg(long, env = "BERTH_AGENT_CHROMIUM", value_name = "PATH")]
    pub chromium: Option<PathBuf>,

    #[command(flatten)]
    pub chromium_flags: ChromiumFlags<FlagsVariable>,

    /// User that Chromium runs as if the agent is root: a name, a uid, or auto for a uid of its own
    #[arg(
        long,
        env = "BERTH_AGENT_CHROMIUM_USER",
        default_value = "auto",
        value_name = "USER"
    )]
    pub chromium_user: String,

    /// Chromium's own sandbox: auto (wherever the system permits it), required or off
    #[arg(
        long,
        env = "BERTH_AGENT_CHROMIUM_SANDBOX",
        default_value = "auto",
        value_name = "MODE"
    )]
    pub chromium_sandbox: String,

    /// Name or path of the X server
    #[arg(
        long,
        env = "BERTH_AGENT_XVFB",
        default_value = "Xvfb",
        value_name = "PATH"
    )]
    pub xvfb: PathBuf,

    /// Path of the script worker [default: berth-script beside this program or in ../lib/berth]
    #[arg(long, env = "BERTH_AGENT_SCRIPT_WORKER", value_name = "PATH")]
    pub script_worker: Option<PathBuf>,

    #[command(flatten)]
    pub scripts: ScriptSettings,

    /// User that scripts run as if the agent is root: a name, a uid, or auto for a uid that no
    /// other process uses
    #[arg(
        long,
        env = "BERTH_AGENT_SCRIPT_USER",
        default_value = "auto",
        value_name = "USER"
    )]
    pub script_user: String,

    /// Limit of concurrent DevTools clients (1–1024)
    #[arg(
        long,
        env = "BERTH_AGENT_MAX_CDP_CLIENTS",
        default_value = "64",
        value_name = "N"
    )]
    pub max_cdp_clients: Number<1, 1024>,

    /// Seconds a new DevTools client waits while Chromium starts (1–300)
    #[arg(
        long,
        env = "BERTH_AGENT_CDP_HOLD_SECONDS",
        default_value = "30",
        value_name = "SECONDS"
    )]
    pub cdp_hold_seconds: Number<1, 300>,

    /// Seconds a resumable DevTools connection outlives its WebSocket (1–300)
    #[arg(
        long,
        env = "BERTH_AGENT_CDP_RESUME_SECONDS",
        default_value = "30",
        value_name = "SECONDS"
    )]
    pub cdp_resume_seconds: Number<1, 300>,

    /// Seconds a directory watch without readers is retained (1–86400)
    #[arg(
        long,
        env = "BERTH_AGENT_WATCH_IDLE_SECONDS",
        default_value = "600",
        value_name = "SECONDS"
    )]
    pub watch_idle_seconds: Number<1, 86_400>,

    /// Unpacked size limit of an uploaded archive in GiB (1–1024)
    #[arg(
        long,
        env = "BERTH_AGENT_UNPACK_GB",
        default_value = "16",
        value_name = "N"
    )]
    pub unpack_gb: Number<1, 1024>,

    /// Limit of the ratio of unpacked to packed size of an uploaded archive, beyond 64 MiB
    /// (1–10000)
    #[arg(
        long,
        env = "BERTH_AGENT_UNPACK_RATIO",
        default_value = "200",
        value_name = "N"
    )]
    pub unpack_ratio: Number<1, 10_000>,

    /// Limit of concurrent client processes (1–4096)
    #[arg(
        long,
        env = "BERTH_AGENT_MAX_PROCESSES",
        default_value = "256",
        value_name = "N"
    )]
    pub max_processes: Number<1, 4096>,

    /// User that client processes run as if the agent is root: a name, a uid, or auto for a uid of
    /// its own
    #[arg(
        long,
        env = "BERTH_AGENT_PROCESS_USER",
        default_value = "auto",
        value_name = "USER"
    )]
    pub process_user: String,

    /// Isolation of client processes, with a user and directories of their own: auto (if the agent
    /// is root and the system permits it), required or off
    #[arg(
        long,
        env = "BERTH_AGENT_PROCESS_ISOLATION",
        value_name = "MODE",
        default_value = "off"
    )]
    pub process_isolation: String,

    /// Output retained for the readers of each process in MiB (1–64)
    #[arg(
        long,
        env = "BERTH_AGENT_PROCESS_OUTPUT_MB",
        default_value = "4",
        value_name = "N"
    )]
    pub process_output_mb: Number<1, 64>,

    /// Limit of each output stream of a program run by exec in MiB; the rest is cut off (1–64)
    #[arg(
        long,
        env = "BERTH_AGENT_EXEC_OUTPUT_MB",
        default_value = "10",
        value_name = "N"
    )]
    pub exec_output_mb: Number<1, 64>,

    /// Limit of the output of all programs run by exec in MiB (1–4096)
    #[arg(
        long,
        env = "BERTH_AGENT_EXEC_TOTAL_MB",
        default_value = "256",
        value_name = "N"
    )]
    pub exec_total_mb: Number<1, 4096>,

    /// Name or path of ffmpeg, which encodes recordings; without it, recordings are unavailable
    #[arg(
        long,
        env = "BERTH_AGENT_FFMPEG",
        default_value = DEFAULT_FFMPEG,
        value_name = "PATH"
    )]
    pub ffmpeg: PathBuf,

    /// Address of the PulseAudio server [default: PULSE_SERVER]; without it, recordings have no
    /// sound
    #[arg(long, env = "BERTH_AGENT_PULSE_SERVER", value_name = "ADDRESS")]
    pub pulse_server: Option<String>,

    /// Default duration limit of a recording in seconds (1–86400)
    #[arg(
        long,
        env = "BERTH_AGENT_REPLAY_SECONDS",
        default_value = "14400",
        value_name = "SECONDS"
    )]
    pub replay_seconds: Number<1, 86_400>,

    /// Size limit of a recording in MiB (1–65536)
    #[arg(
        long,
        env = "BERTH_AGENT_REPLAY_MB",
        default_value = "1024",
        value_name = "N"
    )]
    pub replay_mb: Number<1, 65_536>,

    /// Total size of stored recordings in MiB above which new ones are refused (1–1048576)
    #[arg(
        long,
        env = "BERTH_AGENT_REPLAYS_MB",
        default_value = "4096",
        value_name = "N"
    )]
    pub replays_mb: Number<1, 1_048_576>,

    /// Grace period of a shutdown in seconds (1–300)
    #[arg(
        long,
        env = "BERTH_AGENT_STOP_SECONDS",
        default_value = "15",
        value_name = "SECONDS"
    )]
    pub stop_seconds: Number<1, 300>,
}

impl Settings {
    /// Checks all settings, without side effects.
    pub fn check(&self) -> Result<Config, SettingsErrors> {
        let mut errors = SettingsErrors::default();
        match self.resolve(&mut errors) {
            Some(config) if errors.is_empty() => Ok(config),
            _ => Err(errors),
        }
    }

    fn resolve(&self, errors: &mut SettingsErrors) -> Option<Config> {
        let (listen, token) = self.resolve_access(errors);
        let control = self.control.resolve(errors);
        let state_dir = self.resolve_state_dir(errors);
        let viewport = errors.collect("viewport", self.viewport.parse::<Viewport>());
        let start_url = errors.collect("start-url", self.parse_start_url());
        let chromium = errors.collect("chromium", find_chromium(self.chromium.as_deref()));
        let chromium_flags = self.resolve_chromium_flags(errors);
        let [chromium_user, script_user, process_user] = self.resolve_users(errors);
        let chromium_sandbox = errors.collect("chromium-sandbox", self.chromium_sandbox.parse());
        let process_isolation = errors.collect("process-isolation", self.process_isolation.parse());
        let [xvfb, script_worker] = self.resolve_programs(errors);
        Some(Config {
            // The fields with `?` come last, so that an early return hides no error.
            json: self.json,
            token,
            is_behind_control: self.behind_control || control.is_some(),
            control,
            spare: self.spare,
            headless: self.headless,
            copies_script_worker: self.scripts.copy_script_worker,
            warm_workers: errors.number("warm-workers", &self.scripts.warm_workers) as usize,
            max_executes: errors.number("max-executes", &self.scripts.max_executes) as usize,
            script_heap_mb: errors.number("script-heap-mb", &self.scripts.script_heap_mb) as u32,
            script_files_mb: errors.number("script-files-mb", &self.scripts.script_files_mb) as u32,
            executor_idle: errors
                .seconds("executor-idle-seconds", &self.scripts.executor_idle_seconds),
            allowed_networks: self.scripts.networks(errors),
            max_cdp_clients: errors.number("max-cdp-clients", &self.max_cdp_clients) as usize,
            cdp_hold: errors.seconds("cdp-hold-seconds", &self.cdp_hold_seconds),
            cdp_resume: errors.seconds("cdp-resume-seconds", &self.cdp_resume_seconds),
            watch_idle: errors.seconds("watch-idle-seconds", &self.watch_idle_seconds),
            unpack: UnpackLimits {
                bytes: errors.number("unpack-gb", &self.unpack_gb) << 30,
                ratio: errors.number("unpack-ratio", &self.unpack_ratio),
            },
            max_processes: errors.number("max-processes", &self.max_processes) as usize,
            process_output_mb: errors.number("process-output-mb", &self.process_output_mb) as usize,
            exec_output_mb: errors.number("exec-output-mb", &self.exec_output_mb) as usize,
            exec_total_mb: errors.number("exec-total-mb", &self.exec_total_mb) as usize,
            ffmpeg: errors.collect("ffmpeg", self.find_ffmpeg()).flatten(),
            pulse_server: self.pulse_server.clone().or_else(sound::default_server),
            pulse_cookie: sound::cookie(),
            replay_duration: errors.seconds("replay-seconds", &self.replay_seconds),
            replay_bytes: errors.number("replay-mb", &self.replay_mb) << 20,
            replays_bytes: errors.number("replays-mb", &self.replays_mb) << 20,
            stop_grace: errors.seconds("stop-seconds", &self.stop_seconds),
            listen: listen?,
            session_dir: state_dir.as_ref()?.session(FIRST_GENERATION),
            state_dir: state_dir?,
            viewport: viewport?,
            start_url: start_url?,
            chromium: chromium?,
            chromium_flags: chromium_flags?,
            chromium_user: chromium_user?,
            chromium_sandbox: chromium_sandbox?,
            xvfb: xvfb?,
            script_user: script_user?,
            process_user: process_user?,
            process_isolation: process_isolation?,
            script_worker: script_worker?,
        })
    }

    /// Resolves the programs of the X server and of scripts.
    fn resolve_programs(&self, errors: &mut SettingsErrors) -> [Option<PathBuf>; 2] {
        [
            errors.collect("xvfb", self.find_xvfb()),
            errors.collect("script-worker", self.find_script_worker()),
        ]
    }

    /// Resolves the address and the token. An address that other machines can reach needs a token.
    fn resolve_access(
        &self,
        errors: &mut SettingsErrors,
    ) -> (Option<SocketAddr>, Option<SecretString>) {
        let listen = self.listen.parse::<SocketAddr>();
        let listen = listen.map_err(|_| format!("`{}` is not ADDRESS:PORT", self.listen));
        let listen = errors.collect("listen", listen);
        let token = token::read(self.token_file.as_deref());
        let token = errors.collect("token-file", token).flatten();
        if self.control.control_url.is_some() {
            if token.is_some() {
                let message = "cannot be combined with --control-url, which needs no token";
                errors.add("token-file", message.to_owned());
            }
        } else if let Some(listen) = listen
            && token.is_none()
            && !listen.ip().is_loopback()
        {
            let variable = token::VARIABLE;
            errors.add(
                "listen",
                format!(
                    "{listen} is reachable from other machines: set a token with --token-file or {variable}"
                ),
            );
        }
        (listen, token)
    }

    fn resolve_state_dir(&self, errors: &mut SettingsErrors) -> Option<StateDir> {
        let state_dir = StateDir::new(&self.state_dir);
        let state_dir = state_dir.map_err(|error| format!("{}: {error}", self.state_dir.display()));
        errors.collect("state-dir", state_dir)
    }

    fn resolve_chromium_flags(&self, errors: &mut SettingsErrors) -> Option<Vec<String>> {
        let flags = self.chromium_flags.check().map(<[String]>::to_vec);
        flags
            .map_err(|invalid| {
                for error in invalid {
                    errors.add("chromium-flag", error);
                }
            })
            .ok()
    }

    fn parse_start_url(&self) -> Result<Option<Url>, String> {
        let url = self.start_url.as_deref().map(StartUrl::parse).transpose()?;
        Ok(url.map(Url::from))
    }

    fn find_xvfb(&self) -> Result<PathBuf, String> {
        if self.headless {
            return Ok(self.xvfb.clone());
        }
        find_program(&self.xvfb)
    }

    fn find_script_worker(&self) -> Result<PathBuf, String> {
        match &self.script_worker {
            Some(path) => find_program(path),
            None => own_script_worker(),
        }
    }

    /// Returns `None` if the default program is not installed: ffmpeg is optional.
    fn find_ffmpeg(&self) -> Result<Option<PathBuf>, String> {
        match find_program(&self.ffmpeg) {
            Ok(path) => Ok(Some(path)),
            Err(_) if self.ffmpeg == Path::new(DEFAULT_FFMPEG) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

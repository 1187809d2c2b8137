//! The configuration of an agent, made from its settings.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use secrecy::SecretString;
use url::Url;

use super::{ChildUser, ControlConfig, ProtectionMode};
use crate::{
    agent::{session_dir::SessionDir, state_dir::StateDir},
    api::viewport::Viewport,
    system::{files::archive::unpack::UnpackLimits, outbound::AllowedNetwork},
};

/// The checked and resolved settings.
#[derive(Clone, Debug)]
pub struct Config {
    pub listen: SocketAddr,
    pub json: bool,
    pub token: Option<SecretString>,
    /// Whether control logs the requests that it forwards.
    pub is_behind_control: bool,
    /// The control server at which the agent registers itself, if it does.
    pub control: Option<ControlConfig>,
    pub state_dir: StateDir,
    /// The directory of the session that this configuration is for.
    pub session_dir: SessionDir,
    pub spare: bool,
    pub headless: bool,
    pub viewport: Viewport,
    pub start_url: Option<Url>,
    pub chromium: PathBuf,
    pub chromium_flags: Vec<String>,
    pub chromium_user: ChildUser,
    pub chromium_sandbox: ProtectionMode,
    pub xvfb: PathBuf,
    pub script_worker: PathBuf,
    /// Whether a copy of it runs.
    pub copies_script_worker: bool,
    pub warm_workers: usize,
    pub max_executes: usize,
    pub script_heap_mb: u32,
    pub script_files_mb: u32,
    pub script_user: ChildUser,
    /// The networks that requests of scripts may reach besides the public internet.
    pub allowed_networks: Vec<AllowedNetwork>,
    pub executor_idle: Duration,
    pub max_cdp_clients: usize,
    pub cdp_hold: Duration,
    pub cdp_resume: Duration,
    pub watch_idle: Duration,
    pub unpack: UnpackLimits,
    pub max_processes: usize,
    /// The user of isolated client processes.
    pub process_user: ChildUser,
    pub process_isolation: ProtectionMode,
    pub process_output_mb: usize,
    pub exec_output_mb: usize,
    pub exec_total_mb: usize,
    pub ffmpeg: Option<PathBuf>,
    pub pulse_server: Option<String>,
    /// The file by which clients of the sound server authenticate.
    pub pulse_cookie: Option<PathBuf>,
    pub replay_duration: Duration,
    pub replay_bytes: u64,
    pub replays_bytes: u64,
    pub stop_grace: Duration,
}

impl Config {
    /// Returns the configuration for the session with this generation.
    pub(in crate::agent) fn for_session(&self, generation: u64) -> Self {
        Self {
            session_dir: self.state_dir.session(generation),
            ..self.clone()
        }
    }
}

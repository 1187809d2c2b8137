//! The limits of scripts, and what their requests may reach.

use super::{Number, SettingsErrors};
use crate::system::outbound::AllowedNetwork;

/// The options of scripts.
#[derive(Clone, Debug, clap::Args)]
pub struct ScriptSettings {
    /// Run a copy of the script worker, in the state directory, so that an upgrade can replace the
    /// installed one
    #[arg(long, env = "BERTH_AGENT_COPY_SCRIPT_WORKER")]
    pub copy_script_worker: bool,

    /// Number of warm script workers (0–16); four times as many wait for scripts that do not use
    /// the browser
    #[arg(
        long,
        env = "BERTH_AGENT_WARM_WORKERS",
        default_value = "2",
        value_name = "N"
    )]
    pub warm_workers: Number<0, 16>,

    /// Limit of concurrent scripts (1–64)
    #[arg(
        long,
        env = "BERTH_AGENT_MAX_EXECUTES",
        default_value = "8",
        value_name = "N"
    )]
    pub max_executes: Number<1, 64>,

    /// Heap limit of a script in MiB (32–4096)
    #[arg(
        long,
        env = "BERTH_AGENT_SCRIPT_HEAP_MB",
        default_value = "256",
        value_name = "N"
    )]
    pub script_heap_mb: Number<32, 4096>,

    /// Limit of the files of a script in MiB (1–4096)
    #[arg(
        long,
        env = "BERTH_AGENT_SCRIPT_FILES_MB",
        default_value = "256",
        value_name = "N"
    )]
    pub script_files_mb: Number<1, 4096>,

    /// Seconds a named executor outlives its last call (1–86400)
    #[arg(
        long,
        env = "BERTH_AGENT_EXECUTOR_IDLE_SECONDS",
        default_value = "600",
        value_name = "SECONDS"
    )]
    pub executor_idle_seconds: Number<1, 86_400>,

    /// Addresses or networks, separated by commas, that requests of scripts (`page.request`,
    /// `route.fetch`) may reach besides the public internet
    #[arg(
        long,
        env = "BERTH_AGENT_ALLOW_NETWORKS",
        value_delimiter = ',',
        value_name = "ADDR|NETWORK"
    )]
    pub allow_networks: Vec<String>,
}

impl ScriptSettings {
    pub(super) fn networks(&self, errors: &mut SettingsErrors) -> Vec<AllowedNetwork> {
        let networks = self.allow_networks.iter().map(|text| {
            let network = text.parse::<AllowedNetwork>();
            network.map_err(|reason| format!("`{text}` {reason}"))
        });
        let networks = errors.collect("allow-networks", networks.collect());
        networks.unwrap_or_default()
    }
}

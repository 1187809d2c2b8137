//! The hooks of a machine that others are resumed from: what its engine calls before it takes a
//! snapshot, and on each machine that it resumes.
//!
//! ```text
//! engine ──▶ Unix socket or virtio port ──▶ routes ──▶ steps ──▶ clock, random numbers, network
//!                                                         └────▶ agent: key, boot id, processes
//! ```
//!
//! - [`server`] serves HTTP on the socket and the port, of which the network is no part.
//! - [`routes`] has the two hooks.
//! - [`steps`] is the order of what they do.
//! - [`agent`] calls the agent.
//!
//! This is a process of its own, so that the agent needs no rights for the clock and the network.

mod agent;
mod routes;
mod server;
mod steps;

use std::{io, path::PathBuf, time::Duration};

use clap::Args;

use self::steps::Machine;
use crate::shutdown::Shutdown;

/// The longest time in which requests end.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Options of `berth machine-hooks`.
#[derive(Clone, Debug, Args)]
pub struct MachineHooks {
    /// Socket of the agent for the hooks
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/var/lib/berth-agent/run/hooks.sock"
    )]
    pub agent: PathBuf,

    /// Unix socket to serve
    #[arg(long, value_name = "FILE", default_value = "/run/berth/hooks.sock")]
    pub socket: PathBuf,

    /// Port of the machine to serve too, if there is one
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/dev/virtio-ports/berth.hooks"
    )]
    pub port: PathBuf,
}

/// Why the hooks are not served.
#[derive(Debug, thiserror::Error)]
pub enum MachineHooksError {
    #[error("cannot listen on {path}: {source}")]
    Listen { path: PathBuf, source: io::Error },
    #[error("cannot handle signals: {0}")]
    Signals(io::Error),
}

/// Serves the hooks until the machine was resumed, or a signal stops it.
///
/// # Errors
/// Fails if the socket cannot be created.
pub async fn run(options: MachineHooks) -> Result<(), MachineHooksError> {
    let shutdown = Shutdown::on_signals().map_err(MachineHooksError::Signals)?;
    let machine = Machine::new(options.agent, shutdown.clone());
    let router = routes::router(machine);
    let socket = server::bind(&options.socket);
    let socket = socket.map_err(|source| MachineHooksError::Listen {
        path: options.socket.clone(),
        source,
    })?;
    if options.port.exists() {
        shutdown.spawn(server::serve_port(
            options.port,
            router.clone(),
            shutdown.clone(),
        ));
    }
    server::serve_socket(socket, router, &shutdown).await;
    if !shutdown.drain(STOP_TIMEOUT).await {
        tracing::warn!("a request has not ended in time");
    }
    server::remove(&options.socket);
    Ok(())
}

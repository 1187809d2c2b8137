//! The task that owns the process of one agent.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use super::{
    super::host::{HostController, HostState},
    HostPermit,
    agent_process::AgentCommand,
    cleanup,
    host_directory::HostDirectory,
};
use crate::{backoff::Backoff, system::process::child::Child};

/// The time in which an agent must exit, except during a shutdown. It stops its own children before
/// it does.
const AGENT_STOP_GRACE_PERIOD: Duration = Duration::from_secs(20);
/// The first and the longest delay before an agent is restarted.
const RESTART_DELAY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// The most restarts in a row. Running for [`STABLE_AFTER`] starts the count again.
const MAX_RESTARTS: u32 = 8;
const STABLE_AFTER: Duration = Duration::from_secs(60);

/// Owns one agent's process: restarts it when it exits, and cleans up when it is stopped.
pub(super) struct Supervisor {
    command: AgentCommand,
    directory: HostDirectory,
    controller: HostController,
    /// When the agent must have exited after the request of a shutdown.
    stop_deadline: Duration,
    restarts: Restarts,
    permit: HostPermit,
}

impl Supervisor {
    pub(super) fn new(
        command: AgentCommand,
        directory: HostDirectory,
        controller: HostController,
        stop_deadline: Duration,
        permit: HostPermit,
    ) -> Supervisor {
        Supervisor {
            command,
            directory,
            controller,
            stop_deadline,
            restarts: Restarts::default(),
            permit,
        }
    }

    /// Runs until the host is stopped or given up.
    pub(super) async fn run(mut self, mut child: Child) {
        loop {
            let started = Instant::now();
            let status = tokio::select! {
                status = child.wait() => status,
                () = self.controller.stop_requested() => {
                    let shutdown = &self.directory.shutdown;
                    let expired =
                        shutdown.timeout_or_deadline(AGENT_STOP_GRACE_PERIOD, self.stop_deadline);
                    if let Err(error) = child.terminate_until(expired).await {
                        tracing::error!(host = %self.command.host, %error, "cannot stop agent");
                    }
                    break;
                }
            };
            let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
            tracing::warn!(host = %self.command.host, %status, tail = child.tail(), "agent exited");
            self.controller.set_state(HostState::Restarting);
            if started.elapsed() >= STABLE_AFTER {
                self.restarts.reset();
            }
            let Some((restarted, address)) = self.restart().await else {
                break;
            };
            tracing::info!(host = %self.command.host, %address, "agent restarted");
            child = restarted;
            self.controller.set_state(HostState::Listening(address));
        }
        let removed = self.controller.data_removed();
        self.directory.remove(removed).await;
        // A task that waits for the host to be gone may start another one.
        drop(self.permit);
        self.controller.set_state(HostState::Gone);
    }

    /// Starts the agent again. Returns `None` if the host is stopped meanwhile or given up.
    async fn restart(&mut self) -> Option<(Child, SocketAddr)> {
        loop {
            if !self.controller.was_ready() {
                return None;
            }
            let Some(delay) = self.restarts.next_delay() else {
                tracing::error!(host = %self.command.host, restarts = MAX_RESTARTS, "agent given up");
                return None;
            };
            tokio::select! {
                () = tokio::time::sleep(delay) => {}
                () = self.controller.stop_requested() => return None,
            }
            self.kill_orphans().await;
            match self.command.start().await {
                Ok(started) => return Some(started),
                Err(error) => {
                    tracing::warn!(host = %self.command.host, %error, "cannot restart agent");
                }
            }
        }
    }

    /// Kills the processes of the exited agent, which could prevent the next one from starting.
    async fn kill_orphans(&self) {
        let HostDirectory { path, programs, .. } = &self.directory;
        cleanup::kill_client_processes(path).await;
        if let Err(error) = cleanup::kill_processes_using(path, programs).await {
            tracing::error!(host = %self.command.host, %error, "cannot kill processes of the exited agent");
        }
    }
}

/// Counts restarts in a row and delays each more than the one before.
struct Restarts {
    count: u32,
    backoff: Backoff,
}

impl Default for Restarts {
    fn default() -> Self {
        Restarts {
            count: 0,
            backoff: Backoff::new(RESTART_DELAY.0, RESTART_DELAY.1),
        }
    }
}

impl Restarts {
    /// Returns the delay before the next restart, or `None` after [`MAX_RESTARTS`].
    fn next_delay(&mut self) -> Option<Duration> {
        if self.count == MAX_RESTARTS {
            return None;
        }
        self.count += 1;
        Some(self.backoff.next_delay())
    }

    fn reset(&mut self) {
        self.count = 0;
        self.backoff.reset();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restart_delay_doubles_up_to_its_bound_until_restarts_are_exhausted() {
        let mut restarts = Restarts::default();
        let delays: Vec<u128> = std::iter::from_fn(|| restarts.next_delay())
            .map(|delay| delay.as_millis())
            .collect();
        assert_eq!(delays, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(delays.len(), MAX_RESTARTS as usize);
        assert_eq!(restarts.next_delay(), None);
        restarts.reset();
        assert_eq!(restarts.next_delay(), Some(RESTART_DELAY.0));
    }
}

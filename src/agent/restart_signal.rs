//! SIGUSR1: the agent is replaced by the program on disk, such as after an upgrade. It hands over
//! its browser as soon as nothing else is in use, or ends when no session uses it, so that its
//! service manager starts it again.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{handover, sessions::Sessions};
use crate::{shutdown::Shutdown, system::process::handover::NextProgram};

/// The signal, which does not kill the process any more.
pub(super) struct RestartSignal(Signal);

impl RestartSignal {
    /// Handles the signal from now on.
    ///
    /// # Errors
    /// Fails if the handler cannot be installed.
    pub(super) fn new() -> io::Result<Self> {
        signal(SignalKind::user_defined1()).map(Self)
    }

    /// Requests the restart when the signal arrives, or has arrived.
    pub(super) fn spawn_handler(
        mut self,
        sessions: Sessions,
        program: NextProgram,
        shutdown: &Shutdown,
    ) {
        let stop = shutdown.clone();
        shutdown.spawn(async move {
            loop {
                tokio::select! {
                    _ = self.0.recv() => sessions.request_restart(),
                    () = stop.requested() => return,
                }
                // It returns if the program cannot take over. The next signal may be about another
                // program, or other options.
                handover::begin(program.clone(), sessions.clone(), stop.clone()).await;
            }
        });
    }
}

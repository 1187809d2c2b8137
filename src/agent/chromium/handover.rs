//! A running Chromium that the next program of the agent takes over, with its display.
//!
//! ```text
//! Process, Display ─▶ StoppedBrowser ─pass─▶ PassedBrowser ═▶ AdoptedBrowser ─▶ Process, Display
//! ```

use std::{io, sync::Arc};

use serde::{Deserialize, Serialize};
use tokio::time;
use uuid::Uuid;

use super::{
    Identity,
    launch::{CDP_CALL_TIMEOUT, LaunchError, NAME, Process, RemainingProcesses, RunningProcess},
    temporary::TemporaryDir,
};
use crate::{
    agent::{
        display::{Display, PassedDisplay},
        logs::Logs,
        settings::Config,
    },
    api::viewport::Viewport,
    system::{
        cdp::multiplexer::{AdoptedConnections, ClientId, Multiplexer, PassedMultiplexer},
        process::child::{Child, Listener, PassedChild},
    },
};

/// A browser whose supervisor has ended, and which still runs. Dropping it ends it.
pub(in crate::agent) struct StoppedBrowser {
    pub(super) process: Process,
    pub(super) display: Option<Display>,
    pub(super) status: PassedStatus,
}

/// The part of the supervisor's state that is not in the processes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct PassedStatus {
    pub(super) viewport: Viewport,
    pub(super) restarts: u64,
    pub(super) reserves_frame_buffer: bool,
}

impl StoppedBrowser {
    /// Ends the browser in order, because no program continues after all.
    pub(in crate::agent) async fn close(self) {
        self.process.close().await;
        if let Some(display) = self.display {
            display.terminate().await;
        }
    }

    /// Releases the browser to the next program, with the connections of `kept` clients.
    ///
    /// # Errors
    /// Fails if Chromium has ended, or something cannot be passed on. The browser is ended then.
    pub(in crate::agent) async fn pass(self, kept: Vec<ClientId>) -> io::Result<PassedBrowser> {
        let StoppedBrowser {
            process,
            display,
            status,
        } = self;
        let display = match display {
            Some(display) => Some(display.pass().await?),
            None => None,
        };
        Ok(PassedBrowser {
            process: process.pass(kept).await?,
            display,
            status,
        })
    }
}

/// A browser for the next program.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::agent) struct PassedBrowser {
    process: PassedProcess,
    display: Option<PassedDisplay>,
    status: PassedStatus,
}

impl PassedBrowser {
    /// Returns the ids of its processes that are children of this one.
    pub(in crate::agent) fn pids(&self) -> Vec<u32> {
        let display = self.display.as_ref().map(PassedDisplay::pid);
        display
            .into_iter()
            .chain([self.process.child.pid()])
            .collect()
    }
}

/// A running Chromium for the next program.
#[derive(Debug, Serialize, Deserialize)]
struct PassedProcess {
    child: PassedChild,
    multiplexer: PassedMultiplexer,
    browser_id: Uuid,
    generation: u64,
}

/// A browser of the program before, which has not answered yet. Dropping it ends it.
pub(in crate::agent) struct AdoptedBrowser {
    pub(super) process: RunningProcess,
    pub(super) display: Option<Display>,
    pub(super) status: PassedStatus,
}

impl AdoptedBrowser {
    /// Takes over the processes, and returns the connections of clients as well. All are killed if
    /// that fails.
    ///
    /// # Errors
    /// Fails if a process cannot be watched, or its pipe cannot be used.
    pub(in crate::agent) fn new(
        config: &Config,
        passed: PassedBrowser,
        logs: &Logs,
    ) -> io::Result<(Self, AdoptedConnections)> {
        let adopted = RunningProcess::adopt(passed.process, &logs.chromium.listener());
        let display = passed
            .display
            .map(|display| Display::adopt(config, display, &logs.xvfb.listener()));
        // Both are tried, so that both end if one fails.
        let (process, connections) = adopted?;
        let adopted = AdoptedBrowser {
            process,
            display: display.transpose()?,
            status: passed.status,
        };
        Ok((adopted, connections))
    }

    /// Returns the number of its Chromium.
    pub(in crate::agent) fn generation(&self) -> u64 {
        self.process.generation
    }
}

impl RunningProcess {
    /// Takes over the process of the program before. It is killed if that fails.
    ///
    /// # Errors
    /// Fails if it cannot be watched, or its pipe cannot be used.
    fn adopt(passed: PassedProcess, listener: &Listener) -> io::Result<(Self, AdoptedConnections)> {
        let child = Child::adopt(NAME, passed.child, listener)?;
        let (multiplexer, connections) = Multiplexer::adopt(passed.multiplexer)?;
        let adopted = RunningProcess {
            child,
            multiplexer,
            browser_id: passed.browser_id,
            generation: passed.generation,
        };
        Ok((adopted, connections))
    }
}

impl Process {
    /// Takes over a Chromium of the program before. It is killed if that fails.
    pub(super) async fn adopt(
        config: &Config,
        identity: &Arc<Identity>,
        adopted: RunningProcess,
    ) -> Result<Self, LaunchError> {
        let remaining = RemainingProcesses(identity.clone());
        let temporary = TemporaryDir::adopt(config.session_dir.temporary());
        Self::when_answering(adopted, remaining, temporary).await
    }

    /// Releases Chromium to the next program of the agent, with the connections of `kept` clients.
    ///
    /// # Errors
    /// Fails if Chromium has ended, or something of it cannot be passed on. It is killed then.
    async fn pass(self, kept: Vec<ClientId>) -> io::Result<PassedProcess> {
        let Process {
            child,
            devtools,
            remaining,
            temporary,
        } = self;
        let passing = time::timeout(CDP_CALL_TIMEOUT, devtools.multiplexer.pass(kept));
        let multiplexer = passing.await.map_err(io::Error::from)??;
        let child = child.pass().await?;
        remaining.keep();
        temporary.keep();
        Ok(PassedProcess {
            child,
            multiplexer,
            browser_id: devtools.browser_id,
            generation: devtools.generation,
        })
    }
}

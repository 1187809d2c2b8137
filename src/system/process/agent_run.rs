//! The mark that every client process of one agent run carries in its environment.
//!
//! The mark identifies processes that left their session and outlived their parents, and those
//! that outlived an agent which was killed. The name of the run is stored in the agent's state
//! directory, so that the next agent on that directory can kill what the previous one left.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use uuid::Uuid;

use crate::system::process::tree;

/// The file with the name of the run, relative to the agent's state directory.
pub const RECORD: &str = "run/processes.run";

/// A run of an agent. Its name is random and therefore never matches processes of another run.
#[derive(Debug)]
pub struct AgentRun {
    name: Uuid,
    record: PathBuf,
}

impl AgentRun {
    /// Kills the processes of the previous run and records a new one.
    ///
    /// # Errors
    /// Fails if the record cannot be written.
    pub async fn start(state_dir: &Path) -> io::Result<Self> {
        kill_recorded(state_dir).await;
        let run = AgentRun {
            name: Uuid::new_v4(),
            record: state_dir.join(RECORD),
        };
        fs::write(&run.record, format!("{}\n", run.name))?;
        Ok(run)
    }

    /// Returns the mark for one process and everything it starts.
    #[must_use]
    pub fn mark(&self, process: &str) -> String {
        format!("{}.{process}", self.name)
    }

    /// Kills all remaining processes of this run.
    pub async fn kill_all(&self) {
        kill_run(self.name, &self.record).await;
    }
}

/// Kills the processes of the run recorded in `state_dir`. The agent of that run must have ended.
pub async fn kill_recorded(state_dir: &Path) {
    let record = state_dir.join(RECORD);
    let name = fs::read_to_string(&record).unwrap_or_default();
    if let Ok(name) = name.trim().parse() {
        kill_run(name, &record).await;
    }
}

/// Kills all processes of a run, and removes its record once none remains.
async fn kill_run(name: Uuid, record: &Path) {
    match tree::kill_marked(format!("{name}.")).await {
        Ok(true) => {
            let _ = fs::remove_file(record);
        }
        Ok(false) => tracing::warn!("client processes survived SIGKILL"),
        Err(error) => tracing::warn!(%error, "cannot kill remaining client processes"),
    }
}

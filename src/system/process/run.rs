//! All that one run of an agent starts for its clients bears a mark, so that it can be found and ended whatever has become of it and of the
//! agent: what leaves its session and outlives its parents, and what outlives an agent that was killed.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use uuid::Uuid;

use crate::system::process::tree;

/// Where an agent keeps the name of its run, below its folder.
pub const RECORD: &str = "run/processes.run";

/// A run of an agent. Its name is random: what bears it is that run's, whatever its number is.
#[derive(Debug)]
pub struct Run {
    name: Uuid,
    record: PathBuf,
}

impl Run {
    /// Ends what the run before has left, and begins another.
    ///
    /// # Errors
    /// Where the record cannot be written.
    pub async fn begin(folder: &Path) -> io::Result<Self> {
        end_recorded(folder).await;
        let run = Run {
            name: Uuid::new_v4(),
            record: folder.join(RECORD),
        };
        fs::write(&run.record, format!("{}\n", run.name))?;
        Ok(run)
    }

    /// The mark of one process, by which it and all it has started is found.
    #[must_use]
    pub fn mark(&self, process: &str) -> String {
        format!("{}.{process}", self.name)
    }

    /// Ends all that is left of it.
    pub async fn end(&self) {
        end(self.name, &self.record).await;
    }
}

/// Ends what is left of the run that an agent on this folder was in. To be called when that agent runs no more.
pub async fn end_recorded(folder: &Path) {
    let record = folder.join(RECORD);
    let name = fs::read_to_string(&record).unwrap_or_default();
    if let Ok(name) = name.trim().parse() {
        end(name, &record).await;
    }
}

/// The record goes once nothing is left.
async fn end(name: Uuid, record: &Path) {
    match tree::kill_marked(format!("{name}.")).await {
        Ok(true) => {
            let _ = fs::remove_file(record);
        }
        Ok(false) => tracing::warn!("processes of clients are left"),
        Err(error) => tracing::warn!(%error, "processes of clients may be left"),
    }
}

//! The processes of one agent run: how they are found and killed.
//!
//! Every client process of a run carries a mark in its environment and, where the agent may
//! create cgroups, runs in a cgroup below that of the run. Both identify processes that left
//! their session and outlived their parents, and those that outlived an agent which was killed.
//! The name and the cgroup of the run are stored in the agent's state directory, so that the next
//! agent on that directory can kill what the previous one left.

use std::{
    ffi::OsStr,
    fs, io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use uuid::Uuid;

use crate::system::process::{
    cgroup::{Cgroup, CgroupDirectory, RunCgroup},
    tree,
};

/// The file with the name of the run, relative to the agent's state directory.
pub const RECORD: &str = "run/processes.run";
/// The file with the path of the run's cgroup, relative to the agent's state directory.
const CGROUP_RECORD: &str = "run/processes.cgroup";

/// A run of an agent. Its name is random and therefore never matches processes of another run.
#[derive(Debug)]
pub struct AgentRun {
    name: Uuid,
    state_dir: PathBuf,
    /// `None` if processes are found by scans of `/proc` alone.
    cgroup: Option<Arc<RunCgroup>>,
}

impl AgentRun {
    /// Kills the processes of the previous run and records a new one.
    ///
    /// # Errors
    /// Fails if the record cannot be written.
    pub async fn start(state_dir: &Path) -> io::Result<Self> {
        kill_recorded(state_dir).await;
        let name = Uuid::new_v4();
        fs::write(state_dir.join(RECORD), format!("{name}\n"))?;
        let cgroup = match create_cgroup(state_dir, name) {
            Ok(cgroup) => {
                let path = cgroup.directory().path().display();
                tracing::info!(%path, "client processes run in cgroups");
                Some(Arc::new(cgroup))
            }
            Err(reason) => {
                let _ = fs::remove_file(state_dir.join(CGROUP_RECORD));
                tracing::info!(%reason, "client processes run without cgroups");
                None
            }
        };
        Ok(AgentRun {
            name,
            state_dir: state_dir.to_owned(),
            cgroup,
        })
    }

    /// Returns the mark for one process and everything it starts.
    #[must_use]
    pub fn mark(&self, process: &str) -> String {
        format!("{}.{process}", self.name)
    }

    /// Creates the cgroup for one process and everything it starts. Returns `None` if this run
    /// uses no cgroups, or if the system allows no more of them.
    #[must_use]
    pub fn create_cgroup(&self, process: &str) -> Option<Cgroup> {
        let created = self.cgroup.as_ref()?.create_child(process);
        created
            .inspect_err(|error| tracing::warn!(%error, process, "cannot create a cgroup"))
            .ok()
    }

    /// Kills all remaining processes of this run.
    pub async fn kill_all(&self) {
        let cgroup = self
            .cgroup
            .as_ref()
            .map(|cgroup| cgroup.directory().clone());
        kill_run(&self.state_dir, self.name, cgroup).await;
    }
}

/// Records and creates the cgroup of a run. The record comes first, so that a later agent finds
/// the cgroup even if this one is killed in between.
fn create_cgroup(state_dir: &Path, name: Uuid) -> io::Result<RunCgroup> {
    let directory = CgroupDirectory::for_run(&name.to_string())?;
    let path = directory.path().as_os_str().as_bytes();
    fs::write(state_dir.join(CGROUP_RECORD), path)?;
    RunCgroup::create(directory)
}

/// Kills the processes of the run recorded in `state_dir`. The agent of that run must have ended.
pub async fn kill_recorded(state_dir: &Path) {
    let name = fs::read_to_string(state_dir.join(RECORD)).unwrap_or_default();
    let Ok(name) = name.trim().parse::<Uuid>() else {
        return;
    };
    let path = fs::read(state_dir.join(CGROUP_RECORD)).unwrap_or_default();
    let path = Path::new(OsStr::from_bytes(&path));
    let cgroup = CgroupDirectory::recorded(path, &name.to_string());
    kill_run(state_dir, name, cgroup).await;
}

/// Kills all processes of a run, and removes its cgroup and its records once none remains.
async fn kill_run(state_dir: &Path, name: Uuid, cgroup: Option<CgroupDirectory>) {
    match tree::kill_marked(format!("{name}."), cgroup.clone()).await {
        Ok(true) => {
            if let Some(Err(error)) = cgroup.map(|cgroup| cgroup.remove()) {
                tracing::warn!(%error, "cannot remove a cgroup");
            }
            let _ = fs::remove_file(state_dir.join(CGROUP_RECORD));
            let _ = fs::remove_file(state_dir.join(RECORD));
        }
        Ok(false) => tracing::warn!("client processes survived SIGKILL"),
        Err(error) => tracing::warn!(%error, "cannot kill remaining client processes"),
    }
}

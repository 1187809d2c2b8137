//! The processes of one agent run: how they are found and killed.
//!
//! Every client process of a run carries a mark in its environment and, where the agent may
//! create cgroups, runs in a cgroup below that of the run. Both identify processes that left
//! their session and outlived their parents, and those that outlived an agent which was killed.
//!
//! ```text
//! mark    <name of the run>.<random>            secret: SIGKILL finds every process that has it
//! cgroup  berth-<random>/<number>               public: any user can read it in /proc
//! record  run/processes/<name of the run>       the path of the cgroup, in the state directory
//! ```
//!
//! The record is removed after the last process and the cgroup of the run. Until then, every later
//! agent on that state directory kills what the run left.

use std::{
    ffi::OsStr,
    fs, io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use futures::future::join_all;
use uuid::Uuid;

use crate::system::process::{
    cgroup::{Cgroup, CgroupDirectory, RunCgroup},
    tree,
};

/// The directory with the records of runs, relative to the agent's state directory.
const RECORDS: &str = "run/processes";

/// A run of an agent. Its name is random and therefore never matches processes of another run.
#[derive(Debug)]
pub struct AgentRun {
    name: Uuid,
    record: PathBuf,
    /// `None` if processes are found by scans of `/proc` alone.
    cgroup: Option<Arc<RunCgroup>>,
}

impl AgentRun {
    /// Kills the processes of previous runs and records a new one.
    ///
    /// # Errors
    /// Fails if the record cannot be written.
    pub async fn start(state_dir: &Path) -> io::Result<Self> {
        kill_recorded(state_dir).await;
        let name = Uuid::new_v4();
        let records = state_dir.join(RECORDS);
        fs::create_dir_all(&records)?;
        let record = records.join(name.to_string());
        fs::write(&record, "")?;
        let cgroup = match create_cgroup(&record) {
            Ok(cgroup) => {
                let path = cgroup.directory().path().display();
                tracing::info!(%path, "client processes run in cgroups");
                Some(Arc::new(cgroup))
            }
            Err(reason) => {
                fs::write(&record, "")?;
                tracing::info!(%reason, "client processes run without cgroups");
                None
            }
        };
        Ok(AgentRun {
            name,
            record,
            cgroup,
        })
    }

    /// Returns a new mark for one process and everything it starts. Other users cannot read it:
    /// with it, they could delay a kill.
    #[must_use]
    pub fn new_mark(&self) -> String {
        format!("{}.{}", self.name, Uuid::new_v4())
    }

    /// Returns the cgroup for one process and everything it starts, or `None` if this run uses no
    /// cgroups, or if the system allows no more of them. After its end [`Self::keep_up`] is due.
    #[must_use]
    pub fn new_cgroup(&self) -> Option<Cgroup> {
        let created = self.cgroup.as_ref()?.child();
        created
            .inspect_err(|error| tracing::warn!(%error, "cannot create a cgroup"))
            .ok()
    }

    /// Removes the cgroups of processes that have ended, and creates others ahead.
    pub async fn keep_up(&self) {
        if let Some(cgroup) = &self.cgroup {
            cgroup.keep_up().await;
        }
    }

    /// Returns whether a process of this run is left, also one that its client does not know any
    /// more. If that cannot be found out, there may be one.
    pub async fn has_processes(&self) -> bool {
        if let Some(cgroup) = &self.cgroup {
            return !cgroup.directory().is_empty();
        }
        let searched = tree::is_any_marked(format!("{}.", self.name)).await;
        searched.unwrap_or(true)
    }

    /// Kills all remaining processes of this run. Returns whether none is left.
    pub async fn kill_all(&self) -> bool {
        let cgroup = self.cgroup.as_ref().map(|cgroup| {
            cgroup.close();
            cgroup.directory().clone()
        });
        kill_run(&self.record, self.name, cgroup).await
    }
}

/// Records and creates the cgroup of a run. The record comes first, so that a later agent finds
/// the cgroup even if this one is killed in between.
fn create_cgroup(record: &Path) -> io::Result<RunCgroup> {
    let directory = CgroupDirectory::new_for_run()?;
    fs::write(record, directory.path().as_os_str().as_bytes())?;
    RunCgroup::create(directory)
}

/// Kills the processes of all runs recorded in `state_dir`. Their agents must have ended.
pub async fn kill_recorded(state_dir: &Path) {
    let records = fs::read_dir(state_dir.join(RECORDS));
    let runs = records.into_iter().flatten().flatten().filter_map(|entry| {
        let name = entry.file_name().to_str()?.parse::<Uuid>().ok()?;
        Some((entry.path(), name))
    });
    join_all(runs.map(|(record, name)| async move {
        let path = fs::read(&record).unwrap_or_default();
        let cgroup = CgroupDirectory::recorded(Path::new(OsStr::from_bytes(&path)));
        kill_run(&record, name, cgroup).await;
    }))
    .await;
}

/// Kills all processes of a run. Removes its cgroup once none remains, and then its record. Returns
/// whether no process remains.
async fn kill_run(record: &Path, name: Uuid, cgroup: Option<CgroupDirectory>) -> bool {
    let killed = tree::kill_marked(format!("{name}."), cgroup.clone()).await;
    match &killed {
        Ok(true) => match cgroup.map_or(Ok(()), |cgroup| cgroup.remove()) {
            Ok(()) => {
                let _ = fs::remove_file(record);
            }
            Err(error) => tracing::warn!(%error, "cannot remove a cgroup; the next agent will"),
        },
        Ok(false) => tracing::warn!("client processes survived SIGKILL; the next agent will retry"),
        Err(error) => tracing::warn!(%error, "cannot kill remaining client processes"),
    }
    matches!(killed, Ok(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(state_dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(state_dir.join(RECORDS)).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.collect()
    }

    #[tokio::test]
    async fn record_is_kept_until_the_cgroup_of_its_run_is_removed() {
        let directory = tempfile::TempDir::new().unwrap();
        let (name, cgroup) = (
            Uuid::new_v4(),
            CgroupDirectory::in_directory(directory.path()),
        );
        // As with a process in it, the directory cannot be removed.
        let obstacle = cgroup.path().join("obstacle");
        fs::create_dir(cgroup.path()).unwrap();
        fs::write(&obstacle, "").unwrap();
        let record = directory.path().join(RECORDS).join(name.to_string());
        fs::create_dir_all(record.parent().unwrap()).unwrap();
        fs::write(&record, cgroup.path().as_os_str().as_bytes()).unwrap();

        let run = AgentRun::start(directory.path()).await.unwrap();
        let both = records(directory.path());
        assert_eq!(both.len(), 2, "{both:?}");
        assert!(both.contains(&name.to_string()) && both.contains(&run.name.to_string()));
        run.kill_all().await;
        assert_eq!(records(directory.path()), [name.to_string()]);

        fs::remove_file(obstacle).unwrap();
        kill_recorded(directory.path()).await;
        assert!(records(directory.path()).is_empty() && !cgroup.path().exists());
    }

    #[tokio::test]
    async fn marks_of_a_run_differ_and_have_the_length_of_marks() {
        let directory = tempfile::TempDir::new().unwrap();
        let run = AgentRun::start(directory.path()).await.unwrap();
        let (one, two) = (run.new_mark(), run.new_mark());
        assert_ne!(one, two);
        assert_eq!((one.len(), two.len()), (tree::MARK_BYTES, tree::MARK_BYTES));
        run.kill_all().await;
    }
}

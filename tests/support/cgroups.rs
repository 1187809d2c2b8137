//! cgroups of client processes.

use std::{fs, path::PathBuf};

use super::agent::TestAgent;

/// A line of shell that moves the shell from the cgroup of a client process to that of the agent,
/// if there is one. It needs root.
pub const LEAVE_CGROUP: &str = "cgroup=$(sed -n s/^0:://p /proc/self/cgroup); \
    case $cgroup in */berth-*/*) \
        for mount in /sys/fs/cgroup /sys/fs/cgroup/unified; do \
            echo $$ > $mount${cgroup%/*/*}/cgroup.procs; \
        done 2> /dev/null;; \
    esac";

/// Returns the directory that holds the cgroups of the agent's client processes, or `None` on
/// systems where the agent cannot create cgroups.
pub fn directory_of(agent: &TestAgent) -> Option<PathBuf> {
    let path = fs::read_to_string(agent.state_dir().join("run/processes.cgroup")).ok();
    if path.is_none() {
        eprintln!("skipped, the agent cannot create cgroups here");
    }
    path.map(PathBuf::from)
}

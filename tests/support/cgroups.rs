//! cgroups of client processes.

use std::{env, fs, path::PathBuf};

use super::agent::TestAgent;

/// A line of shell that moves the shell from the cgroup of a client process to that of the agent,
/// if there is one. It needs root.
pub const LEAVE_CGROUP: &str = "cgroup=$(sed -n s/^0:://p /proc/self/cgroup); \
    case $cgroup in */berth-*/*) \
        for mount in /sys/fs/cgroup /sys/fs/cgroup/unified; do \
            echo $$ > $mount${cgroup%/*/*}/cgroup.procs; \
        done 2> /dev/null;; \
    esac";

/// The setting that allows the tests of cgroups to be skipped, with the value `skip`. `make` sets
/// it on systems that allow no cgroups.
const SETTING: &str = "BERTH_TEST_CGROUPS";

/// Returns the directory that holds the cgroups of the agent's client processes. Returns `None` if
/// the agent cannot create cgroups and the setting allows skipping the test.
pub fn directory_of(agent: &TestAgent) -> Option<PathBuf> {
    let records = fs::read_dir(agent.session_dir().join("run/processes")).ok();
    let path = records.and_then(|mut records| {
        // Only runs that left something have further records.
        let record = records.next()?.ok()?.path();
        let path = fs::read_to_string(record).ok()?;
        (!path.is_empty()).then_some(path)
    });
    if path.is_none() {
        let may_skip = env::var_os(SETTING).is_some_and(|value| value == "skip");
        assert!(
            may_skip,
            "the agent created no cgroup, see its log; if this system allows none, \
             {SETTING}=skip skips this test"
        );
        eprintln!("skipped: the agent created no cgroup, and {SETTING} is skip");
    }
    path.map(PathBuf::from)
}

//! An engine whose machines are agents on this machine: commands that launch and destroy them.
//!
//! ```text
//! mode                 the behaviour of the launch command
//! machines/LAUNCH/pid  the process group of a machine
//! launched             the ids of all launches, in their order
//! destroyed            launch id and engine id of each destroyed machine
//! tokens, argv         the join tokens, and the command lines of the machine meanwhile
//! off                  makes new machines wait until it is removed
//! hold                 makes the destroy command wait until it is removed
//! ```

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use tempfile::TempDir;

use super::{dev::BERTH, wait::until};

const LAUNCH: &str = r#"#!/bin/sh
cd "@ENGINE@" || exit 1
echo "$BERTH_LAUNCH_ID" >> launched
read -r input
printf '%s\n' "$input" >&2
token=$(printf '%s' "$input" | sed 's/.*"join_token":"\([^"]*\)".*/\1/')
printf '%s\n' "$token" >> tokens
cat /proc/[0-9]*/cmdline 2> /dev/null | tr '\0' ' ' >> argv
machine=machines/$BERTH_LAUNCH_ID
mode=$(cat mode)
[ "$mode" = fail ] && exit 7
mkdir -p "$machine"
if [ "$mode" = absent ] || [ "$mode" = hang ]; then
    set -- sleep 1000
else
    set -- "@BERTH@" agent --listen 127.0.0.1:0 --headless --state-dir "@ENGINE@/$machine/state" \
        --control-url "$BERTH_LAUNCH_CONTROL_URL"
fi
BERTH_AGENT_JOIN_TOKEN=$token setsid sh -c '
    echo $$ > "$1/new" && mv "$1/new" "$1/pid"
    while [ -e "$2" ]; do sleep 0.01; done
    mode=$3; shift 3
    # As systemd does.
    while [ "$mode" = restart ]; do "$@"; sleep 0.1; done
    exec "$@"
' sh "$machine" off "$mode" "$@" < /dev/null > "$machine/log" 2>&1 &
# Until then it is killed with the command.
until [ -e "$machine/pid" ]; do :; done
[ "$mode" = hang ] && exec sleep 1000
echo "engine-$BERTH_LAUNCH_ID"
"#;

const DESTROY: &str = r#"#!/bin/sh
cd "@ENGINE@" || exit 1
touch "destroying-$BERTH_LAUNCH_ID"
while [ -e hold ]; do sleep 0.01; done
machine=machines/$BERTH_LAUNCH_ID
if [ -e "$machine/pid" ]; then
    kill -s KILL -- "-$(cat "$machine/pid")" 2> /dev/null
fi
until rm -rf "$machine" 2> /dev/null; do :; done
echo "$BERTH_LAUNCH_ID ${BERTH_LAUNCH_ENGINE_ID-none}" >> destroyed
"#;

/// The engine. Dropping it kills its machines.
pub struct TestEngine {
    directory: TempDir,
}

impl TestEngine {
    /// Returns an engine whose machines join.
    pub fn new() -> TestEngine {
        TestEngine::with_agents(Path::new(BERTH))
    }

    /// Returns such an engine with the agent of another build.
    pub fn with_agents(program: &Path) -> TestEngine {
        let directory = TempDir::with_prefix("berth-engine-").unwrap();
        let engine = TestEngine { directory };
        fs::create_dir(engine.path("machines")).unwrap();
        engine.set_mode("join");
        let place = engine.directory.path().to_str().unwrap();
        for (name, script) in [("launch", LAUNCH), ("destroy", DESTROY)] {
            let script = script.replace("@ENGINE@", place);
            let script = script.replace("@BERTH@", program.to_str().unwrap());
            fs::write(engine.path(name), script).unwrap();
            fs::set_permissions(engine.path(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        engine
    }

    /// Sets the behaviour of the launch command: `fail`, `hang` after the machine was created,
    /// `absent` for a machine that never joins, `join`, or `restart` for one that joins and whose
    /// agent is started again whenever it exits.
    pub fn set_mode(&self, mode: &str) {
        // A command may read it meanwhile.
        fs::write(self.path("new-mode"), mode).unwrap();
        fs::rename(self.path("new-mode"), self.path("mode")).unwrap();
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns the options of control, with others.
    pub fn options(&self, others: &[&str]) -> Vec<String> {
        let path = |name| self.path(name).to_str().unwrap().to_owned();
        let own = ["--launch-command".to_owned(), path("launch")];
        let own = own
            .into_iter()
            .chain(["--destroy-command".to_owned(), path("destroy")]);
        own.chain(others.iter().map(|&other| other.to_owned()))
            .collect()
    }

    /// Returns the lines of a file.
    pub fn lines(&self, name: &str) -> Vec<String> {
        let text = fs::read_to_string(self.path(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Returns the directories of the machines.
    pub fn machines(&self) -> Vec<PathBuf> {
        let machines = fs::read_dir(self.path("machines")).unwrap();
        machines.map(|machine| machine.unwrap().path()).collect()
    }

    /// Waits until the engine has a machine, and returns its process group.
    pub async fn machine(&self) -> i32 {
        until("a machine", async || {
            self.machines().iter().find_map(|machine| group(machine))
        })
        .await
    }

    /// Kills the processes of all machines.
    pub fn kill_machines(&self) {
        for group in self.machines().iter().filter_map(|machine| group(machine)) {
            let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
        }
    }

    /// Waits until `count` machines were destroyed and none is left.
    pub async fn has_destroyed(&self, count: usize) {
        until("no machine", async || {
            let is_done = self.lines("destroyed").len() >= count && self.machines().is_empty();
            is_done.then_some(())
        })
        .await;
    }
}

impl Drop for TestEngine {
    fn drop(&mut self) {
        self.kill_machines();
    }
}

fn group(machine: &Path) -> Option<i32> {
    fs::read_to_string(machine.join("pid"))
        .ok()?
        .trim()
        .parse()
        .ok()
}

use std::{
    process::{Child, Command},
    thread,
    time::{Duration, Instant},
};

use super::*;

const TEST_TIMEOUT: Duration = Duration::from_secs(60);

fn directory_of(cgroups: &str, mounts: &str) -> Option<PathBuf> {
    own_directory(cgroups, mounts.as_bytes())
}

#[test]
fn own_directory_is_below_the_mount_point() {
    let mounts = "22 1 0:20 / /proc rw - proc proc rw\n\
        30 23 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
        31 23 0:27 / /sys/fs/cgroup rw,nosuid shared:9 master:1 - cgroup2 cgroup2 rw\n";
    let expected = Some(PathBuf::from("/sys/fs/cgroup/user.slice/a b.scope"));
    assert_eq!(
        directory_of("4:memory:/x\n0::/user.slice/a b.scope\n", mounts),
        expected
    );
    assert_eq!(
        directory_of("0::/\n", mounts),
        Some("/sys/fs/cgroup/".into())
    );
    assert_eq!(directory_of("4:memory:/x\n", mounts), None);
    assert_eq!(
        directory_of("0::/\n", "22 1 0:20 / /proc rw - proc proc rw\n"),
        None
    );
}

#[test]
fn own_directory_considers_the_root_of_the_mount() {
    let mounts = "31 23 0:27 /docker/7 /mnt/the\\040cgroups rw - cgroup2 cgroup2 rw\n";
    let expected = Some(PathBuf::from("/mnt/the cgroups/init"));
    assert_eq!(directory_of("0::/docker/7/init\n", mounts), expected);
    assert_eq!(directory_of("0::/docker/8\n", mounts), None);
    let outside = "31 23 0:27 /../.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
    assert_eq!(directory_of("0::/\n", outside), None);
}

#[test]
fn recorded_directory_has_the_name_of_a_run() {
    let parent = tempfile::TempDir::new().unwrap();
    let directory = CgroupDirectory::in_directory(parent.path());
    assert_eq!(CgroupDirectory::recorded(directory.path()), None);
    fs::create_dir(directory.path()).unwrap();
    let recorded = CgroupDirectory::recorded(directory.path());
    assert_eq!(recorded, Some(directory));
    assert_eq!(CgroupDirectory::recorded(parent.path()), None);
    assert_eq!(CgroupDirectory::recorded(Path::new("")), None);
}

/// Creates a cgroup. Returns `None` if no cgroup can be used and `BERTH_TEST_CGROUPS` allows
/// skipping the test.
#[expect(clippy::disallowed_methods, reason = "a setting of the tests")]
fn create() -> Option<Arc<RunCgroup>> {
    match CgroupDirectory::new_for_run().and_then(RunCgroup::create) {
        Ok(run) => Some(Arc::new(run)),
        Err(error) => {
            let setting = std::env::var_os("BERTH_TEST_CGROUPS");
            assert!(
                setting.is_some_and(|value| value == "skip"),
                "no cgroup can be used: {error}; BERTH_TEST_CGROUPS=skip skips this test"
            );
            eprintln!("skipped: no cgroup can be used: {error}");
            None
        }
    }
}

fn sleep_in(cgroup: &Cgroup) -> Child {
    let child = Command::new("sleep").arg("1000").spawn().unwrap();
    let procs = cgroup.directory.0.join("cgroup.procs");
    fs::write(procs, child.id().to_string()).unwrap();
    child
}

#[expect(clippy::disallowed_methods, reason = "blocks a test thread")]
fn wait_until(condition: impl Fn() -> bool) {
    let started_at = Instant::now();
    while !condition() {
        assert!(started_at.elapsed() < TEST_TIMEOUT, "timed out");
        thread::sleep(Duration::from_millis(1));
    }
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "blocks a test thread")]
async fn kill_ends_all_processes_of_a_cgroup_and_of_those_below() {
    let Some(run) = create() else { return };
    let cgroup = run.child().unwrap();
    assert!(!cgroup.directory.is_populated() && cgroup.directory.is_empty());
    let mut child = sleep_in(&cgroup);
    assert!(cgroup.directory.is_populated() && !cgroup.directory.is_empty());
    assert_eq!(
        run.directory.pids(),
        HashSet::from([child.id().cast_signed()])
    );
    cgroup.directory.kill().unwrap();
    assert_eq!(child.wait().unwrap().code(), None, "killed by a signal");
    wait_until(|| !cgroup.directory.is_populated());
    let path = cgroup.directory.0.clone();
    // A process that may write to its cgroup can create further ones below it.
    fs::create_dir(path.join("inner")).unwrap();
    drop(cgroup);
    run.keep_up().await;
    assert!(!path.exists());
    run.close();
    run.directory.remove().unwrap();
    assert!(!run.directory.0.exists());
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "blocks a test thread")]
async fn populated_cgroup_is_removed_once_its_processes_have_ended() {
    let Some(run) = create() else { return };
    let cgroup = run.child().unwrap();
    let directory = cgroup.directory.clone();
    let mut child = sleep_in(&cgroup);
    drop(cgroup);
    run.keep_up().await;
    assert!(directory.is_populated());
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until(|| !directory.is_populated());
    run.keep_up().await;
    assert!(!directory.0.exists());
    run.directory.remove().unwrap();
}

#[tokio::test]
async fn cgroups_are_created_ahead_until_the_run_ends() {
    let Some(run) = create() else { return };
    let children = || run.directory.children().count();
    let first = run.child().unwrap();
    assert_eq!(children(), 1);
    drop(first);
    run.keep_up().await;
    assert_eq!(children(), SPARES);
    let second = run.child().unwrap();
    assert_eq!(children(), SPARES, "it was there already");
    run.close();
    drop(second);
    run.keep_up().await;
    assert_eq!(children(), SPARES - 1);
    run.directory.remove().unwrap();
    assert!(!run.directory.0.exists());
}

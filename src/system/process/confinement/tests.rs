use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::PathBuf,
};

use nix::unistd::{Gid, Uid};

use super::*;

/// Returns a user without an entry that no other test uses.
fn user() -> Credentials {
    let number = 0x7fff_0000 - std::process::id() % 0x1_0000;
    Credentials {
        uid: Uid::from_raw(number),
        gid: Gid::from_raw(number),
        groups: Vec::new(),
    }
}

/// Returns a readable directory with a readable file, below a directory that only root can enter.
fn closed_directory() -> (tempfile::TempDir, PathBuf) {
    let closed = tempfile::tempdir().unwrap();
    fs::set_permissions(closed.path(), Permissions::from_mode(0o700)).unwrap();
    fs::write(closed.path().join("other"), "other").unwrap();
    let open = closed.path().join("a/open");
    fs::create_dir_all(&open).unwrap();
    fs::write(open.join("file"), "content").unwrap();
    (closed, open)
}

async fn read_as(confinement: &Confinement, path: &Path) -> String {
    let mut command = Command::new("/bin/cat");
    command.arg(path);
    confinement.confine(&mut command);
    let output = command.output().await.unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn user_reaches_named_paths_below_a_closed_directory_and_nothing_else() {
    if !Uid::effective().is_root() {
        return;
    }
    let (closed, open) = closed_directory();
    let file = open.join("file");
    for path in [&open, &file] {
        let confinement = Confinement::new(user(), &[path, Path::new("/nowhere")]);
        let missing = probe(Some(&confinement), Path::new("/bin/cat"), Path::new("/")).unwrap();
        assert_eq!(
            (missing.mounts, missing.user, missing.program),
            (None, None, None)
        );
        assert_eq!(read_as(&confinement, &file).await, "content");
        assert_eq!(
            read_as(&confinement, &closed.path().join("other")).await,
            ""
        );
    }
    let unmounted = Confinement::new(user(), &[]);
    assert_eq!(read_as(&unmounted, &file).await, "");
    let missing = probe(Some(&unmounted), &file, &open).unwrap();
    assert_eq!(missing.program, Some(Errno::EACCES));
    assert_eq!(missing.directory, Some(Errno::EACCES));
    // The file systems of this process are as before.
    assert_eq!(
        fs::read_to_string(closed.path().join("other")).unwrap(),
        "other"
    );
}

#[tokio::test]
#[expect(
    clippy::disallowed_methods,
    reason = "the test starts itself as another process"
)]
async fn probe_reports_that_no_namespaces_can_be_created() {
    /// Runs the probe in a user namespace that allows no others below it.
    const VARIABLE: &str = "BERTH_TEST_PROBE";
    const TEST: &str =
        "system::process::confinement::tests::probe_reports_that_no_namespaces_can_be_created";
    if std::env::var_os(VARIABLE).is_some() {
        let missing = probe(None, Path::new("/bin/true"), Path::new("/")).unwrap();
        assert_eq!(missing.namespaces, Some(Errno::ENOSPC));
        assert_eq!((missing.program, missing.directory), (None, None));
        return;
    }
    let script = "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$0\" \"$@\"";
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "sh", "-c", script])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", TEST])
        .env(VARIABLE, "1")
        .output()
        .await
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && printed.contains("1 passed"),
        "{printed}"
    );
}

#[test]
#[expect(
    clippy::zombie_processes,
    reason = "the function under test waits for the processes"
)]
fn stopped_child_is_killed_after_the_timeout() {
    let run = |script: &str| {
        let mut shell = std::process::Command::new("/bin/sh");
        let shell = shell.args(["-c", script]).spawn().unwrap();
        Pid::from_raw(shell.id().cast_signed())
    };
    wait_or_kill(run("exit 0"), Duration::from_secs(60)).unwrap();
    let stopped = run("kill -STOP $$");
    let error = wait_or_kill(stopped, POLL_INTERVAL).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    assert_eq!(kill(stopped, None), Err(Errno::ESRCH));
}

#[tokio::test]
async fn kill_is_repeated_if_it_cannot_be_sent() {
    if !Uid::effective().is_root() {
        return;
    }
    let confinement = Confinement::new(user(), &[]);
    let mut command = Command::new("/bin/sleep");
    command.arg("600").uid(user().uid.as_raw());
    let mut program = command.spawn().unwrap();
    let failed = || Err(io::ErrorKind::TimedOut.into());
    let error = confinement.kill_with(failed).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    assert!(program.try_wait().unwrap().is_none());
    let mut attempts = 0;
    let killed = confinement.kill_with(|| {
        attempts += 1;
        match attempts {
            1 => failed(),
            _ => confinement.signal_all(),
        }
    });
    killed.unwrap();
    assert_eq!(attempts, 2);
    program.wait().await.unwrap();
}

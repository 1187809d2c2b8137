//! The commands of README.md, run as they are written.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
    process::Stdio,
};

use tempfile::TempDir;
use tokio::time::timeout;

use crate::support::{
    dev::berth,
    processes,
    wait::{WAIT_TIMEOUT, until},
};

const README: &str = include_str!("../../README.md");
const MARKER: &str = "<!-- tested -->\n```sh\n";

/// Returns the code blocks after a marker.
fn tested_blocks() -> Vec<&'static str> {
    let parts = README.split(MARKER).skip(1);
    parts
        .map(|part| part.split_once("```").expect("the end of a block").0)
        .collect()
}

/// Prepares a project directory whose programs are built, and a `make` that has nothing to do.
fn project(directory: &Path) {
    let programs = Path::new(env!("CARGO_BIN_EXE_berth"))
        .parent()
        .expect("a directory");
    fs::create_dir_all(directory.join("target")).unwrap();
    symlink(programs, directory.join("target/debug")).unwrap();
    fs::create_dir_all(directory.join("bin")).unwrap();
    let make = directory.join("bin/make");
    fs::write(&make, "#!/bin/sh\n[ \"$*\" = build ]\n").unwrap();
    fs::set_permissions(make, fs::Permissions::from_mode(0o755)).unwrap();
}

#[tokio::test]
async fn readme_commands_succeed_and_leave_no_process() {
    let blocks = tested_blocks();
    assert!(blocks.len() >= 2, "README.md has no tested blocks");
    let directory = TempDir::with_prefix("berth-readme-").unwrap();
    project(directory.path());
    let script = format!(
        "set -euo pipefail\ntrap 'kill $(jobs -p); wait' EXIT\n{}",
        blocks.concat()
    );
    let path = std::env::var("PATH").unwrap();

    // Only for Berth's variables, which `berth` removes from the environment.
    let clean = berth(&[]);
    let removed = clean.get_envs().filter(|(_, value)| value.is_none());
    let mut command = tokio::process::Command::new("bash");
    for (name, _) in removed {
        command.env_remove(name);
    }
    command
        .args(["-c", &script])
        .current_dir(directory.path())
        .env(
            "PATH",
            format!("{}:{path}", directory.path().join("bin").display()),
        )
        // A separate state directory and port.
        .env("HOME", directory.path())
        .env_remove("XDG_STATE_HOME")
        .env("BERTH_LISTEN", "127.0.0.1:0")
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = timeout(3 * WAIT_TIMEOUT, command.output())
        .await
        .expect("the README's commands end")
        .expect("bash starts");

    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    let log = fs::read_to_string(directory.path().join("target/berth.log")).unwrap_or_default();
    let all = format!("{stdout}\n{stderr}\n{log}");
    assert!(output.status.success(), "{}\n{all}", output.status);
    assert!(stdout.contains("\"success\":true"), "{all}");
    assert!(!stdout.contains("\"code\":"), "an error response:\n{all}");
    let screenshot = fs::read(directory.path().join("target/screen.png")).unwrap();
    assert!(screenshot.starts_with(b"\x89PNG"), "{all}");
    let recording = fs::read(directory.path().join("target/screen.mp4")).unwrap();
    assert_eq!(recording.get(4..8), Some(&b"ftyp"[..]), "{all}");
    until("the end of all processes", async || {
        processes::naming(directory.path()).is_empty().then_some(())
    })
    .await;
}

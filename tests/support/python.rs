//! Runs Python programs of `tests/clients` with the packages of its `requirements.txt`.

use std::{
    path::{Path, PathBuf},
    process::{Output, Stdio},
};

use tokio::process::Command;

/// Returns the directory of the client programs.
pub fn clients() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients")
}

/// Returns the Python with the packages: the one that `make` sets, or the default location.
pub fn python() -> PathBuf {
    let default_location = || Path::new(env!("CARGO_BIN_EXE_berth")).join("../../venv/bin/python");
    std::env::var_os("BERTH_TEST_PYTHON").map_or_else(default_location, PathBuf::from)
}

/// Runs a command to its end, without standard input.
pub async fn run(command: &mut Command) -> Output {
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output();
    output.await.unwrap_or_else(|error| {
        let program = command
            .as_std()
            .get_program()
            .to_string_lossy()
            .into_owned();
        panic!("{program} (does `make test` run this?): {error}")
    })
}

/// Returns the standard output of a successful command.
pub async fn output_of(command: &mut Command) -> String {
    let output = run(command).await;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{}\n{stdout}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    stdout
}

//! Runs commands until they exit, and reads their output.

use std::process::{Command, ExitStatus};

/// The output and the exit status of a command.
pub struct Printed {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

/// Runs a command until it exits.
pub async fn print(command: Command) -> Printed {
    let output = tokio::process::Command::from(command)
        .output()
        .await
        .unwrap();
    Printed {
        status: output.status,
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Runs a command, which must succeed, until it exits.
pub async fn print_successfully(command: Command) -> Printed {
    let description = format!("{command:?}");
    let printed = print(command).await;
    assert!(
        printed.status.success(),
        "{description}\n{}",
        printed.stderr
    );
    printed
}

//! `--vm`: browsers in machines of the VM image, which the commands of the package berth-vm run on
//! this machine.

use std::{
    io,
    path::{Path, PathBuf},
};

use super::DevError;
use crate::control::{settings::Settings, store::Fleet};

const LAUNCH_COMMAND: &str = "vm-launch";
const DESTROY_COMMAND: &str = "vm-destroy";
/// The directory of the commands, from that of this program.
const LIBRARY: &str = "../lib/berth";

/// Returns the settings of control with the commands that run machines.
///
/// # Errors
/// Fails if the commands are not installed.
pub(super) fn with_machines(control: &Settings) -> Result<Settings, DevError> {
    let program = std::env::current_exe().map_err(DevError::Program)?;
    let mut control = control.clone();
    control.host_fleet = Fleet::Registered;
    let launch = &mut control.registered_fleet.launch;
    launch.launch_command = Some(find(&program, LAUNCH_COMMAND)?);
    launch.destroy_command = Some(find(&program, DESTROY_COMMAND)?);
    Ok(control)
}

/// Returns the path of a command in the library beside the program.
fn find(program: &Path, command: &str) -> Result<PathBuf, DevError> {
    let directory = program.parent().unwrap_or(Path::new("/")).join(LIBRARY);
    let path = directory.join(command);
    path.canonicalize()
        .map_err(|source: io::Error| DevError::Command {
            path: path.display().to_string(),
            source,
        })
}

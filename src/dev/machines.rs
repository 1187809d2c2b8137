//! `--vm`: browsers in machines of the VM image, which the commands of the package berth-vm run on
//! this machine.

use super::DevError;
use crate::{
    control::{settings::Settings, store::Fleet},
    system::script::location::find_private_program,
};

/// Returns the settings of control with the commands that run machines.
///
/// # Errors
/// Fails if the commands are not installed.
pub(super) fn with_machines(control: &Settings) -> Result<Settings, DevError> {
    let own = std::env::current_exe().map_err(DevError::Program)?;
    let find = |name| find_private_program(&own, name).ok_or(DevError::NoCommand(name));
    let mut control = control.clone();
    control.host_fleet = Fleet::Registered;
    let launch = &mut control.registered_fleet.launch;
    launch.launch_command = Some(find("vm-launch")?);
    launch.destroy_command = Some(find("vm-destroy")?);
    Ok(control)
}

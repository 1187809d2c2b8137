//! Core files, which would have the secrets in this process's memory.

use nix::{
    errno::Errno,
    sys::{
        prctl,
        resource::{Resource, getrlimit, setrlimit},
    },
};

/// Prevents that the kernel writes a core file of this process or passes it to a program, and that
/// other processes of the user read its memory.
///
/// # Errors
/// If the kernel refuses it.
pub fn disable() -> Result<(), Errno> {
    // Programs that this process starts may raise their limit.
    let (_, hard_limit) = getrlimit(Resource::RLIMIT_CORE)?;
    setrlimit(Resource::RLIMIT_CORE, 0, hard_limit)?;
    // The limit does not apply to a program that receives core files.
    prctl::set_dumpable(false)
}

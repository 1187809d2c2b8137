//! The sound server's address and cookie, which PulseAudio's clients take from the environment.
#![expect(
    clippy::disallowed_methods,
    reason = "variables of PulseAudio, not settings of the agent"
)]

use std::{env, path::PathBuf};

/// The cookie's place in a directory of configuration files.
const COOKIE: &str = "pulse/cookie";

/// Returns the address of the sound server.
pub(super) fn default_server() -> Option<String> {
    env::var("PULSE_SERVER").ok()
}

/// Returns the file by which clients of the sound server authenticate, if there is one.
pub(super) fn cookie() -> Option<PathBuf> {
    let path = |name: &str| env::var_os(name).map(PathBuf::from);
    let home = path("HOME").map(|home| home.join(".config"));
    let configuration = path("XDG_CONFIG_HOME").or(home);
    let cookie = path("PULSE_COOKIE").or(configuration.map(|directory| directory.join(COOKIE)));
    cookie.filter(|cookie| cookie.is_file())
}

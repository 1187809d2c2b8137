//! The bearer token, read from its file or variable.

use std::path::Path;

use secrecy::SecretString;

use crate::token_setting;

pub(super) const VARIABLE: &str = "BERTH_AGENT_TOKEN";

/// Reads the token from its file, or from [`VARIABLE`]. Returns `None` if there is neither.
#[expect(
    clippy::disallowed_methods,
    reason = "an option would show the token in the list of processes"
)]
pub(super) fn read(file: Option<&Path>) -> Result<Option<SecretString>, String> {
    token_setting::read(file, (VARIABLE, std::env::var(VARIABLE).ok()))
}

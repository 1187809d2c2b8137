//! The properties of the machine that control selects hosts by.

use std::io;

use serde_json::{Value, json};

use crate::{agent::settings::Config, api::viewport, system::process::memory::MachineMemory};

/// The flag with which Chromium runs in kiosk mode.
const KIOSK_FLAG: &str = "--kiosk";

/// Returns the capabilities of the host.
///
/// # Errors
/// Fails if `/proc` cannot be read.
pub(super) fn capabilities(config: &Config) -> io::Result<Value> {
    let memory = MachineMemory::read()?;
    Ok(json!({
        "display": !config.headless,
        // The area has a limit, too, which is the same for all hosts.
        "max_viewport": {"width": viewport::SIDE.end(), "height": viewport::SIDE.end()},
        "kiosk_mode": config.chromium_flags.iter().any(|flag| flag == KIOSK_FLAG),
        "engine": "chromium",
        "memory_bytes": memory.total,
    }))
}

//! The errors found in the settings.

use std::{fmt, time::Duration};

use super::Number;

/// All errors in the settings, one line each.
#[derive(Debug, Default, thiserror::Error)]
pub struct SettingsErrors(Vec<String>);

impl fmt::Display for SettingsErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("\n"))
    }
}

impl SettingsErrors {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn add(&mut self, option: &str, error: impl fmt::Display) {
        self.0.push(format!("--{option}: {error}"));
    }

    /// Returns the value, or records the error of the option.
    pub(super) fn collect<T>(
        &mut self,
        option: &str,
        value: Result<T, impl fmt::Display>,
    ) -> Option<T> {
        value.map_err(|error| self.add(option, error)).ok()
    }

    /// Returns the number, or records the error of the option and returns the least value.
    pub(super) fn number<const MIN: u64, const MAX: u64>(
        &mut self,
        option: &str,
        number: &Number<MIN, MAX>,
    ) -> u64 {
        self.collect(option, number.value()).unwrap_or(MIN)
    }

    pub(super) fn seconds<const MIN: u64, const MAX: u64>(
        &mut self,
        option: &str,
        number: &Number<MIN, MAX>,
    ) -> Duration {
        Duration::from_secs(self.number(option, number))
    }
}

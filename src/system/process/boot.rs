//! The running time of the machine, measured by a clock that cannot be set.

use std::{fs, io, time::Duration};

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
const UPTIME: &str = "/proc/uptime";

/// A point of time in the run of the machine since it was booted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootTime {
    /// Identifies the run of the machine.
    pub boot_id: String,
    /// The time since the machine was booted. Includes the time in which it was suspended.
    pub uptime: Duration,
}

impl BootTime {
    /// Returns the current time.
    ///
    /// # Errors
    /// Fails if `/proc` cannot be read.
    pub fn now() -> io::Result<BootTime> {
        let uptime = fs::read_to_string(UPTIME)?;
        Ok(BootTime {
            boot_id: fs::read_to_string(BOOT_ID)?.trim().to_owned(),
            uptime: parse_uptime(&uptime).ok_or(io::ErrorKind::InvalidData)?,
        })
    }

    /// Returns the time since `earlier`, or `None` if the machine was booted in between.
    #[must_use]
    pub fn since(&self, earlier: &BootTime) -> Option<Duration> {
        match self.boot_id == earlier.boot_id {
            true => self.uptime.checked_sub(earlier.uptime),
            false => None,
        }
    }
}

fn parse_uptime(text: &str) -> Option<Duration> {
    let seconds = text.split_ascii_whitespace().next()?.parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_between_two_points_is_known_only_within_one_run_of_the_machine() {
        let (earlier, later) = (BootTime::now().unwrap(), BootTime::now().unwrap());
        let between = later.since(&earlier).unwrap();
        assert!(between < Duration::from_secs(60), "{between:?}");
        let other_run = BootTime {
            boot_id: "another".to_owned(),
            ..earlier
        };
        assert_eq!(later.since(&other_run), None);
    }

    #[test]
    fn uptime_is_the_first_number() {
        let uptime = parse_uptime("350735.47 234388.90\n");
        assert_eq!(uptime, Some(Duration::from_millis(350_735_470)));
        for invalid in ["", "x 1", "-1.0 1", "nan"] {
            assert_eq!(parse_uptime(invalid), None, "{invalid}");
        }
    }
}

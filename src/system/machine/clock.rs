//! The clock of the machine.

use std::io;

use chrono::{DateTime, Utc};
use nix::{
    sys::time::TimeSpec,
    time::{ClockId, clock_settime},
};

/// Sets the clock.
///
/// # Errors
/// Fails without `CAP_SYS_TIME`, and for a time before 1970.
pub fn set(time: DateTime<Utc>) -> io::Result<()> {
    let nanoseconds = i64::from(time.timestamp_subsec_nanos());
    let time = TimeSpec::new(time.timestamp(), nanoseconds);
    Ok(clock_settime(ClockId::CLOCK_REALTIME, time)?)
}

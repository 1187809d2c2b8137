//! Counting what goes into an archive's reader and what comes out of it.

use std::{
    io::{self, Read},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use super::{Cause, Limits, UnpackError};

/// Below this, nothing is too dense: a small archive may well be of zeros.
const ALWAYS_FINE: u64 = 64 << 20;

/// What has been read of the packed archive.
#[derive(Debug, Clone, Default)]
pub struct Packed(Arc<AtomicU64>);

impl Packed {
    pub fn of(bytes: u64) -> Self {
        Packed(Arc::new(AtomicU64::new(bytes)))
    }

    pub fn bytes(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Counts the packed bytes, and tells an archive that broke off from one that is bad.
pub struct Counted<R> {
    input: R,
    packed: Packed,
    cause: Cause,
}

impl<R> Counted<R> {
    pub fn new(input: R, packed: Packed, cause: Cause) -> Self {
        Counted {
            input,
            packed,
            cause,
        }
    }
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(into).map_err(|error| {
            self.cause.set(match error.kind() {
                io::ErrorKind::ConnectionAborted => UnpackError::BrokeOff,
                _ => UnpackError::Io(error),
            })
        })?;
        self.packed.0.fetch_add(count as u64, Relaxed);
        Ok(count)
    }
}

/// Counts the unpacked bytes.
#[derive(Debug)]
pub struct Meter {
    limits: Limits,
    packed: Packed,
    unpacked: u64,
}

impl Meter {
    pub fn new(limits: Limits, packed: Packed) -> Self {
        Meter {
            limits,
            packed,
            unpacked: 0,
        }
    }

    /// # Errors
    /// Where it is too much.
    pub fn add(&mut self, bytes: usize) -> Result<(), UnpackError> {
        self.unpacked = self.unpacked.saturating_add(bytes as u64);
        self.check(self.unpacked)
    }

    /// Whether so many bytes would be fine.
    ///
    /// # Errors
    /// Where it is too much.
    pub fn check(&self, unpacked: u64) -> Result<(), UnpackError> {
        let Limits { bytes, ratio } = self.limits;
        if unpacked > bytes {
            return Err(UnpackError::TooLarge(bytes));
        }
        if unpacked > ALWAYS_FINE && unpacked > self.packed.bytes().saturating_mul(ratio) {
            return Err(UnpackError::TooDense(ratio));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        bytes: 1 << 30,
        ratio: 10,
    };

    #[test]
    fn an_archive_may_come_to_so_much_and_no_more() {
        let meter = Meter::new(LIMITS, Packed::of(1 << 30));
        assert!(meter.check(1 << 30).is_ok());
        let over = meter.check((1 << 30) + 1);
        assert!(matches!(over, Err(UnpackError::TooLarge(_))));
    }

    #[test]
    fn a_small_archive_may_be_dense_and_a_large_one_may_not() {
        let packed = 10 << 20;
        let mut meter = Meter::new(LIMITS, Packed::of(1));
        assert!(meter.check(ALWAYS_FINE).is_ok());
        assert!(meter.add(ALWAYS_FINE as usize).is_ok());
        assert!(matches!(meter.add(1), Err(UnpackError::TooDense(10))));
        let meter = Meter::new(LIMITS, Packed::of(packed));
        assert!(meter.check(packed * 10).is_ok());
        assert!(meter.check(packed * 10 + 1).is_err());
    }
}

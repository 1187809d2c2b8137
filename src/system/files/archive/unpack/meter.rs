//! Counting what goes into an archive's reader and what comes out of it.

use std::{
    io::{self, Read},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use tokio_util::sync::CancellationToken;

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
                io::ErrorKind::ConnectionAborted => UnpackError::Truncated,
                _ => UnpackError::Io(error),
            })
        })?;
        self.packed.0.fetch_add(count as u64, Relaxed);
        Ok(count)
    }
}

/// Counts the unpacked bytes; clones count together. It also says when nobody wants to have them any more.
#[derive(Debug, Clone)]
pub struct Meter {
    limits: Limits,
    packed: Packed,
    unpacked: Arc<AtomicU64>,
    stop: CancellationToken,
}

impl Meter {
    pub fn new(limits: Limits, packed: Packed, stop: &CancellationToken) -> Self {
        Meter {
            limits,
            packed,
            unpacked: Arc::default(),
            stop: stop.clone(),
        }
    }

    /// # Errors
    /// Where it is too much, or unpacking is to stop.
    pub fn add(&self, bytes: usize) -> Result<(), UnpackError> {
        if self.stop.is_cancelled() {
            return Err(UnpackError::ShuttingDown);
        }
        let before = self.unpacked.fetch_add(bytes as u64, Relaxed);
        self.check(before.saturating_add(bytes as u64))
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

    fn meter(packed: u64) -> Meter {
        Meter::new(LIMITS, Packed::of(packed), &CancellationToken::new())
    }

    #[test]
    fn an_archive_may_come_to_so_much_and_no_more() {
        let meter = meter(1 << 30);
        assert!(meter.check(1 << 30).is_ok());
        let over = meter.check((1 << 30) + 1);
        assert!(matches!(over, Err(UnpackError::TooLarge(_))));
    }

    #[test]
    fn a_small_archive_may_be_dense_and_a_large_one_may_not() {
        let packed = 10 << 20;
        let small = meter(1);
        assert!(small.check(ALWAYS_FINE).is_ok());
        assert!(small.add(ALWAYS_FINE as usize).is_ok());
        // Clones count together.
        let added = small.clone().add(1);
        assert!(matches!(added, Err(UnpackError::TooDense(10))));
        let large = meter(packed);
        assert!(large.check(packed * 10).is_ok());
        assert!(large.check(packed * 10 + 1).is_err());
    }

    #[test]
    fn a_stop_ends_it() {
        let stop = CancellationToken::new();
        let meter = Meter::new(LIMITS, Packed::of(1), &stop);
        assert!(meter.add(1).is_ok());
        stop.cancel();
        assert!(matches!(meter.add(1), Err(UnpackError::ShuttingDown)));
    }
}

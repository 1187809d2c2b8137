//! Counting the bytes that go into an archive's decoder and come out of it.

use std::{
    io::{self, Read},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use tokio_util::sync::CancellationToken;

use super::{RootCause, UnpackError, UnpackLimits};

/// The uncompressed size up to which the ratio is not limited: a small archive may well consist of
/// zeros.
const RATIO_EXEMPT_BYTES: u64 = 64 << 20;

/// A counter of the bytes read from the compressed archive; clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct PackedBytes(Arc<AtomicU64>);

impl PackedBytes {
    pub(super) fn new(bytes: u64) -> Self {
        PackedBytes(Arc::new(AtomicU64::new(bytes)))
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A reader that counts the compressed bytes, and records whether the upload was truncated.
pub(super) struct CountingReader<R> {
    input: R,
    packed: PackedBytes,
    cause: RootCause,
}

impl<R> CountingReader<R> {
    pub(super) fn new(input: R, packed: PackedBytes, cause: RootCause) -> Self {
        CountingReader {
            input,
            packed,
            cause,
        }
    }
}

impl<R: Read> Read for CountingReader<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(into).map_err(|error| {
            self.cause.record(match error.kind() {
                io::ErrorKind::ConnectionAborted => UnpackError::Truncated,
                _ => UnpackError::Io(error),
            })
        })?;
        self.packed.0.fetch_add(count as u64, Relaxed);
        Ok(count)
    }
}

/// A counter of the uncompressed bytes that enforces the limits and notices shutdown. Clones share
/// the count.
#[derive(Debug, Clone)]
pub(super) struct Meter {
    limits: UnpackLimits,
    packed: PackedBytes,
    unpacked: Arc<AtomicU64>,
    shutdown: CancellationToken,
}

impl Meter {
    pub(super) fn new(
        limits: UnpackLimits,
        packed: PackedBytes,
        shutdown: &CancellationToken,
    ) -> Self {
        Meter {
            limits,
            packed,
            unpacked: Arc::default(),
            shutdown: shutdown.clone(),
        }
    }

    /// Adds to the count.
    ///
    /// # Errors
    /// If a limit is exceeded, or the agent is shutting down.
    pub(super) fn add(&self, bytes: usize) -> Result<(), UnpackError> {
        if self.shutdown.is_cancelled() {
            return Err(UnpackError::ShuttingDown);
        }
        let before = self.unpacked.fetch_add(bytes as u64, Relaxed);
        self.check(before.saturating_add(bytes as u64))
    }

    /// Checks a total against the limits.
    ///
    /// # Errors
    /// If a limit is exceeded.
    pub(super) fn check(&self, unpacked: u64) -> Result<(), UnpackError> {
        let UnpackLimits { bytes, ratio } = self.limits;
        if unpacked > bytes {
            return Err(UnpackError::TooLarge(bytes));
        }
        if unpacked > RATIO_EXEMPT_BYTES && unpacked > self.packed.get().saturating_mul(ratio) {
            return Err(UnpackError::TooDense(ratio));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: UnpackLimits = UnpackLimits {
        bytes: 1 << 30,
        ratio: 10,
    };

    fn meter(packed: u64) -> Meter {
        Meter::new(LIMITS, PackedBytes::new(packed), &CancellationToken::new())
    }

    #[test]
    fn meter_rejects_size_above_limit() {
        let meter = meter(1 << 30);
        assert!(meter.check(1 << 30).is_ok());
        let exceeded = meter.check((1 << 30) + 1);
        assert!(matches!(exceeded, Err(UnpackError::TooLarge(_))));
    }

    #[test]
    fn meter_limits_ratio_only_above_exempt_size() {
        let packed = 10 << 20;
        let small = meter(1);
        assert!(small.check(RATIO_EXEMPT_BYTES).is_ok());
        assert!(small.add(RATIO_EXEMPT_BYTES as usize).is_ok());
        // Clones share the count.
        let added = small.clone().add(1);
        assert!(matches!(added, Err(UnpackError::TooDense(10))));
        let large = meter(packed);
        assert!(large.check(packed * 10).is_ok());
        assert!(large.check(packed * 10 + 1).is_err());
    }

    #[test]
    fn meter_fails_after_shutdown() {
        let shutdown = CancellationToken::new();
        let meter = Meter::new(LIMITS, PackedBytes::new(1), &shutdown);
        assert!(meter.add(1).is_ok());
        shutdown.cancel();
        assert!(matches!(meter.add(1), Err(UnpackError::ShuttingDown)));
    }
}

//! A memory budget shared by concurrent requests.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// A number of bytes that reservations draw from. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct MemoryBudget {
    available: Arc<AtomicUsize>,
}

/// A part of a [`MemoryBudget`], returned to it on drop. The default belongs to an empty budget.
#[derive(Debug, Default)]
pub struct MemoryReservation {
    available: Arc<AtomicUsize>,
    reserved: usize,
}

impl MemoryBudget {
    pub(super) fn new(bytes: usize) -> Self {
        MemoryBudget {
            available: Arc::new(AtomicUsize::new(bytes)),
        }
    }

    /// Returns a reservation of zero bytes.
    pub(super) fn reserve_none(&self) -> MemoryReservation {
        MemoryReservation {
            available: self.available.clone(),
            reserved: 0,
        }
    }
}

impl MemoryReservation {
    /// Adds up to `bytes`, as far as they are available. Returns how many were added.
    pub(super) fn grow(&mut self, bytes: usize) -> usize {
        let subtract = |available: usize| Some(available.saturating_sub(bytes));
        let updated = self
            .available
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, subtract);
        let (Ok(available) | Err(available)) = updated;
        let added = bytes.min(available);
        self.reserved += added;
        added
    }
}

impl Drop for MemoryReservation {
    fn drop(&mut self) {
        self.available.fetch_add(self.reserved, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_bytes_are_unavailable_until_the_reservation_is_dropped() {
        let budget = MemoryBudget::new(10);
        let (mut one, mut other) = (budget.reserve_none(), budget.reserve_none());
        assert_eq!(one.grow(4), 4);
        assert_eq!(other.grow(8), 6);
        assert_eq!(one.grow(1), 0);
        drop(other);
        assert_eq!(one.grow(9), 6);
        drop(one);
        assert_eq!(budget.reserve_none().grow(11), 10);
    }
}

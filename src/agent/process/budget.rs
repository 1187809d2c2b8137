//! Memory that many have together.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// So many bytes; clones are the same ones.
#[derive(Debug, Clone)]
pub struct Budget {
    left: Arc<AtomicUsize>,
}

/// What one has taken of it. Dropped, it is given back. By default of a budget of nothing.
#[derive(Debug, Default)]
pub struct Share {
    left: Arc<AtomicUsize>,
    taken: usize,
}

impl Budget {
    pub fn of(bytes: usize) -> Self {
        Budget {
            left: Arc::new(AtomicUsize::new(bytes)),
        }
    }

    pub fn share(&self) -> Share {
        Share {
            left: self.left.clone(),
            taken: 0,
        }
    }
}

impl Share {
    /// Takes so many bytes more, or what there is; returns how many.
    pub fn take(&mut self, wanted: usize) -> usize {
        let taking = |left: usize| Some(left.saturating_sub(wanted));
        let updated = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, taking);
        let (Ok(left) | Err(left)) = updated;
        let taken = wanted.min(left);
        self.taken += taken;
        taken
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.left.fetch_add(self.taken, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_is_nobody_elses_until_it_is_given_back() {
        let budget = Budget::of(10);
        let (mut one, mut other) = (budget.share(), budget.share());
        assert_eq!(one.take(4), 4);
        assert_eq!(other.take(8), 6);
        assert_eq!(one.take(1), 0);
        drop(other);
        assert_eq!(one.take(9), 6);
        drop(one);
        assert_eq!(budget.share().take(11), 10);
    }
}

//! Choices that a seed determines, and the settings of tests that choose at random.

use std::{env, str::FromStr};

use proptest::{
    prelude::Rng,
    test_runner::{RngAlgorithm, TestRng},
};

/// A generator of choices.
pub struct Random(TestRng);

impl Random {
    /// Returns the generator of one of several parties: each has a sequence of its own.
    pub fn new(seed: u64, party: usize) -> Self {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        bytes[8..16].copy_from_slice(&(party as u64).to_le_bytes());
        Self(TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
    }

    /// Returns a number from 0 to `end`, without it.
    pub fn below(&mut self, end: usize) -> usize {
        self.0.next_u32() as usize % end
    }

    pub fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    pub fn choose<T>(&mut self, mut items: Vec<T>) -> Option<T> {
        if items.is_empty() {
            return None;
        }
        let index = self.below(items.len());
        Some(items.swap_remove(index))
    }

    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (1..items.len()).rev() {
            items.swap(end, self.below(end + 1));
        }
    }
}

/// Returns the value of an environment variable, or the default if it is not set.
pub fn setting<T: FromStr>(name: &str, default: T) -> T {
    let Ok(text) = env::var(name) else {
        return default;
    };
    let parsed = text.parse().ok();
    parsed.unwrap_or_else(|| panic!("{name} is {text:?}"))
}

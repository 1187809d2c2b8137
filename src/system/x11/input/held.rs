//! Tracks held input and its holders.

use std::collections::HashMap;

use crate::api::computer::MouseButton;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum HeldInput {
    Button(MouseButton),
    Keycode(u8),
}

/// The id of a live view's input session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionId(pub(super) u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Holder {
    /// The current batch.
    Batch,
    Session(SessionId),
}

/// The held buttons and keys of each holder, in the order in which they were pressed.
#[derive(Debug, Default)]
pub(super) struct HeldInputs(HashMap<Holder, Vec<HeldInput>>);

impl HeldInputs {
    pub(super) fn press(&mut self, holder: Holder, input: HeldInput) {
        let list = self.0.entry(holder).or_default();
        if !list.contains(&input) {
            list.push(input);
        }
    }

    /// Records that an input is released, for all holders.
    pub(super) fn release(&mut self, input: HeldInput) {
        for list in self.0.values_mut() {
            list.retain(|held| *held != input);
        }
        self.0.retain(|_, list| !list.is_empty());
    }

    pub(super) fn contains(&self, input: HeldInput) -> bool {
        self.0.values().any(|list| list.contains(&input))
    }

    /// Returns the inputs that only this holder holds, the last one first.
    pub(super) fn held_only_by(&self, holder: Holder) -> Vec<HeldInput> {
        let held_by_others = |input: &HeldInput| {
            let mut others = self.0.iter().filter(|(other, _)| **other != holder);
            others.any(|(_, list)| list.contains(input))
        };
        let inputs = self.0.get(&holder).into_iter().flatten().rev().copied();
        inputs.filter(|input| !held_by_others(input)).collect()
    }

    pub(super) fn remove(&mut self, holder: Holder) {
        self.0.remove(&holder);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: HeldInput = HeldInput::Keycode(38);
    const LEFT: HeldInput = HeldInput::Button(MouseButton::Left);

    #[test]
    fn input_held_by_two_stays_held_when_one_ends() {
        let (viewer, mut held) = (Holder::Session(SessionId(1)), HeldInputs::default());
        held.press(Holder::Batch, KEY);
        held.press(Holder::Batch, LEFT);
        held.press(viewer, KEY);
        assert_eq!(held.held_only_by(Holder::Batch), [LEFT]);
        held.remove(Holder::Batch);
        assert_eq!(held.held_only_by(viewer), [KEY]);
        held.release(KEY);
        assert!(held.held_only_by(viewer).is_empty() && !held.contains(KEY));
    }
}

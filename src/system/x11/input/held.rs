//! What is held down, and by whom.

use std::collections::HashMap;

use crate::api::computer::MouseButton;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pressed {
    Button(MouseButton),
    Keycode(u8),
}

/// Of a live view's viewer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionId(pub(super) u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Holder {
    /// Batches, one after the other.
    Batch,
    Session(SessionId),
}

#[derive(Debug, Default)]
pub struct Held(HashMap<Holder, Vec<Pressed>>);

impl Held {
    pub fn pressed(&mut self, by: Holder, what: Pressed) {
        let list = self.0.entry(by).or_default();
        if !list.contains(&what) {
            list.push(what);
        }
    }

    /// It is up, whoever held it.
    pub fn released(&mut self, what: Pressed) {
        for list in self.0.values_mut() {
            list.retain(|held| *held != what);
        }
        self.0.retain(|_, list| !list.is_empty());
    }

    pub fn holds(&self, what: Pressed) -> bool {
        self.0.values().any(|list| list.contains(&what))
    }

    /// What that one holds and nobody else, the last first.
    pub fn only_of(&self, by: Holder) -> Vec<Pressed> {
        let others = |what: &Pressed| {
            let mut others = self.0.iter().filter(|(holder, _)| **holder != by);
            others.any(|(_, list)| list.contains(what))
        };
        let own = self.0.get(&by).into_iter().flatten().rev().copied();
        own.filter(|what| !others(what)).collect()
    }

    pub fn forget(&mut self, by: Holder) {
        self.0.remove(&by);
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Pressed = Pressed::Keycode(38);
    const LEFT: Pressed = Pressed::Button(MouseButton::Left);

    #[test]
    fn what_another_holds_too_stays_down() {
        let (viewer, mut held) = (Holder::Session(SessionId(1)), Held::default());
        held.pressed(Holder::Batch, KEY);
        held.pressed(Holder::Batch, LEFT);
        held.pressed(viewer, KEY);
        assert_eq!(held.only_of(Holder::Batch), [LEFT]);
        held.forget(Holder::Batch);
        assert_eq!(held.only_of(viewer), [KEY]);
        held.released(KEY);
        assert!(held.only_of(viewer).is_empty() && !held.holds(KEY));
    }
}

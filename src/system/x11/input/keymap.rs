//! The keyboard mapping: the position of each key, and bindings of missing keys to spare keycodes.

use std::collections::{HashMap, HashSet, VecDeque};

use x11rb::{connection::Connection, protocol::xproto::ConnectionExt as _};

use crate::{
    api::keys::Key,
    system::x11::server::{X11Error, XConnection},
};

const NO_SYMBOL: u32 = 0;
/// The first keycode. Programs that count from zero treat it as no key.
const UNUSABLE_KEYCODE: u8 = 8;
/// The keysyms of the keypad.
const KEYPAD: std::ops::RangeInclusive<u32> = 0xff80..=0xffbd;

/// The position of a key on the keyboard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KeyPosition {
    pub(super) keycode: u8,
    /// Whether the keycode needs Shift to mean this key.
    pub(super) shifted: bool,
}

/// The keys bound to spare keycodes.
pub(super) type BoundKeys = HashMap<Key, u8>;

#[derive(Default)]
pub(super) struct Keymap {
    keysyms: HashMap<u32, KeyPosition>,
    characters: HashMap<char, KeyPosition>,
    /// Keycodes without a key.
    spare: VecDeque<u8>,
    bound: BoundKeys,
}

impl Keymap {
    /// Reads the keymap of a server on which an earlier connection has bound these keys, and
    /// removes the bindings. Those of pressed keys stay, unless there would be no spare keycode.
    pub(super) fn recover(
        x: &XConnection,
        bound: BoundKeys,
        is_pressed: impl Fn(u8) -> bool,
    ) -> Result<Self, X11Error> {
        let mut keymap = Self {
            bound,
            ..Self::default()
        };
        keymap.read(x)?;
        keymap.restore(x, is_pressed)?;
        if keymap.room() == 0 {
            keymap.restore(x, |_| false)?;
        }
        Ok(keymap)
    }

    /// Reads the mapping from the server. Bindings that still exist are kept.
    pub(super) fn read(&mut self, x: &XConnection) -> Result<(), X11Error> {
        let (first, last) = (x.setup().min_keycode, x.setup().max_keycode);
        let reply = x.get_keyboard_mapping(first, last - first + 1)?.reply()?;
        self.update(first, reply.keysyms_per_keycode, &reply.keysyms);
        Ok(())
    }

    fn update(&mut self, first: u8, per_keycode: u8, keysyms: &[u32]) {
        self.keysyms.clear();
        self.characters.clear();
        let rows = || (first..=u8::MAX).zip(keysyms.chunks(usize::from(per_keycode.max(1))));
        // Other clients may have changed bound keycodes.
        self.bound.retain(|key, keycode| {
            rows().any(|(code, row)| code == *keycode && row.first() == Some(&key.keysym()))
        });
        let bound: HashSet<u8> = self.bound.values().copied().collect();
        for (level, shifted) in [(0, false), (1, true)] {
            for (keycode, row) in rows().filter(|(keycode, _)| !bound.contains(keycode)) {
                let keysym = row.get(level).copied().unwrap_or(NO_SYMBOL);
                // Programs that check Num Lock ignore Shift on the keypad. Its digits are bound to
                // spare keycodes when needed.
                if keysym == NO_SYMBOL || (shifted && KEYPAD.contains(&keysym)) {
                    continue;
                }
                let position = KeyPosition { keycode, shifted };
                self.keysyms.entry(keysym).or_insert(position);
                let character = Key::of_keysym(keysym).character();
                if let Some(c) = character.filter(|_| !KEYPAD.contains(&keysym)) {
                    self.characters.entry(c).or_insert(position);
                }
            }
        }
        let free = |(keycode, row): (u8, &[u32])| {
            let empty = row.iter().all(|keysym| *keysym == NO_SYMBOL);
            (keycode != UNUSABLE_KEYCODE && empty).then_some(keycode)
        };
        self.spare = rows().filter_map(free).collect();
    }

    pub(super) fn position(&self, key: Key) -> Option<KeyPosition> {
        let bound = self.bound.get(&key).map(|keycode| KeyPosition {
            keycode: *keycode,
            shifted: false,
        });
        bound
            .or_else(|| self.keysyms.get(&key.keysym()).copied())
            .or_else(|| {
                // The keypad's digits are not interchangeable with those above the letters.
                let character = key.character().filter(|_| !KEYPAD.contains(&key.keysym()));
                self.characters.get(&character?).copied()
            })
    }

    /// Returns the number of spare keycodes.
    pub(super) fn room(&self) -> usize {
        self.spare.len()
    }

    /// Returns the keys without a position, deduplicated, at most as many as can ever be bound.
    pub(super) fn missing(&self, keys: impl Iterator<Item = Key>) -> Vec<Key> {
        let max = (self.spare.len() + self.bound.len()).max(1);
        let mut missing = Vec::new();
        for key in keys {
            if self.position(key).is_none() && !missing.contains(&key) {
                missing.push(key);
                if missing.len() == max {
                    break;
                }
            }
        }
        missing
    }

    pub(super) fn bound(&self) -> &BoundKeys {
        &self.bound
    }

    /// Binds keys to spare keycodes. There must be room for all of them.
    pub(super) fn bind(&mut self, x: &XConnection, keys: &[Key]) -> Result<(), X11Error> {
        let mut rows = Vec::with_capacity(keys.len());
        for key in keys {
            if let Some(keycode) = self.spare.pop_front() {
                self.bound.insert(*key, keycode);
                rows.push((keycode, key.keysym()));
            }
        }
        self.write(x, rows)
    }

    /// Removes the bindings of keys that are not held. Programs must have processed their events.
    pub(super) fn restore(
        &mut self,
        x: &XConnection,
        is_held: impl Fn(u8) -> bool,
    ) -> Result<(), X11Error> {
        let freed: Vec<(Key, u8)> = self
            .bound
            .iter()
            .map(|(key, keycode)| (*key, *keycode))
            .filter(|(_, keycode)| !is_held(*keycode))
            .collect();
        let rows = freed.iter().map(|(_, keycode)| (*keycode, NO_SYMBOL));
        self.write(x, rows.collect())?;
        for (key, keycode) in freed {
            self.bound.remove(&key);
            self.spare.push_back(keycode);
        }
        Ok(())
    }

    /// Writes keysyms with one request per run of adjacent keycodes: the server notifies all
    /// clients of each request.
    fn write(&self, x: &XConnection, mut rows: Vec<(u8, u32)>) -> Result<(), X11Error> {
        rows.sort_unstable();
        // With both levels set, the server does not derive an upper case.
        let levels = 2;
        for run in rows.chunk_by(|(before, _), (after, _)| before + 1 == *after) {
            let keysyms: Vec<u32> = run.iter().flat_map(|(_, keysym)| [*keysym; 2]).collect();
            let count = u8::try_from(run.len()).unwrap_or(u8::MAX);
            x.change_keyboard_mapping(count, run[0].0, levels, &keysyms)?
                .check()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key::parse(name).unwrap()
    }

    /// Returns a keymap with keycodes from 8 on, three columns each.
    fn keymap() -> Keymap {
        let mut keymap = Keymap::default();
        let syms = |name: &str| key(name).keysym();
        #[rustfmt::skip]
        let rows = [
            0, 0, 0,
            syms("a"), syms("A"), 0,
            0, 0, 0,
            syms("KP_End"), syms("KP_1"), 0,
            syms("1"), syms("exclam"), 0,
            0, 0, syms("b"),
            0, 0, 0,
        ];
        keymap.update(8, 3, &rows);
        keymap
    }

    #[test]
    fn first_two_columns_determine_the_position() {
        let keymap = keymap();
        let position = |name| {
            keymap
                .position(key(name))
                .map(|position| (position.keycode, position.shifted))
        };
        assert_eq!(position("a"), Some((9, false)));
        assert_eq!(position("A"), Some((9, true)));
        assert_eq!(position("1"), Some((12, false)));
        assert_eq!(position("!"), Some((12, true)));
        assert_eq!(position("KP_End"), Some((11, false)));
        assert_eq!(position("KP_1"), None);
        assert_eq!(position("b"), None);
        assert_eq!(position("é"), None);
        // A keycode with a third column is not spare, and keycode 8 is unusable.
        assert_eq!(keymap.spare, [10, 14]);
    }
}

//! Which key is where on the keyboard, and room on it for keys it does not have.

use std::collections::{HashMap, HashSet, VecDeque};

use x11rb::{connection::Connection, protocol::xproto::ConnectionExt as _};

use crate::{
    api::keys::Key,
    system::x11::server::{X11Error, XConnection},
};

const NO_SYMBOL: u32 = 0;
/// Programs that count from zero take it for none.
const UNUSABLE: u8 = 8;
const KEYPAD: std::ops::RangeInclusive<u32> = 0xff80..=0xffbd;

/// Where a key is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub keycode: u8,
    /// Whether Shift makes it this one.
    pub shifted: bool,
}

/// Keys that were put on keycodes without one.
pub type Bound = HashMap<Key, u8>;

#[derive(Default)]
pub struct Keymap {
    keysyms: HashMap<u32, Place>,
    characters: HashMap<char, Place>,
    /// Keycodes without a key.
    spare: VecDeque<u8>,
    /// What we have put on spare ones.
    bound: Bound,
}

impl Keymap {
    /// The keyboard of a server on which an earlier connection may have left these. That is taken away, but from keys that are down;
    /// from these too where there would be no room at all.
    pub fn recover(
        x: &XConnection,
        left: Bound,
        is_down: impl Fn(u8) -> bool,
    ) -> Result<Self, X11Error> {
        let mut keymap = Self {
            bound: left,
            ..Self::default()
        };
        keymap.read(x)?;
        keymap.restore(x, is_down)?;
        if keymap.room() == 0 {
            keymap.restore(x, |_| false)?;
        }
        Ok(keymap)
    }

    /// Reads it anew. What we have bound before stays known as ours.
    pub fn read(&mut self, x: &XConnection) -> Result<(), X11Error> {
        let (first, last) = (x.setup().min_keycode, x.setup().max_keycode);
        let reply = x.get_keyboard_mapping(first, last - first + 1)?.reply()?;
        self.take(first, reply.keysyms_per_keycode, &reply.keysyms);
        Ok(())
    }

    fn take(&mut self, first: u8, per_keycode: u8, keysyms: &[u32]) {
        self.keysyms.clear();
        self.characters.clear();
        let rows = || (first..=u8::MAX).zip(keysyms.chunks(usize::from(per_keycode.max(1))));
        // Keycodes that others have taken, or freed, meanwhile.
        self.bound.retain(|key, keycode| {
            rows().any(|(code, row)| code == *keycode && row.first() == Some(&key.keysym()))
        });
        let ours: HashSet<u8> = self.bound.values().copied().collect();
        for (level, shifted) in [(0, false), (1, true)] {
            for (keycode, row) in rows().filter(|(keycode, _)| !ours.contains(keycode)) {
                let keysym = row.get(level).copied().unwrap_or(NO_SYMBOL);
                // Shift turns no keypad to digits for a program that asks for Num Lock: those are put on spare keycodes when needed.
                if keysym == NO_SYMBOL || (shifted && KEYPAD.contains(&keysym)) {
                    continue;
                }
                let place = Place { keycode, shifted };
                self.keysyms.entry(keysym).or_insert(place);
                let character = Key::of_keysym(keysym).character();
                if let Some(c) = character.filter(|_| !KEYPAD.contains(&keysym)) {
                    self.characters.entry(c).or_insert(place);
                }
            }
        }
        let free = |(keycode, row): (u8, &[u32])| {
            let empty = row.iter().all(|keysym| *keysym == NO_SYMBOL);
            (keycode != UNUSABLE && empty).then_some(keycode)
        };
        self.spare = rows().filter_map(free).collect();
    }

    /// Where it is, if anywhere.
    pub fn place(&self, key: Key) -> Option<Place> {
        let bound = self.bound.get(&key).map(|keycode| Place {
            keycode: *keycode,
            shifted: false,
        });
        bound
            .or_else(|| self.keysyms.get(&key.keysym()).copied())
            .or_else(|| {
                // The keypad's digits are keys of their own.
                let character = key.character().filter(|_| !KEYPAD.contains(&key.keysym()));
                self.characters.get(&character?).copied()
            })
    }

    /// How many keys can be added without taking a place from another.
    pub fn room(&self) -> usize {
        self.spare.len()
    }

    /// Those that have no place, each once, and no more than there can ever be room for.
    pub fn missing(&self, wanted: impl Iterator<Item = Key>) -> Vec<Key> {
        let most = (self.spare.len() + self.bound.len()).max(1);
        let mut missing = Vec::new();
        for key in wanted {
            if self.place(key).is_none() && !missing.contains(&key) {
                missing.push(key);
                if missing.len() == most {
                    break;
                }
            }
        }
        missing
    }

    pub fn bound(&self) -> &Bound {
        &self.bound
    }

    /// Puts keys on spare keycodes, all at once. There must be room for them.
    pub fn bind(&mut self, x: &XConnection, keys: &[Key]) -> Result<(), X11Error> {
        let mut rows = Vec::with_capacity(keys.len());
        for key in keys {
            if let Some(keycode) = self.spare.pop_front() {
                self.bound.insert(*key, keycode);
                rows.push((keycode, key.keysym()));
            }
        }
        self.write(x, rows)
    }

    /// Takes away what was put on spare keycodes, but what is held. Whoever is to have read those keys must have done so.
    pub fn restore(
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

    /// One request for each run of neighbours: every change is told to all clients.
    fn write(&self, x: &XConnection, mut rows: Vec<(u8, u32)>) -> Result<(), X11Error> {
        rows.sort_unstable();
        // With both levels said, no server takes it for a letter that has two cases.
        let width = 2;
        for run in rows.chunk_by(|(before, _), (after, _)| before + 1 == *after) {
            let keysyms: Vec<u32> = run.iter().flat_map(|(_, keysym)| [*keysym; 2]).collect();
            let count = u8::try_from(run.len()).unwrap_or(u8::MAX);
            x.change_keyboard_mapping(count, run[0].0, width, &keysyms)?
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

    /// Keycodes from 8 on, three columns each.
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
        keymap.take(8, 3, &rows);
        keymap
    }

    #[test]
    fn a_key_is_where_the_first_two_columns_say() {
        let keymap = keymap();
        let place = |name| {
            keymap
                .place(key(name))
                .map(|place| (place.keycode, place.shifted))
        };
        assert_eq!(place("a"), Some((9, false)));
        assert_eq!(place("A"), Some((9, true)));
        assert_eq!(place("1"), Some((12, false)));
        assert_eq!(place("!"), Some((12, true)));
        assert_eq!(place("KP_End"), Some((11, false)));
        assert_eq!(place("KP_1"), None);
        assert_eq!(place("b"), None);
        assert_eq!(place("é"), None);
        // The third is not a spare one, and the first of all is of no use.
        assert_eq!(keymap.spare, [10, 14]);
    }
}

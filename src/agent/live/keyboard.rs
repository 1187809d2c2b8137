//! Translates a viewer's keyboard events to key strokes on the browser's keyboard.
//!
//! The page reports the character or function of a key on the viewer's keyboard layout. The
//! browser's layout may place it elsewhere, or need another Shift state: the key with the same
//! character or function is pressed instead.

use std::collections::HashMap;

use crate::api::{
    keys::Key,
    live::{KeyCode, KeyName},
};

/// The number of keys a viewer may hold; further ones are ignored.
const MAX_HELD: usize = 32;
/// Characters other than capital letters that need Shift on the browser's keyboard.
const SHIFTED: &str = "~!@#$%^&*()_+{}|:\"<>?";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stroke {
    pub(super) key: Key,
    pub(super) down: bool,
}

impl Stroke {
    pub(super) const fn tap(key: Key) -> [Self; 2] {
        [press(key), release(key)]
    }
}

const fn press(key: Key) -> Stroke {
    Stroke { key, down: true }
}

const fn release(key: Key) -> Stroke {
    Stroke { key, down: false }
}

/// The keys that one viewer holds.
#[derive(Default)]
pub(super) struct Keyboard {
    /// The pressed key for each physical key. The same key is released later, even if the physical
    /// key's meaning has changed meanwhile (Shift released first, for instance).
    held: HashMap<KeyCode, Key>,
}

impl Keyboard {
    /// Returns the strokes for a pressed key: none if the key is unknown, or held already, as the X
    /// server repeats it.
    pub(super) fn key_down(&mut self, code: KeyCode, name: &KeyName) -> Vec<Stroke> {
        let Some(key) = key_of(&code, name) else {
            return Vec::new();
        };
        if self.held.contains_key(&code) || self.held.len() >= MAX_HELD {
            return Vec::new();
        }
        if self.is_altered_by_shift(key) {
            return self.tap_without_shift(key);
        }
        self.held.insert(code, key);
        vec![press(key)]
    }

    pub(super) fn key_up(&mut self, code: &KeyCode) -> Option<Stroke> {
        self.held.remove(code).map(release)
    }

    /// Returns whether a key other than a modifier is held: the X server repeats these.
    pub(super) fn has_repeating_keys(&self) -> bool {
        self.held.values().any(|key| !key.is_modifier())
    }

    /// Releases all keys except modifiers.
    pub(super) fn release_repeating_keys(&mut self) -> Vec<Stroke> {
        let repeating = self.held.extract_if(|_, key| !key.is_modifier());
        repeating.map(|(_, key)| release(key)).collect()
    }

    /// Clears the held keys without strokes: they were released by other means.
    pub(super) fn clear(&mut self) {
        self.held.clear();
    }

    /// Returns the strokes that release held modifiers before a text, and press them after it.
    pub(super) fn strokes_around_text(&self) -> (Vec<Stroke>, Vec<Stroke>) {
        let modifiers = || self.held.values().copied().filter(|key| key.is_modifier());
        (
            modifiers().map(release).collect(),
            modifiers().map(press).collect(),
        )
    }

    /// Returns the strokes of Ctrl+V, without Control if that is held already.
    pub(super) fn paste_strokes(&self) -> Vec<Stroke> {
        let tap = Key::of_char('v').map(Stroke::tap);
        let tap = tap.into_iter().flatten();
        if self.held.values().any(|key| is_named(*key, &["Control"])) {
            return tap.collect();
        }
        let control = Key::parse("Control");
        control
            .map(press)
            .into_iter()
            .chain(tap)
            .chain(control.map(release))
            .collect()
    }

    fn held_shifts(&self) -> impl Iterator<Item = Key> {
        self.held.values().copied().filter(|key| key.is_shift())
    }

    /// Returns whether a Shift that the viewer holds would turn the key into another character on
    /// the browser's keyboard. With a further modifier, Shift belongs to a shortcut.
    fn is_altered_by_shift(&self, key: Key) -> bool {
        let Some(c) = key.character().filter(|c| *c != ' ') else {
            return false;
        };
        let mut held = self.held.values();
        let is_shortcut = held.any(|key| key.is_modifier() && !key.is_shift());
        let needs_shift = c.is_ascii_uppercase() || SHIFTED.contains(c);
        !is_shortcut && !needs_shift && self.held_shifts().next().is_some()
    }

    fn tap_without_shift(&self, key: Key) -> Vec<Stroke> {
        let up = self.held_shifts().map(release);
        let down = self.held_shifts().map(press);
        up.chain([press(key), release(key)]).chain(down).collect()
    }
}

/// Returns the key with this character or name. If a keyboard has it twice (both Shift keys), the
/// physical key decides.
fn key_of(code: &KeyCode, name: &KeyName) -> Option<Key> {
    let name = name.as_str();
    let by_code = Key::parse(code.as_str()).filter(|key| {
        let dom = key.dom();
        dom.is_some_and(|dom| dom.key == name)
    });
    let key = by_code.or_else(|| Key::parse(name))?;
    // The viewer's lock keys are already reflected in the reported characters.
    (!is_named(key, &["CapsLock", "NumLock", "ScrollLock"])).then_some(key)
}

/// Returns whether the key has one of these DOM names.
fn is_named(key: Key, names: &[&str]) -> bool {
    key.dom().is_some_and(|dom| names.contains(&dom.key))
}

#[cfg(test)]
mod tests {
    use deserr::errors::JsonError;
    use serde_json::json;

    use super::*;
    use crate::api::live::ViewerMessage;

    fn key_down(keyboard: &mut Keyboard, code: &str, key: &str) -> Vec<Stroke> {
        let message = json!({"type": "key_down", "code": code, "key": key});
        let Ok(ViewerMessage::KeyDown { code, key }) =
            deserr::deserialize::<_, _, JsonError>(message)
        else {
            panic!("{code} {key}");
        };
        keyboard.key_down(code, &key)
    }

    fn key_up(keyboard: &mut Keyboard, code: &str) -> Option<Stroke> {
        let message = json!({"type": "key_up", "code": code});
        let Ok(ViewerMessage::KeyUp { code }) = deserr::deserialize::<_, _, JsonError>(message)
        else {
            panic!("{code}");
        };
        keyboard.key_up(&code)
    }

    fn key(name: &str) -> Key {
        Key::parse(name).unwrap()
    }

    #[test]
    fn key_up_releases_the_key_that_was_pressed() {
        let mut keyboard = Keyboard::default();
        assert_eq!(
            key_down(&mut keyboard, "ShiftLeft", "Shift"),
            [press(key("Shift"))]
        );
        assert_eq!(key_down(&mut keyboard, "KeyA", "A"), [press(key("A"))]);
        assert_eq!(
            key_up(&mut keyboard, "ShiftLeft"),
            Some(release(key("Shift")))
        );
        // Its up event reports `a`, as Shift is not held any more.
        assert_eq!(key_up(&mut keyboard, "KeyA"), Some(release(key("A"))));
        assert_eq!(key_up(&mut keyboard, "KeyA"), None);
    }

    #[test]
    fn code_selects_between_two_keys_of_one_name() {
        let mut keyboard = Keyboard::default();
        for (code, name, expected) in [
            ("ControlRight", "Control", "ctrl_r"),
            ("NumpadEnter", "Enter", "kp_enter"),
            ("Enter", "Enter", "enter"),
            // A Meta key that the viewer's system maps to Control.
            ("MetaLeft", "Control", "control"),
            ("ArrowUp", "ArrowUp", "up"),
            ("KeyY", "z", "z"),
            ("Digit7", "é", "é"),
        ] {
            let strokes = key_down(&mut keyboard, code, name);
            assert_eq!(strokes, [press(key(expected))], "{code} {name}");
        }
    }

    #[test]
    fn shift_is_released_for_characters_typed_without_it() {
        let (shift, mut keyboard) = (key("Shift"), Keyboard::default());
        key_down(&mut keyboard, "ShiftLeft", "Shift");
        for c in ["1", "-", "é", "ß", "漢"] {
            let (c_key, strokes) = (key(c), key_down(&mut keyboard, "Digit1", c));
            let expected = [release(shift), press(c_key), release(c_key), press(shift)];
            assert_eq!(strokes, expected, "{c}");
            assert_eq!(key_up(&mut keyboard, "Digit1"), None);
        }
        for c in ["A", "!", " ", "Enter", "Tab"] {
            assert_eq!(key_down(&mut keyboard, c, c), [press(key(c))], "{c}");
        }
        key_down(&mut keyboard, "ControlLeft", "Control");
        assert_eq!(key_down(&mut keyboard, "Digit5", "5"), [press(key("5"))]);
    }

    #[test]
    fn modifiers_are_released_around_text() {
        let (shift, mut keyboard) = (key("Shift"), Keyboard::default());
        assert_eq!(keyboard.strokes_around_text(), (vec![], vec![]));
        key_down(&mut keyboard, "ShiftLeft", "Shift");
        key_down(&mut keyboard, "KeyA", "A");
        let around = (vec![release(shift)], vec![press(shift)]);
        assert_eq!(keyboard.strokes_around_text(), around);
        assert_eq!(key_up(&mut keyboard, "ShiftLeft"), Some(release(shift)));
    }

    #[test]
    fn repeating_keys_are_released_without_modifiers() {
        let mut keyboard = Keyboard::default();
        key_down(&mut keyboard, "ControlLeft", "Control");
        assert!(!keyboard.has_repeating_keys());
        assert_eq!(keyboard.release_repeating_keys(), []);
        key_down(&mut keyboard, "KeyA", "a");
        assert!(keyboard.has_repeating_keys());
        assert_eq!(keyboard.release_repeating_keys(), [release(key("a"))]);
        assert!(!keyboard.has_repeating_keys());
        assert_eq!(key_up(&mut keyboard, "KeyA"), None);
        let control = Some(release(key("Control")));
        assert_eq!(key_up(&mut keyboard, "ControlLeft"), control);
    }

    #[test]
    fn keys_beyond_the_held_limit_are_ignored() {
        let mut keyboard = Keyboard::default();
        for index in 0..2 * MAX_HELD {
            let strokes = key_down(&mut keyboard, &format!("Key{index}"), "a");
            assert_eq!(strokes.is_empty(), index >= MAX_HELD);
        }
        assert_eq!(key_down(&mut keyboard, "Key0", "a"), [], "held already");
        keyboard.clear();
        assert_eq!(key_up(&mut keyboard, "Key0"), None);
    }

    #[test]
    fn lock_keys_and_unknown_keys_are_ignored() {
        let mut keyboard = Keyboard::default();
        for name in ["CapsLock", "NumLock", "Unidentified", "NoSuchKey"] {
            assert_eq!(key_down(&mut keyboard, name, name), [], "{name}");
        }
    }

    #[test]
    fn paste_presses_control_unless_it_is_held() {
        let (control, v) = (key("Control"), key("v"));
        let mut keyboard = Keyboard::default();
        let tap = [press(v), release(v)];
        let strokes = [press(control), tap[0], tap[1], release(control)];
        assert_eq!(keyboard.paste_strokes(), strokes);
        key_down(&mut keyboard, "ControlRight", "Control");
        assert_eq!(keyboard.paste_strokes(), tap);
    }
}

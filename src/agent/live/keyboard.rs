//! A viewer's keyboard as keys of the browser's.
//!
//! The page tells what a key stands for there, whatever its keyboard looks like. What is pressed here is a key that stands for the same
//! on this one, so that both may differ in where a character lies and in whether it takes a Shift.

use std::collections::HashMap;

use crate::api::{
    keys::Key,
    live::{KeyCode, KeyName},
};

/// Nobody holds more at once; what comes beyond that is not pressed.
const MAX_HELD: usize = 32;
/// What takes a Shift on the keyboard here, beside capital letters.
const SHIFTED: &str = "~!@#$%^&*()_+{}|:\"<>?";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stroke {
    pub key: Key,
    pub down: bool,
}

impl Stroke {
    pub const fn tap(key: Key) -> [Self; 2] {
        [press(key), release(key)]
    }
}

const fn press(key: Key) -> Stroke {
    Stroke { key, down: true }
}

const fn release(key: Key) -> Stroke {
    Stroke { key, down: false }
}

#[derive(Default)]
pub struct Keyboard {
    /// What was pressed for a key is what is released for it, whatever it stands for by then.
    held: HashMap<KeyCode, Key>,
}

impl Keyboard {
    /// Nothing for a key that is unknown here, or held: the X server repeats it by itself.
    pub fn down(&mut self, code: KeyCode, name: &KeyName) -> Vec<Stroke> {
        let Some(key) = key_of(&code, name) else {
            return Vec::new();
        };
        if self.held.contains_key(&code) || self.held.len() >= MAX_HELD {
            return Vec::new();
        }
        if self.is_spoiled_by_shift(key) {
            return self.without_shift(key);
        }
        self.held.insert(code, key);
        vec![press(key)]
    }

    pub fn up(&mut self, code: &KeyCode) -> Option<Stroke> {
        self.held.remove(code).map(release)
    }

    /// Whether a key is held that is repeated: a modifier is not.
    pub fn repeats(&self) -> bool {
        self.held.values().any(|key| !key.is_modifier())
    }

    /// Releases those.
    pub fn end_repeats(&mut self) -> Vec<Stroke> {
        let ended = self.held.extract_if(|_, key| !key.is_modifier());
        ended.map(|(_, key)| release(key)).collect()
    }

    /// Nothing is held any more: somebody else has released it.
    pub fn forget(&mut self) {
        self.held.clear();
    }

    /// What is to be done before and after a text, which no modifier is to make another one.
    pub fn around_text(&self) -> (Vec<Stroke>, Vec<Stroke>) {
        let modifiers = || self.held.values().copied().filter(|key| key.is_modifier());
        (
            modifiers().map(release).collect(),
            modifiers().map(press).collect(),
        )
    }

    /// The keys that paste, whether a Control is held already or not.
    pub fn paste(&self) -> Vec<Stroke> {
        let tap = Key::of_char('v').map(Stroke::tap);
        let tap = tap.into_iter().flatten();
        if self.held.values().any(|key| is_called(*key, &["Control"])) {
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

    fn shifts(&self) -> impl Iterator<Item = Key> {
        self.held.values().copied().filter(|key| key.is_shift())
    }

    /// Whether the Shift that it took there would make another character of it here. In a command it is part of that.
    fn is_spoiled_by_shift(&self, key: Key) -> bool {
        let Some(c) = key.character().filter(|c| *c != ' ') else {
            return false;
        };
        let commands = self.held.values();
        let is_command = commands
            .copied()
            .any(|key| key.is_modifier() && !key.is_shift());
        let takes_shift = c.is_ascii_uppercase() || SHIFTED.contains(c);
        !is_command && !takes_shift && self.shifts().next().is_some()
    }

    fn without_shift(&self, key: Key) -> Vec<Stroke> {
        let up = self.shifts().map(release);
        let down = self.shifts().map(press);
        up.chain([press(key), release(key)]).chain(down).collect()
    }
}

/// A character, or a key by its name. Of those that are there twice, the one it is.
fn key_of(code: &KeyCode, name: &KeyName) -> Option<Key> {
    let name = name.as_str();
    let by_place = Key::parse(code.as_str()).filter(|key| {
        let dom = key.dom();
        dom.is_some_and(|dom| dom.key == name)
    });
    let key = by_place.or_else(|| Key::parse(name))?;
    // They change what is told of other keys there already.
    (!is_called(key, &["CapsLock", "NumLock", "ScrollLock"])).then_some(key)
}

/// By the DOM.
fn is_called(key: Key, names: &[&str]) -> bool {
    key.dom().is_some_and(|dom| names.contains(&dom.key))
}

#[cfg(test)]
mod tests {
    use deserr::errors::JsonError;
    use serde_json::json;

    use super::*;
    use crate::api::live::ViewerMessage;

    fn down(keyboard: &mut Keyboard, code: &str, key: &str) -> Vec<Stroke> {
        let message = json!({"type": "key_down", "code": code, "key": key});
        let Ok(ViewerMessage::KeyDown { code, key }) =
            deserr::deserialize::<_, _, JsonError>(message)
        else {
            panic!("{code} {key}");
        };
        keyboard.down(code, &key)
    }

    fn up(keyboard: &mut Keyboard, code: &str) -> Option<Stroke> {
        let message = json!({"type": "key_up", "code": code});
        let Ok(ViewerMessage::KeyUp { code }) = deserr::deserialize::<_, _, JsonError>(message)
        else {
            panic!("{code}");
        };
        keyboard.up(&code)
    }

    fn key(name: &str) -> Key {
        Key::parse(name).unwrap()
    }

    #[test]
    fn a_key_is_held_until_it_is_released_whatever_it_stands_for_by_then() {
        let mut keyboard = Keyboard::default();
        assert_eq!(
            down(&mut keyboard, "ShiftLeft", "Shift"),
            [press(key("Shift"))]
        );
        assert_eq!(down(&mut keyboard, "KeyA", "A"), [press(key("A"))]);
        assert_eq!(up(&mut keyboard, "ShiftLeft"), Some(release(key("Shift"))));
        // Its up event says `a` by now.
        assert_eq!(up(&mut keyboard, "KeyA"), Some(release(key("A"))));
        assert_eq!(up(&mut keyboard, "KeyA"), None);
    }

    #[test]
    fn the_one_of_two_keys_is_pressed_that_was_pressed_there() {
        let mut keyboard = Keyboard::default();
        for (code, name, expected) in [
            ("ControlRight", "Control", "ctrl_r"),
            ("NumpadEnter", "Enter", "kp_enter"),
            ("Enter", "Enter", "enter"),
            // Meta of another system's keyboard that is Control here.
            ("MetaLeft", "Control", "control"),
            ("ArrowUp", "ArrowUp", "up"),
            ("KeyY", "z", "z"),
            ("Digit7", "é", "é"),
        ] {
            let strokes = down(&mut keyboard, code, name);
            assert_eq!(strokes, [press(key(expected))], "{code} {name}");
        }
    }

    #[test]
    fn a_shift_that_would_make_another_character_of_it_is_released_meanwhile() {
        let (shift, mut keyboard) = (key("Shift"), Keyboard::default());
        down(&mut keyboard, "ShiftLeft", "Shift");
        for c in ["1", "-", "é", "ß", "漢"] {
            let (c_key, strokes) = (key(c), down(&mut keyboard, "Digit1", c));
            let expected = [release(shift), press(c_key), release(c_key), press(shift)];
            assert_eq!(strokes, expected, "{c}");
            assert_eq!(up(&mut keyboard, "Digit1"), None);
        }
        for c in ["A", "!", " ", "Enter", "Tab"] {
            assert_eq!(down(&mut keyboard, c, c), [press(key(c))], "{c}");
        }
        down(&mut keyboard, "ControlLeft", "Control");
        assert_eq!(down(&mut keyboard, "Digit5", "5"), [press(key("5"))]);
    }

    #[test]
    fn no_modifier_is_down_while_a_text_is_typed() {
        let (shift, mut keyboard) = (key("Shift"), Keyboard::default());
        assert_eq!(keyboard.around_text(), (vec![], vec![]));
        down(&mut keyboard, "ShiftLeft", "Shift");
        down(&mut keyboard, "KeyA", "A");
        let around = (vec![release(shift)], vec![press(shift)]);
        assert_eq!(keyboard.around_text(), around);
        assert_eq!(up(&mut keyboard, "ShiftLeft"), Some(release(shift)));
    }

    #[test]
    fn of_what_is_held_the_keys_are_repeated_and_can_be_released_alone() {
        let mut keyboard = Keyboard::default();
        down(&mut keyboard, "ControlLeft", "Control");
        assert!(!keyboard.repeats());
        assert_eq!(keyboard.end_repeats(), []);
        down(&mut keyboard, "KeyA", "a");
        assert!(keyboard.repeats());
        assert_eq!(keyboard.end_repeats(), [release(key("a"))]);
        assert!(!keyboard.repeats());
        assert_eq!(up(&mut keyboard, "KeyA"), None);
        let control = Some(release(key("Control")));
        assert_eq!(up(&mut keyboard, "ControlLeft"), control);
    }

    #[test]
    fn no_more_are_held_than_hands_can_hold() {
        let mut keyboard = Keyboard::default();
        for place in 0..2 * MAX_HELD {
            let strokes = down(&mut keyboard, &format!("Key{place}"), "a");
            assert_eq!(strokes.is_empty(), place >= MAX_HELD);
        }
        assert_eq!(down(&mut keyboard, "Key0", "a"), [], "held already");
        keyboard.forget();
        assert_eq!(up(&mut keyboard, "Key0"), None);
    }

    #[test]
    fn locks_and_keys_that_are_none_are_not_pressed() {
        let mut keyboard = Keyboard::default();
        for name in ["CapsLock", "NumLock", "Unidentified", "NoSuchKey"] {
            assert_eq!(down(&mut keyboard, name, name), [], "{name}");
        }
    }

    #[test]
    fn pasting_takes_a_control_where_none_is_held() {
        let (control, v) = (key("Control"), key("v"));
        let mut keyboard = Keyboard::default();
        let tap = [press(v), release(v)];
        let whole = [press(control), tap[0], tap[1], release(control)];
        assert_eq!(keyboard.paste(), whole);
        down(&mut keyboard, "ControlRight", "Control");
        assert_eq!(keyboard.paste(), tap);
    }
}

//! The DOM events of each key of a US keyboard, and of characters that it lacks.

use crate::{
    api::keys::Key,
    system::cdp::tab::{KeyEvent, Modifiers},
};

/// Characters without and with Shift, DOM code and key code of the punctuation and digit keys.
const PUNCTUATION: [(char, char, &str, u16); 21] = [
    ('1', '!', "Digit1", 49),
    ('2', '@', "Digit2", 50),
    ('3', '#', "Digit3", 51),
    ('4', '$', "Digit4", 52),
    ('5', '%', "Digit5", 53),
    ('6', '^', "Digit6", 54),
    ('7', '&', "Digit7", 55),
    ('8', '*', "Digit8", 56),
    ('9', '(', "Digit9", 57),
    ('0', ')', "Digit0", 48),
    ('-', '_', "Minus", 189),
    ('=', '+', "Equal", 187),
    ('[', '{', "BracketLeft", 219),
    (']', '}', "BracketRight", 221),
    ('\\', '|', "Backslash", 220),
    (';', ':', "Semicolon", 186),
    ('\'', '"', "Quote", 222),
    ('`', '~', "Backquote", 192),
    (',', '<', "Comma", 188),
    ('.', '>', "Period", 190),
    ('/', '?', "Slash", 191),
];

const LETTERS: [&str; 26] = [
    "KeyA", "KeyB", "KeyC", "KeyD", "KeyE", "KeyF", "KeyG", "KeyH", "KeyI", "KeyJ", "KeyK", "KeyL",
    "KeyM", "KeyN", "KeyO", "KeyP", "KeyQ", "KeyR", "KeyS", "KeyT", "KeyU", "KeyV", "KeyW", "KeyX",
    "KeyY", "KeyZ",
];

/// The keysym of the first entry of [`KEYPAD`].
const KEYPAD_FIRST: u32 = 0xffaa;
/// DOM codes and key codes of the keypad, in the order of their keysyms.
const KEYPAD: [(&str, u16); 16] = [
    ("NumpadMultiply", 106),
    ("NumpadAdd", 107),
    ("NumpadComma", 108),
    ("NumpadSubtract", 109),
    ("NumpadDecimal", 110),
    ("NumpadDivide", 111),
    ("Numpad0", 96),
    ("Numpad1", 97),
    ("Numpad2", 98),
    ("Numpad3", 99),
    ("Numpad4", 100),
    ("Numpad5", 101),
    ("Numpad6", 102),
    ("Numpad7", 103),
    ("Numpad8", 104),
    ("Numpad9", 105),
];

/// The values of `KeyboardEvent.location`.
const LEFT: u8 = 1;
const RIGHT: u8 = 2;
const NUMPAD: u8 = 3;

/// The physical key that a key is on.
struct PhysicalKey {
    code: &'static str,
    key_code: u16,
    location: u8,
    meaning: KeyMeaning,
}

enum KeyMeaning {
    /// A named key, and the text it types, if any.
    Named(&'static str, Option<&'static str>),
    /// The characters without and with Shift.
    Characters(char, char),
    Unknown,
}

fn physical_key(key: Key) -> PhysicalKey {
    let keypad = key.keysym().checked_sub(KEYPAD_FIRST);
    let keypad = keypad.and_then(|index| KEYPAD.get(index as usize));
    if let Some(dom) = key.dom() {
        return PhysicalKey {
            code: dom.code,
            key_code: dom.key_code,
            location: location(dom.code),
            meaning: KeyMeaning::Named(
                dom.key,
                match dom.key {
                    "Enter" => Some("\r"),
                    " " => Some(" "),
                    _ => None,
                },
            ),
        };
    }
    let Some(c) = key.character() else {
        return PhysicalKey {
            code: "",
            key_code: 0,
            location: 0,
            meaning: KeyMeaning::Unknown,
        };
    };
    let (code, key_code, location, meaning) = match (keypad, c) {
        (Some((code, key_code)), c) => (*code, *key_code, NUMPAD, KeyMeaning::Characters(c, c)),
        (None, 'a'..='z' | 'A'..='Z') => {
            let capital = c.to_ascii_uppercase();
            let code = LETTERS[usize::from(capital as u8 - b'A')];
            let meaning = KeyMeaning::Characters(c.to_ascii_lowercase(), capital);
            (code, u16::from(capital as u8), 0, meaning)
        }
        (None, c) => match PUNCTUATION.iter().find(|(a, b, ..)| [*a, *b].contains(&c)) {
            Some((plain, shifted, code, key_code)) => (
                *code,
                *key_code,
                0,
                KeyMeaning::Characters(*plain, *shifted),
            ),
            None => ("", 0, 0, KeyMeaning::Characters(c, c)),
        },
    };
    PhysicalKey {
        code,
        key_code,
        location,
        meaning,
    }
}

fn location(code: &str) -> u8 {
    let is_arrow = code.starts_with("Arrow");
    match code {
        _ if is_arrow => 0,
        _ if code.ends_with("Left") => LEFT,
        _ if code.ends_with("Right") => RIGHT,
        _ if code.starts_with("Numpad") => NUMPAD,
        _ => 0,
    }
}

/// Returns whether the key needs Shift.
pub(super) fn needs_shift(key: Key) -> bool {
    match physical_key(key).meaning {
        KeyMeaning::Characters(plain, shifted) => {
            plain != shifted && key.character() == Some(shifted)
        }
        KeyMeaning::Named(..) | KeyMeaning::Unknown => false,
    }
}

/// Returns the modifiers among the held keys.
pub(super) fn modifiers(held: &[Key]) -> Modifiers {
    let mut modifiers = Modifiers::default();
    for dom in held.iter().filter_map(|key| key.dom()) {
        match dom.key {
            "Alt" => modifiers.alt = true,
            "Control" => modifiers.ctrl = true,
            "Meta" => modifiers.meta = true,
            "Shift" => modifiers.shift = true,
            _ => {}
        }
    }
    modifiers
}

/// Returns the event of a key that is pressed or released while modifiers are held.
pub(super) fn event(key: Key, down: bool, modifiers: Modifiers, caps_lock: bool) -> KeyEvent {
    let physical = physical_key(key);
    let (name, text) = match physical.meaning {
        KeyMeaning::Named(name, text) => (name.to_owned(), text.map(str::to_owned)),
        KeyMeaning::Characters(plain, shifted) => {
            let shift = modifiers.shift ^ (caps_lock && plain.is_ascii_lowercase());
            let character = String::from(if shift { shifted } else { plain });
            (character.clone(), Some(character))
        }
        KeyMeaning::Unknown => ("Unidentified".to_owned(), None),
    };
    KeyEvent {
        down,
        key: name,
        code: physical.code,
        key_code: physical.key_code,
        location: physical.location,
        text: text.filter(|_| down && !modifiers.is_command()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event_of(
        name: &str,
        modifiers: Modifiers,
    ) -> (String, &'static str, u16, u8, Option<String>) {
        let event = event(Key::parse(name).unwrap(), true, modifiers, false);
        (
            event.key,
            event.code,
            event.key_code,
            event.location,
            event.text,
        )
    }

    #[test]
    fn events_match_a_us_keyboard() {
        let none = Modifiers::default();
        let shift = Modifiers {
            shift: true,
            ..none
        };
        let ctrl = Modifiers { ctrl: true, ..none };
        for (name, held, key, code, key_code, location, text) in [
            ("a", none, "a", "KeyA", 65, 0, Some("a")),
            ("a", shift, "A", "KeyA", 65, 0, Some("A")),
            ("a", ctrl, "a", "KeyA", 65, 0, None),
            ("1", shift, "!", "Digit1", 49, 0, Some("!")),
            ("!", shift, "!", "Digit1", 49, 0, Some("!")),
            ("é", none, "é", "", 0, 0, Some("é")),
            ("😀", none, "😀", "", 0, 0, Some("😀")),
            ("space", none, " ", "Space", 32, 0, Some(" ")),
            ("Return", none, "Enter", "Enter", 13, 0, Some("\r")),
            ("KP_Enter", none, "Enter", "NumpadEnter", 13, 3, Some("\r")),
            ("KP_5", none, "5", "Numpad5", 101, 3, Some("5")),
            ("KP_Add", none, "+", "NumpadAdd", 107, 3, Some("+")),
            ("Shift", none, "Shift", "ShiftLeft", 16, 1, None),
            ("Control_R", none, "Control", "ControlRight", 17, 2, None),
            ("ArrowLeft", none, "ArrowLeft", "ArrowLeft", 37, 0, None),
            ("Tab", none, "Tab", "Tab", 9, 0, None),
            ("XF86AudioPlay", none, "Unidentified", "", 0, 0, None),
        ] {
            let expected = (key.to_owned(), code, key_code, location);
            let expected = (
                expected.0,
                expected.1,
                expected.2,
                expected.3,
                text.map(str::to_owned),
            );
            assert_eq!(event_of(name, held), expected, "{name}");
        }
    }

    #[test]
    fn shifted_characters_need_shift() {
        let needs = |name: &str| needs_shift(Key::parse(name).unwrap());
        for name in ["A", "!", "~", "_", "\""] {
            assert!(needs(name), "{name}");
        }
        for name in ["a", "1", "É", "漢", "Return", "KP_5", "Shift", " "] {
            assert!(!needs(name), "{name}");
        }
    }
}

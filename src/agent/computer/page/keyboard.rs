//! The keyboard of a page without a screen: what each key of a US keyboard is, and what other characters are.

use crate::{
    api::keys::Key,
    system::cdp::tab::{KeyEvent, Modifiers},
};

/// With the characters they write, without and with Shift.
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

/// Of the keypad, by X's numbers, which begin here.
const KEYPAD_FIRST: u32 = 0xffaa;
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

const LEFT: u8 = 1;
const RIGHT: u8 = 2;
const NUMPAD: u8 = 3;

/// A key where it is on the keyboard.
struct Cap {
    code: &'static str,
    key_code: u16,
    location: u8,
    face: Face,
}

enum Face {
    /// It has a name, and may write.
    Named(&'static str, Option<&'static str>),
    /// It writes the first, and the second with Shift.
    Writes(char, char),
    Unknown,
}

fn cap(key: Key) -> Cap {
    let keypad = key.keysym().checked_sub(KEYPAD_FIRST);
    let keypad = keypad.and_then(|at| KEYPAD.get(at as usize));
    if let Some(dom) = key.dom() {
        return Cap {
            code: dom.code,
            key_code: dom.key_code,
            location: location(dom.code),
            face: Face::Named(
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
        return Cap {
            code: "",
            key_code: 0,
            location: 0,
            face: Face::Unknown,
        };
    };
    let (code, key_code, location, face) = match (keypad, c) {
        (Some((code, key_code)), c) => (*code, *key_code, NUMPAD, Face::Writes(c, c)),
        (None, 'a'..='z' | 'A'..='Z') => {
            let capital = c.to_ascii_uppercase();
            let code = LETTERS[usize::from(capital as u8 - b'A')];
            let face = Face::Writes(c.to_ascii_lowercase(), capital);
            (code, u16::from(capital as u8), 0, face)
        }
        (None, c) => match PUNCTUATION.iter().find(|(a, b, ..)| [*a, *b].contains(&c)) {
            Some((plain, shifted, code, key_code)) => {
                (*code, *key_code, 0, Face::Writes(*plain, *shifted))
            }
            None => ("", 0, 0, Face::Writes(c, c)),
        },
    };
    Cap {
        code,
        key_code,
        location,
        face,
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

/// Whether it is written with Shift.
pub fn takes_shift(key: Key) -> bool {
    match cap(key).face {
        Face::Writes(plain, shifted) => plain != shifted && key.character() == Some(shifted),
        Face::Named(..) | Face::Unknown => false,
    }
}

/// What is held, where these keys are.
pub fn modifiers(held: &[Key]) -> Modifiers {
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

/// What the page is told of a key that is pressed or released while others are held.
pub fn event(key: Key, down: bool, modifiers: Modifiers, caps_lock: bool) -> KeyEvent {
    let cap = cap(key);
    let (name, text) = match cap.face {
        Face::Named(name, text) => (name.to_owned(), text.map(str::to_owned)),
        Face::Writes(plain, shifted) => {
            let shift = modifiers.shift ^ (caps_lock && plain.is_ascii_lowercase());
            let written = String::from(if shift { shifted } else { plain });
            (written.clone(), Some(written))
        }
        Face::Unknown => ("Unidentified".to_owned(), None),
    };
    KeyEvent {
        down,
        key: name,
        code: cap.code,
        key_code: cap.key_code,
        location: cap.location,
        text: text.filter(|_| down && !modifiers.command()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(name: &str, modifiers: Modifiers) -> (String, &'static str, u16, u8, Option<String>) {
        let told = event(Key::parse(name).unwrap(), true, modifiers, false);
        (told.key, told.code, told.key_code, told.location, told.text)
    }

    #[test]
    fn keys_are_told_as_a_keyboard_would() {
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
            assert_eq!(told(name, held), expected, "{name}");
        }
    }

    #[test]
    fn capitals_take_a_shift() {
        let takes = |name: &str| takes_shift(Key::parse(name).unwrap());
        for name in ["A", "!", "~", "_", "\""] {
            assert!(takes(name), "{name}");
        }
        for name in ["a", "1", "É", "漢", "Return", "KP_5", "Shift", " "] {
            assert!(!takes(name), "{name}");
        }
    }
}

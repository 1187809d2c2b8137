//! Keyboard keys and their names.

use std::{collections::HashMap, fmt, sync::LazyLock};

use deserr::{DeserializeError, Deserr, IntoValue, Value, ValuePointerRef};
use xkeysym::Keysym;

use super::field::from_text;

/// Bytes of the name of a key or combination, at most.
const MAX_NAME: usize = 100;
/// Keys of a combination, at most.
const MAX_CHORD: usize = 8;

/// A key, identified by its X11 keysym. It may be part of a secret, so `Debug` omits it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key(u32);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

/// The DOM properties of a named key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DomKey {
    /// `KeyboardEvent.key`.
    pub key: &'static str,
    /// `KeyboardEvent.code`.
    pub code: &'static str,
    /// `KeyboardEvent.keyCode`.
    pub key_code: u16,
}

struct Named {
    keysym: Keysym,
    /// Names in lower case; matching is case-insensitive.
    names: &'static [&'static str],
    dom: DomKey,
}

const fn named(
    keysym: Keysym,
    names: &'static [&'static str],
    (key, code, key_code): (&'static str, &'static str, u16),
) -> Named {
    Named {
        keysym,
        names,
        dom: DomKey {
            key,
            code,
            key_code,
        },
    }
}

/// Named keys, in addition to all keysym names of X11.
#[rustfmt::skip]
const NAMED: [Named; 58] = [
    named(Keysym::Return, &["return", "enter"], ("Enter", "Enter", 13)),
    named(Keysym::KP_Enter, &["kp_enter", "numpadenter"], ("Enter", "NumpadEnter", 13)),
    named(Keysym::Tab, &["tab"], ("Tab", "Tab", 9)),
    named(Keysym::BackSpace, &["backspace"], ("Backspace", "Backspace", 8)),
    named(Keysym::Delete, &["delete", "del"], ("Delete", "Delete", 46)),
    named(Keysym::Insert, &["insert", "ins"], ("Insert", "Insert", 45)),
    named(Keysym::Escape, &["escape", "esc"], ("Escape", "Escape", 27)),
    named(Keysym::space, &["space", "spacebar"], (" ", "Space", 32)),
    named(Keysym::Home, &["home"], ("Home", "Home", 36)),
    named(Keysym::End, &["end"], ("End", "End", 35)),
    named(Keysym::Page_Up, &["page_up", "pageup", "prior", "pgup"], ("PageUp", "PageUp", 33)),
    named(Keysym::Page_Down, &["page_down", "pagedown", "next", "pgdn", "pgdown"], ("PageDown", "PageDown", 34)),
    named(Keysym::Left, &["left", "arrowleft"], ("ArrowLeft", "ArrowLeft", 37)),
    named(Keysym::Up, &["up", "arrowup"], ("ArrowUp", "ArrowUp", 38)),
    named(Keysym::Right, &["right", "arrowright"], ("ArrowRight", "ArrowRight", 39)),
    named(Keysym::Down, &["down", "arrowdown"], ("ArrowDown", "ArrowDown", 40)),
    named(Keysym::Shift_L, &["shift", "shift_l", "shiftleft"], ("Shift", "ShiftLeft", 16)),
    named(Keysym::Shift_R, &["shift_r", "shiftright"], ("Shift", "ShiftRight", 16)),
    named(Keysym::Control_L, &["ctrl", "control", "ctrl_l", "control_l", "controlleft"], ("Control", "ControlLeft", 17)),
    named(Keysym::Control_R, &["ctrl_r", "control_r", "controlright"], ("Control", "ControlRight", 17)),
    named(Keysym::Alt_L, &["alt", "alt_l", "altleft", "option"], ("Alt", "AltLeft", 18)),
    named(Keysym::Alt_R, &["alt_r", "altright"], ("Alt", "AltRight", 18)),
    named(Keysym::ISO_Level3_Shift, &["altgr", "altgraph"], ("AltGraph", "AltRight", 225)),
    named(Keysym::Super_L, &["super", "super_l", "meta", "metaleft", "cmd", "command", "win", "windows"], ("Meta", "MetaLeft", 91)),
    named(Keysym::Super_R, &["super_r", "metaright"], ("Meta", "MetaRight", 92)),
    named(Keysym::Menu, &["menu", "contextmenu"], ("ContextMenu", "ContextMenu", 93)),
    named(Keysym::Caps_Lock, &["caps_lock", "capslock"], ("CapsLock", "CapsLock", 20)),
    named(Keysym::Num_Lock, &["num_lock", "numlock"], ("NumLock", "NumLock", 144)),
    named(Keysym::Scroll_Lock, &["scroll_lock", "scrolllock"], ("ScrollLock", "ScrollLock", 145)),
    named(Keysym::Print, &["print", "printscreen"], ("PrintScreen", "PrintScreen", 44)),
    named(Keysym::Pause, &["pause"], ("Pause", "Pause", 19)),
    named(Keysym::F1, &["f1"], ("F1", "F1", 112)),
    named(Keysym::F2, &["f2"], ("F2", "F2", 113)),
    named(Keysym::F3, &["f3"], ("F3", "F3", 114)),
    named(Keysym::F4, &["f4"], ("F4", "F4", 115)),
    named(Keysym::F5, &["f5"], ("F5", "F5", 116)),
    named(Keysym::F6, &["f6"], ("F6", "F6", 117)),
    named(Keysym::F7, &["f7"], ("F7", "F7", 118)),
    named(Keysym::F8, &["f8"], ("F8", "F8", 119)),
    named(Keysym::F9, &["f9"], ("F9", "F9", 120)),
    named(Keysym::F10, &["f10"], ("F10", "F10", 121)),
    named(Keysym::F11, &["f11"], ("F11", "F11", 122)),
    named(Keysym::F12, &["f12"], ("F12", "F12", 123)),
    named(Keysym::F13, &["f13"], ("F13", "F13", 124)),
    named(Keysym::F14, &["f14"], ("F14", "F14", 125)),
    named(Keysym::F15, &["f15"], ("F15", "F15", 126)),
    named(Keysym::F16, &["f16"], ("F16", "F16", 127)),
    named(Keysym::F17, &["f17"], ("F17", "F17", 128)),
    named(Keysym::F18, &["f18"], ("F18", "F18", 129)),
    named(Keysym::F19, &["f19"], ("F19", "F19", 130)),
    named(Keysym::F20, &["f20"], ("F20", "F20", 131)),
    named(Keysym::F21, &["f21"], ("F21", "F21", 132)),
    named(Keysym::F22, &["f22"], ("F22", "F22", 133)),
    named(Keysym::F23, &["f23"], ("F23", "F23", 134)),
    named(Keysym::F24, &["f24"], ("F24", "F24", 135)),
    named(Keysym::Clear, &["clear"], ("Clear", "NumLock", 12)),
    named(Keysym::Select, &["select"], ("Select", "Select", 41)),
    named(Keysym::Help, &["help"], ("Help", "Help", 47)),
];

/// The named keys by lower-case name.
static ALIASES: LazyLock<HashMap<&'static str, &'static Named>> = LazyLock::new(|| {
    let pairs = |named: &'static Named| named.names.iter().map(move |name| (*name, named));
    NAMED.iter().flat_map(pairs).collect()
});

/// The keysym names of X11, vendor keysyms included.
static X11_NAMES: LazyLock<HashMap<&'static str, u32>> = LazyLock::new(|| {
    const RANGES: [std::ops::RangeInclusive<u32>; 2] = [0x20..=0xffff, 0x1008_fe00..=0x1008_ffff];
    let mut names = HashMap::new();
    for keysym in RANGES.into_iter().flatten() {
        if let Some(name) = Keysym::new(keysym).name() {
            let name = match name.strip_prefix("XF86XK_") {
                // Stored without the prefix, so that `XF86AudioPlay` is also known as `AudioPlay`.
                Some(name) => name,
                None => name.strip_prefix("XK_").unwrap_or(name),
            };
            names.entry(name).or_insert(keysym);
        }
    }
    names
});

impl Key {
    pub const SHIFT: Key = Key(Keysym::Shift_L.raw());
    pub const CAPS_LOCK: Key = Key(Keysym::Caps_Lock.raw());
    pub const RETURN: Key = Key(Keysym::Return.raw());
    pub const TAB: Key = Key(Keysym::Tab.raw());

    /// Returns the key that types a character.
    #[must_use]
    pub fn of_char(c: char) -> Option<Self> {
        match u32::from(c) {
            0x20..=0x7e | 0xa0..=0xff => Some(Key(u32::from(c))),
            // Control characters and noncharacters have no key.
            0..=0x9f | 0xfdd0..=0xfdef => None,
            code if code & 0xfffe == 0xfffe => None,
            code => Some(Key(0x0100_0000 | code)),
        }
    }

    /// Returns the key of a name: a character, a common name in any case (`Enter`, `ctrl`,
    /// `ArrowUp`, `F5`), an X11 keysym name (`Return`, `eacute`, `KP_Add`, `XF86AudioPlay`) or a
    /// code point (`U20AC`).
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let mut chars = name.chars();
        if let (Some(c), None) = (chars.next(), chars.next()) {
            return match c {
                '\n' | '\r' => Some(Self::RETURN),
                '\t' => Some(Self::TAB),
                c => Self::of_char(c),
            };
        }
        if let Some(named) = ALIASES.get(name.to_ascii_lowercase().as_str()) {
            return Some(Key(named.keysym.raw()));
        }
        let x11_name = name.strip_prefix("XF86").unwrap_or(name);
        X11_NAMES.get(x11_name).copied().map(Key).or_else(|| {
            let digits = name.strip_prefix('U')?;
            let is_number = (4..=6).contains(&digits.len())
                && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
            let code = is_number.then(|| u32::from_str_radix(digits, 16).ok())??;
            Self::of_char(char::from_u32(code)?)
        })
    }

    /// Returns the X11 keysym.
    #[must_use]
    pub fn keysym(self) -> u32 {
        self.0
    }

    #[must_use]
    pub fn of_keysym(keysym: u32) -> Self {
        Key(keysym)
    }

    /// Returns the character that the key types.
    #[must_use]
    pub fn character(self) -> Option<char> {
        Keysym::new(self.0).key_char().filter(|c| !c.is_control())
    }

    /// Returns the DOM properties of a named key.
    #[must_use]
    pub fn dom(self) -> Option<DomKey> {
        let mut all = NAMED.iter();
        let named = all.find(|named| named.keysym.raw() == self.0)?;
        Some(named.dom)
    }

    /// Returns whether the key modifies others, such as Shift or Ctrl.
    #[must_use]
    pub fn is_modifier(self) -> bool {
        Keysym::new(self.0).is_modifier_key()
    }

    #[must_use]
    pub fn is_shift(self) -> bool {
        [Keysym::Shift_L.raw(), Keysym::Shift_R.raw()].contains(&self.0)
    }

    /// Returns the lower-case key of an ASCII letter, and other keys unchanged.
    fn unshifted(self) -> Self {
        match self.character() {
            Some(c) if c.is_ascii_uppercase() => Key(u32::from(c.to_ascii_lowercase())),
            _ => self,
        }
    }
}

/// Keys pressed together, such as `Ctrl+Shift+t`; modifiers come first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chord(Vec<Key>);

impl Chord {
    #[must_use]
    pub fn keys(&self) -> &[Key] {
        &self.0
    }

    /// Parses a key or a combination.
    ///
    /// # Errors
    /// Returns a message about the invalid name.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > MAX_NAME {
            return Err(format!("must have at most {MAX_NAME} bytes"));
        }
        if let Some(key) = Key::parse(text) {
            return Ok(Chord(vec![key]));
        }
        // A final `++` is a separator and the plus key.
        let (names, plus) = match text.strip_suffix("++") {
            Some(names) => (names, Some("+")),
            None => (text, None),
        };
        let mut keys = Vec::new();
        for name in names.split('+').chain(plus) {
            match Key::parse(name) {
                Some(key) => keys.push(key),
                None if name.is_empty() => return Err("must name a key".to_owned()),
                None => return Err("is not a known key".to_owned()),
            }
        }
        if keys.len() > MAX_CHORD {
            return Err(format!("must have at most {MAX_CHORD} keys"));
        }
        // With Ctrl, Alt or Super, letters mean keys: `Ctrl+C` is the usual notation of `Ctrl+c`.
        let has_command_modifier = keys.iter().any(|key| key.is_modifier() && !key.is_shift());
        if has_command_modifier {
            keys = keys.into_iter().map(Key::unshifted).collect();
        }
        Ok(Chord(keys))
    }
}

impl<E: DeserializeError> Deserr<E> for Chord {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        from_text(value, location, |text| Chord::parse(&text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_names_are_parsed() {
        for (name, keysym) in [
            ("Return", Keysym::Return),
            ("enter", Keysym::Return),
            ("Esc", Keysym::Escape),
            ("ArrowUp", Keysym::Up),
            ("PageDown", Keysym::Page_Down),
            ("Page_Down", Keysym::Page_Down),
            ("F5", Keysym::F5),
            ("f24", Keysym::F24),
            ("F35", Keysym::F35),
            ("cmd", Keysym::Super_L),
            ("META", Keysym::Super_L),
            ("Meta_L", Keysym::Meta_L),
            ("control", Keysym::Control_L),
            ("KP_Add", Keysym::KP_Add),
            ("eacute", Keysym::eacute),
            ("Greek_alpha", Keysym::Greek_alpha),
            ("plus", Keysym::plus),
            ("XF86AudioPlay", Keysym::XF86_AudioPlay),
            ("a", Keysym::a),
            ("A", Keysym::A),
            (" ", Keysym::space),
            ("é", Keysym::eacute),
            ("U20AC", Keysym::new(0x0100_20ac)),
            ("漢", Keysym::new(0x0100_6f22)),
        ] {
            let key = Key::parse(name).map(Key::keysym);
            assert_eq!(key, Some(keysym.raw()), "{name}");
        }
        for name in [
            "", "Retur", "Ctrl-t", "ab", "U12", "UD800", "U110000", "\u{1}", "\u{ffff}",
        ] {
            assert_eq!(Key::parse(name), None, "{name:?}");
        }
    }

    #[test]
    fn every_name_identifies_one_key() {
        let names: usize = NAMED.iter().map(|named| named.names.len()).sum();
        assert_eq!(ALIASES.len(), names);
        for named in &NAMED {
            for name in named.names {
                assert_eq!(*name, name.to_ascii_lowercase());
            }
        }
    }

    #[test]
    fn combinations_are_joined_by_a_plus() {
        let keysyms = |text: &str| {
            Chord::parse(text).map(|chord| chord.0.iter().map(|key| key.0).collect::<Vec<_>>())
        };
        let (ctrl, shift) = (Keysym::Control_L.raw(), Keysym::Shift_L.raw());
        assert_eq!(keysyms("Ctrl+t"), Ok(vec![ctrl, Keysym::t.raw()]));
        assert_eq!(keysyms("ctrl+T"), Ok(vec![ctrl, Keysym::t.raw()]));
        assert_eq!(keysyms("Shift+T"), Ok(vec![shift, Keysym::T.raw()]));
        assert_eq!(keysyms("+"), Ok(vec![Keysym::plus.raw()]));
        assert_eq!(keysyms("Ctrl++"), Ok(vec![ctrl, Keysym::plus.raw()]));
        assert_eq!(
            keysyms("Ctrl+Shift+Tab"),
            Ok(vec![ctrl, shift, Keysym::Tab.raw()])
        );
        for text in [
            "",
            "Ctrl+",
            "+t",
            "++",
            "+++",
            "Ctrl+nokey",
            "a+b+c+d+e+f+g+h+i",
        ] {
            assert!(keysyms(text).is_err(), "{text:?}");
        }
    }
}

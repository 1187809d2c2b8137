//! The checked values of actions.

use std::{fmt, time::Duration};

use deserr::{DeserializeError, Deserr, IntoValue, Value, ValuePointerRef};

use crate::api::{
    field::{add, from_text, whole_number},
    keys::{Chord, Key},
};

/// Characters of a typed text, at most.
pub const MAX_TEXT: usize = 65_536;
/// Points of a pointer path, at most.
pub const MAX_POINTS: usize = 1000;
/// Keys and combinations of a list, at most.
const MAX_KEYS: usize = 100;
/// Held keys, at most.
const MAX_HELD_KEYS: usize = 8;
/// Wheel notches of an action, at most.
const MAX_NOTCHES: i64 = 1000;

/// A whole number from `MIN` to `MAX`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounded<const MIN: u32, const MAX: u32>(u32);

/// Milliseconds, up to 30 s.
pub type Millis = Bounded<0, 30_000>;

impl<const MIN: u32, const MAX: u32> Bounded<MIN, MAX> {
    #[must_use]
    pub fn get(self) -> u32 {
        self.0
    }

    /// Returns the number as milliseconds.
    #[must_use]
    pub fn millis(self) -> Duration {
        Duration::from_millis(self.0.into())
    }
}

impl<const MIN: u32, const MAX: u32, E: DeserializeError> Deserr<E> for Bounded<MIN, MAX> {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        whole_number(value, location, MIN..=MAX).map(Bounded)
    }
}

/// Wheel notches, signed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Notches(i32);

impl Notches {
    #[must_use]
    pub fn get(self) -> i32 {
        self.0
    }
}

impl<E: DeserializeError> Deserr<E> for Notches {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        let notches: i64 = Deserr::<E>::deserialize_from_value(value, location)?;
        let fits = i32::try_from(notches).ok();
        fits.filter(|_| notches.abs() <= MAX_NOTCHES)
            .map(Notches)
            .ok_or_else(|| {
                let message =
                    format!("must be a whole number from -{MAX_NOTCHES} to {MAX_NOTCHES}");
                add(None, message, location)
            })
    }
}

/// A text to type. It may be a secret, so `Debug` omits it.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyboardText(String);

impl KeyboardText {
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the keys to press: one per character, and one per line end in any notation.
    pub fn keys(&self) -> impl Iterator<Item = Key> {
        let mut after_return = false;
        self.0.chars().filter_map(move |c| {
            let skipped = c == '\n' && after_return;
            after_return = c == '\r';
            match c {
                _ if skipped => None,
                '\n' | '\r' => Some(Key::RETURN),
                '\t' => Some(Key::TAB),
                c => Key::of_char(c),
            }
        })
    }

    /// Checks length and characters.
    ///
    /// # Errors
    /// Returns a message about the invalid text.
    pub fn parse(text: String) -> Result<Self, String> {
        let mut chars = text.chars().enumerate();
        let untypable =
            chars.find(|(_, c)| !matches!(c, '\n' | '\r' | '\t') && Key::of_char(*c).is_none());
        if let Some((index, _)) = untypable {
            return Err(format!(
                "has a character that cannot be typed, at index {index}"
            ));
        }
        if text.chars().count() > MAX_TEXT {
            return Err(format!("must have at most {MAX_TEXT} characters"));
        }
        Ok(KeyboardText(text))
    }
}

impl fmt::Debug for KeyboardText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyboardText")
    }
}

impl<E: DeserializeError> Deserr<E> for KeyboardText {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        from_text(value, location, KeyboardText::parse)
    }
}

/// Keys held during an action.
#[derive(Debug, Clone, Default)]
pub struct HoldKeys(Vec<Chord>);

impl HoldKeys {
    pub fn keys(&self) -> impl Iterator<Item = Key> {
        self.0.iter().flat_map(|chord| chord.keys().iter().copied())
    }
}

impl<E: DeserializeError> Deserr<E> for HoldKeys {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        let keys: Option<Vec<Chord>> = Deserr::<E>::deserialize_from_value(value, location)?;
        let held = HoldKeys(keys.unwrap_or_default());
        // Each key of a combination counts.
        if held.keys().count() > MAX_HELD_KEYS {
            return Err(add(
                None,
                format!("must have at most {MAX_HELD_KEYS} keys"),
                location,
            ));
        }
        Ok(held)
    }
}

/// Keys and combinations to press.
#[derive(Debug, Clone)]
pub struct Keys(Vec<Chord>);

impl Keys {
    #[must_use]
    pub fn chords(&self) -> &[Chord] {
        &self.0
    }
}

impl<E: DeserializeError> Deserr<E> for Keys {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        let keys: Vec<Chord> = Deserr::<E>::deserialize_from_value(value, location)?;
        if !(1..=MAX_KEYS).contains(&keys.len()) {
            return Err(add(
                None,
                format!("must have 1 to {MAX_KEYS} keys"),
                location,
            ));
        }
        Ok(Keys(keys))
    }
}

/// The points of a drag.
#[derive(Debug, Clone)]
pub struct PointerPath(Vec<(i64, i64)>);

impl PointerPath {
    #[must_use]
    pub fn points(&self) -> &[(i64, i64)] {
        &self.0
    }
}

impl<E: DeserializeError> Deserr<E> for PointerPath {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        let points: Vec<(i64, i64)> = Deserr::<E>::deserialize_from_value(value, location)?;
        if !(2..=MAX_POINTS).contains(&points.len()) {
            let message = format!("must have 2 to {MAX_POINTS} points");
            return Err(add(None, message, location));
        }
        Ok(PointerPath(points))
    }
}

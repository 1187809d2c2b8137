//! What the live view's page and its agent say to each other over their WebSocket.
//!
//! Pictures go as binary messages: a [`PictureHeader`], then the image. All else is JSON. The page comes from the agent itself, so both are of one
//! version.

use std::borrow::Cow;

use deserr::{DeserializeError, Deserr, IntoValue, Value, ValuePointerRef};
use serde::Serialize;

use super::{computer::MouseButton, field::from_text};

/// The names that the DOM gives to keys are shorter by far.
const MAX_KEY: usize = 32;
/// Pixels that a message turns the wheel by, at most: some screens.
const MAX_TURN: i64 = 4_000;
/// Beyond any screen.
const MAX_PLACE: i64 = 32_767;

/// What a viewer says.
#[derive(Deserr)]
#[deserr(tag = "type", rename_all = lowercase)]
pub enum ViewerMessage {
    /// It has drawn this frame and can take the next.
    Seen { sequence: u32 },
    #[deserr(rename = "pointer_move")]
    PointerMove { x: Place, y: Place },
    #[deserr(rename = "pointer_down")]
    PointerDown {
        x: Place,
        y: Place,
        button: MouseButton,
    },
    #[deserr(rename = "pointer_up")]
    PointerUp {
        x: Place,
        y: Place,
        button: MouseButton,
    },
    /// The wheel was turned by so many pixels; down and to the right are positive.
    Wheel {
        x: Place,
        y: Place,
        delta_x: Turn,
        delta_y: Turn,
    },
    /// `KeyboardEvent`'s `code` and `key`.
    #[deserr(rename = "key_down")]
    KeyDown { code: KeyCode, key: KeyName },
    #[deserr(rename = "key_up")]
    KeyUp { code: KeyCode },
    /// What is held is held still.
    Holding,
    /// Nothing is held any more.
    Release,
    /// Text that was made of no single keys.
    Text { text: TypedText },
    /// Pastes this text, or what the browser's clipboard has.
    Paste {
        #[deserr(default)]
        text: Option<TypedText>,
    },
    /// It is about to send the keys that copy, and wants what they copy.
    Copy,
}

/// A coordinate in pixels of the screen, or beyond it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(i32);

impl Place {
    #[must_use]
    pub fn pixels(self) -> i32 {
        self.0
    }
}

impl<E: DeserializeError> Deserr<E> for Place {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        let place: i64 = Deserr::<E>::deserialize_from_value(value, location)?;
        Ok(Self(place.clamp(0, MAX_PLACE) as i32))
    }
}

/// Pixels that a wheel turns by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn(i32);

impl Turn {
    #[must_use]
    pub fn pixels(self) -> i32 {
        self.0
    }

    /// Both, as far as one turn goes.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self::clamped(i64::from(self.0) + i64::from(other.0))
    }

    fn clamped(pixels: i64) -> Self {
        Self(pixels.clamp(-MAX_TURN, MAX_TURN) as i32)
    }
}

impl<E: DeserializeError> Deserr<E> for Turn {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        let turn: i64 = Deserr::<E>::deserialize_from_value(value, location)?;
        Ok(Self::clamped(turn))
    }
}

/// Which key of the keyboard it is, whatever it stands for: `KeyA`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct KeyCode(String);

/// What a key stands for: a character, or a name such as `Enter`. What is typed is nobody's business, so nothing prints it.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyName(String);

impl KeyCode {
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl KeyName {
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<E: DeserializeError> Deserr<E> for KeyCode {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        from_text(value, location, |text| short(text).map(Self))
    }
}

impl<E: DeserializeError> Deserr<E> for KeyName {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        from_text(value, location, |text| short(text).map(Self))
    }
}

fn short(text: String) -> Result<String, String> {
    if (1..=MAX_KEY).contains(&text.len()) && !text.chars().any(char::is_control) {
        Ok(text)
    } else {
        Err(format!(
            "must be 1 to {MAX_KEY} bytes without control characters"
        ))
    }
}

/// As much as a message may have; nothing prints it.
#[derive(Clone, PartialEq, Eq)]
pub struct TypedText(String);

impl TypedText {
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.len()
    }

    #[must_use]
    pub fn into_string(self) -> String {
        self.0
    }
}

impl<E: DeserializeError> Deserr<E> for TypedText {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        from_text(value, location, |text| match text.is_empty() {
            true => Err("must not be empty".to_owned()),
            false => Ok(Self(text)),
        })
    }
}

/// What a viewer is told, beside pictures.
#[derive(Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum AgentMessage {
    /// The first of all.
    Hello { control: bool },
    /// How the browser is: there are pictures while it runs.
    Browser {
        state: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Where the browser's pointer is now.
    Pointer { x: u32, y: u32, shown: bool },
    /// Something was copied there: this text, or what cannot be passed on.
    Clipboard {
        #[serde(skip_serializing_if = "Option::is_none")]
        text: Option<String>,
    },
    /// The keys that were to copy something have not.
    NothingCopied,
    /// Something that was asked for could not be done.
    Notice { message: Cow<'static, str> },
}

/// How an image is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Codec {
    Jpeg = 1,
    Png = 2,
    /// A PNG of the pointer; its place is the pixel that points.
    Pointer = 3,
}

/// Stands before each image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PictureHeader {
    pub codec: Codec,
    /// Of its frame: what is to be told when it is drawn.
    pub last: bool,
    /// Where it goes on the screen, in pixels.
    pub x: u16,
    pub y: u16,
    pub width: u16,
    pub height: u16,
    pub screen_width: u16,
    pub screen_height: u16,
    /// The frame's number.
    pub sequence: u32,
}

impl PictureHeader {
    pub const LEN: usize = 18;

    /// Network byte order throughout.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[0] = self.codec as u8;
        bytes[1] = u8::from(self.last);
        let places = [
            self.x,
            self.y,
            self.width,
            self.height,
            self.screen_width,
            self.screen_height,
        ];
        for (two, place) in bytes[2..14].as_chunks_mut::<2>().0.iter_mut().zip(places) {
            *two = place.to_be_bytes();
        }
        bytes[14..].copy_from_slice(&self.sequence.to_be_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use deserr::errors::JsonError;
    use serde_json::{Value, json};

    use super::*;

    fn read(message: Value) -> Result<ViewerMessage, JsonError> {
        deserr::deserialize(message)
    }

    #[test]
    fn what_the_page_says_is_understood() {
        for message in [
            json!({"type": "seen", "sequence": 7}),
            json!({"type": "pointer_move", "x": 1, "y": 2}),
            json!({"type": "pointer_down", "x": 1, "y": 2, "button": "left"}),
            json!({"type": "pointer_up", "x": 1, "y": 2, "button": "forward"}),
            json!({"type": "wheel", "x": 1, "y": 2, "delta_x": -3, "delta_y": 120}),
            json!({"type": "key_down", "code": "KeyA", "key": "ä"}),
            json!({"type": "key_up", "code": "KeyA"}),
            json!({"type": "holding"}),
            json!({"type": "release"}),
            json!({"type": "text", "text": "漢"}),
            json!({"type": "paste"}),
            json!({"type": "paste", "text": "words"}),
            json!({"type": "copy"}),
        ] {
            assert!(read(message.clone()).is_ok(), "{message}");
        }
    }

    #[test]
    fn what_it_does_not_say_is_refused() {
        for message in [
            json!(null),
            json!([]),
            json!({}),
            json!({"type": "fly"}),
            json!({"type": "seen", "sequence": -1}),
            json!({"type": "pointer_move", "x": 1}),
            json!({"type": "pointer_move", "x": "1", "y": 2}),
            json!({"type": "pointer_down", "x": 1, "y": 2, "button": "nose"}),
            json!({"type": "key_down", "code": "", "key": "a"}),
            json!({"type": "key_down", "code": "KeyA", "key": "a".repeat(33)}),
            json!({"type": "key_down", "code": "Key\u{7}", "key": "a"}),
            json!({"type": "text", "text": ""}),
        ] {
            assert!(read(message.clone()).is_err(), "{message}");
        }
    }

    #[test]
    fn what_is_beyond_all_screens_is_brought_nearer() {
        for (said, x) in [(-5, 0), (3, 3), (32_768, 32_767), (i64::MAX, 32_767)] {
            let message = json!({"type": "pointer_move", "x": said, "y": 0});
            let Ok(ViewerMessage::PointerMove { x: place, .. }) = read(message) else {
                panic!("{said} is refused");
            };
            assert_eq!(place.pixels(), x);
        }
    }

    #[test]
    fn a_header_is_as_the_page_reads_it() {
        let header = PictureHeader {
            codec: Codec::Png,
            last: true,
            x: 1,
            y: 2,
            width: 3,
            height: 4,
            screen_width: 0x0780,
            screen_height: 0x0438,
            sequence: 0x0102_0304,
        };
        assert_eq!(
            header.to_bytes(),
            [2, 1, 0, 1, 0, 2, 0, 3, 0, 4, 7, 0x80, 4, 0x38, 1, 2, 3, 4]
        );
    }
}

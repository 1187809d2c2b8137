//! Messages between the live view's page and the agent, over a WebSocket.
//!
//! Images are binary messages: an [`ImageHeader`], then the encoded image. All other messages are
//! JSON. The agent serves the page itself, so both have the same version.

use std::borrow::Cow;

use deserr::{DeserializeError, Deserr, IntoValue, Value, ValuePointerRef};
use serde::Serialize;

use super::{computer::MouseButton, field::from_text};

/// Bytes of a DOM key name, at most; the longest names are much shorter.
const MAX_KEY_NAME: usize = 32;
/// Pixels that a message turns the wheel by, at most.
const MAX_WHEEL_DELTA: i64 = 4_000;
/// The largest coordinate, beyond any screen.
const MAX_COORDINATE: i64 = 32_767;

/// A message of a viewer.
#[derive(Deserr)]
#[deserr(tag = "type", rename_all = lowercase)]
pub enum ViewerMessage {
    /// The viewer has drawn this frame and accepts the next.
    Seen { sequence: u32 },
    #[deserr(rename = "pointer_move")]
    PointerMove { x: Coordinate, y: Coordinate },
    #[deserr(rename = "pointer_down")]
    PointerDown {
        x: Coordinate,
        y: Coordinate,
        button: MouseButton,
    },
    #[deserr(rename = "pointer_up")]
    PointerUp {
        x: Coordinate,
        y: Coordinate,
        button: MouseButton,
    },
    /// The wheel was turned by this number of pixels, positive to the right and down.
    Wheel {
        x: Coordinate,
        y: Coordinate,
        delta_x: WheelDelta,
        delta_y: WheelDelta,
    },
    /// `KeyboardEvent`'s `code` and `key`.
    #[deserr(rename = "key_down")]
    KeyDown { code: KeyCode, key: KeyName },
    #[deserr(rename = "key_up")]
    KeyUp { code: KeyCode },
    /// Held keys and buttons are still held.
    Holding,
    /// All keys and buttons are released.
    Release,
    /// Text that was not typed key by key, such as the output of an input method.
    Text { text: ViewerText },
    /// Paste this text, or the content of the browser's clipboard.
    Paste {
        #[deserr(default)]
        text: Option<ViewerText>,
    },
    /// The viewer is about to send the keys that copy, and requests the copied text.
    Copy,
}

/// A coordinate in pixels, clamped to 0..=32767.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coordinate(i32);

impl Coordinate {
    #[must_use]
    pub fn pixels(self) -> i32 {
        self.0
    }
}

impl<E: DeserializeError> Deserr<E> for Coordinate {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        let pixels: i64 = Deserr::<E>::deserialize_from_value(value, location)?;
        Ok(Self(pixels.clamp(0, MAX_COORDINATE) as i32))
    }
}

/// A wheel movement in pixels, clamped to ±4000.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WheelDelta(i32);

impl WheelDelta {
    #[must_use]
    pub fn pixels(self) -> i32 {
        self.0
    }

    /// Returns the sum, clamped.
    #[must_use]
    pub fn saturating_add(self, other: Self) -> Self {
        Self::clamped(i64::from(self.0) + i64::from(other.0))
    }

    fn clamped(pixels: i64) -> Self {
        Self(pixels.clamp(-MAX_WHEEL_DELTA, MAX_WHEEL_DELTA) as i32)
    }
}

impl<E: DeserializeError> Deserr<E> for WheelDelta {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        let pixels: i64 = Deserr::<E>::deserialize_from_value(value, location)?;
        Ok(Self::clamped(pixels))
    }
}

/// `KeyboardEvent.code`: the physical key, such as `KeyA`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct KeyCode(String);

/// `KeyboardEvent.key`: a character, or a name such as `Enter`.
// Not `Debug`: typed text may be a secret.
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
        from_text(value, location, |text| check_key_name(text).map(Self))
    }
}

impl<E: DeserializeError> Deserr<E> for KeyName {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        from_text(value, location, |text| check_key_name(text).map(Self))
    }
}

fn check_key_name(text: String) -> Result<String, String> {
    if (1..=MAX_KEY_NAME).contains(&text.len()) && !text.chars().any(char::is_control) {
        Ok(text)
    } else {
        Err(format!(
            "must have 1 to {MAX_KEY_NAME} bytes without control characters"
        ))
    }
}

/// A non-empty text, bounded by the size of a message.
// Not `Debug`: typed text may be a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct ViewerText(String);

impl ViewerText {
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.len()
    }

    #[must_use]
    pub fn into_string(self) -> String {
        self.0
    }
}

impl<E: DeserializeError> Deserr<E> for ViewerText {
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

/// A message to a viewer, other than an image.
#[derive(Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum AgentMessage {
    /// The first message.
    Hello { control: bool },
    /// The state of the browser. Images are sent while it runs.
    Browser {
        state: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// The position of the browser's pointer.
    Pointer { x: u32, y: u32, shown: bool },
    /// The browser's clipboard changed: this text, or content that cannot be sent.
    Clipboard {
        #[serde(skip_serializing_if = "Option::is_none")]
        text: Option<String>,
    },
    /// The keys that copy had no effect on the clipboard.
    NothingCopied,
    /// A request of the viewer failed.
    Notice { message: Cow<'static, str> },
}

/// The encoding and the use of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Codec {
    Jpeg = 1,
    Png = 2,
    /// A PNG of the pointer; its position is the hot spot.
    Pointer = 3,
}

/// The header of each image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageHeader {
    pub codec: Codec,
    /// Whether this is the last image of its frame, which the viewer acknowledges.
    pub last: bool,
    /// Position on the screen, in pixels.
    pub x: u16,
    pub y: u16,
    pub width: u16,
    pub height: u16,
    pub screen_width: u16,
    pub screen_height: u16,
    /// The frame's number.
    pub sequence: u32,
}

impl ImageHeader {
    pub const LEN: usize = 18;

    /// Encodes the header in network byte order.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[0] = self.codec as u8;
        bytes[1] = u8::from(self.last);
        let fields = [
            self.x,
            self.y,
            self.width,
            self.height,
            self.screen_width,
            self.screen_height,
        ];
        for (slot, field) in bytes[2..14].as_chunks_mut::<2>().0.iter_mut().zip(fields) {
            *slot = field.to_be_bytes();
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
    fn messages_of_the_page_are_decoded() {
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
    fn other_messages_are_rejected() {
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
    fn coordinates_are_clamped() {
        for (sent, x) in [(-5, 0), (3, 3), (32_768, 32_767), (i64::MAX, 32_767)] {
            let message = json!({"type": "pointer_move", "x": sent, "y": 0});
            let Ok(ViewerMessage::PointerMove { x: actual, .. }) = read(message) else {
                panic!("{sent} is rejected");
            };
            assert_eq!(actual.pixels(), x);
        }
    }

    #[test]
    fn header_has_the_layout_that_the_page_reads() {
        let header = ImageHeader {
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

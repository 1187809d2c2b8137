//! Conversion between JSON text and the binary messages on Chromium's pipe.
//!
//! The binary form is the part of CBOR (RFC 8949) that Chromium's `crdtp` library uses. Chromium
//! itself converts JSON to it and back for clients of JSON, on the thread of its user interface.
//!
//! | JSON | binary |
//! |---|---|
//! | object, array | an envelope (tag 24, byte string with a 32-bit length), items up to a mark |
//! | string, name | text string if it is ASCII, otherwise byte string of UTF-16LE |
//! | integer of 32 bits | integer |
//! | another number | 64-bit float |
//! | base64 of binary data | tag 22, byte string; only from Chromium |
//!
//! No crate is used for it. The values themselves are a byte and a length each. The rest, which is
//! envelopes with lengths known afterwards and UTF-16 with lone surrogates, is in no crate, and
//! `serde_json` reads numbers less exactly than Chromium and no lone surrogates.

mod decode;
mod encode;
#[cfg(test)]
pub(super) mod tests;

pub(super) use self::{
    decode::{JsonWriter, Reader, Text},
    encode::{EncodeError, end_envelope, start_envelope, text, value_from_json},
};

/// The deepest nesting of objects and arrays in parameters that Chromium reads, and in a message
/// that it writes.
pub(super) const MAX_DEPTH: usize = 300;

/// The bytes before the 32-bit length of an envelope. Older versions of Chromium omit the second.
const ENVELOPE: [u8; 3] = [ENVELOPE_TAG, 0x18, ENVELOPE_BYTES];
const ENVELOPE_TAG: u8 = 0xd8;
const ENVELOPE_BYTES: u8 = 0x5a;
const MAP: u8 = 0xbf;
const ARRAY: u8 = 0x9f;
pub(super) const END: u8 = 0xff;
const FALSE: u8 = 0xf4;
const TRUE: u8 = 0xf5;
const NULL: u8 = 0xf6;
const DOUBLE: u8 = 0xfb;
const BINARY_TAG: u8 = 0xd6;

/// The upper three bits of a value's first byte. The lower ones are a number, or the size of the
/// one that follows.
const MAJOR_TYPE: u8 = 0xe0;
const UNSIGNED: u8 = 0 << 5;
const NEGATIVE: u8 = 1 << 5;
const BYTES: u8 = 2 << 5;
const TEXT: u8 = 3 << 5;
const IN_1_BYTE: u8 = 24;
const IN_2_BYTES: u8 = 25;
const IN_4_BYTES: u8 = 26;

/// The data is not in the binary form of Chromium.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("the message of Chromium is invalid")]
pub(super) struct Invalid;

/// The position of an envelope's contents.
#[derive(Debug, PartialEq)]
pub(super) struct Envelope {
    pub(super) start: usize,
    pub(super) length: usize,
}

impl Envelope {
    /// Reads the envelope that begins with these bytes. Returns `None` if they end within its
    /// length.
    ///
    /// # Errors
    /// Fails if no envelope begins with them.
    pub(super) fn at_start_of(bytes: &[u8]) -> Result<Option<Envelope>, Invalid> {
        let rest = match bytes {
            [ENVELOPE_TAG, 0x18, ENVELOPE_BYTES, rest @ ..]
            | [ENVELOPE_TAG, ENVELOPE_BYTES, rest @ ..] => rest,
            [] | [ENVELOPE_TAG] | [ENVELOPE_TAG, 0x18] => return Ok(None),
            _ => return Err(Invalid),
        };
        let length = rest.first_chunk::<4>();
        Ok(length.map(|length| Envelope {
            start: bytes.len() - rest.len() + length.len(),
            length: u32::from_be_bytes(*length) as usize,
        }))
    }
}

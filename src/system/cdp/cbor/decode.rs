//! CBOR from Chromium: a reader of values, and their conversion to JSON text.

use std::{
    borrow::Cow,
    io::{self, Write},
};

use base64::{Engine, prelude::BASE64_STANDARD};

use super::{
    ARRAY, BINARY_TAG, BYTES, DOUBLE, END, ENVELOPE_TAG, Envelope, FALSE, IN_1_BYTE, IN_2_BYTES,
    IN_4_BYTES, Invalid, MAJOR_TYPE, MAP, MAX_DEPTH, NEGATIVE, NULL, TEXT, TRUE, UNSIGNED,
};

/// The most bytes of a long value that are converted at once. A multiple of 3, so that base64 needs
/// no padding between two parts.
const PART: usize = 3 << 12;

/// A string of Chromium.
#[derive(Debug, PartialEq)]
pub(in crate::system::cdp) enum Text<'a> {
    Utf8(&'a [u8]),
    /// The code units, which may contain lone surrogates, with their lower byte first.
    Utf16(&'a [u8]),
}

/// Reads values one after another.
#[derive(Clone, Copy, Debug)]
pub(in crate::system::cdp) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    #[cfg(test)]
    pub(in crate::system::cdp) fn new(rest: &'a [u8]) -> Self {
        Reader { rest }
    }

    /// Returns a reader of the members of an object: its envelope's contents.
    pub(in crate::system::cdp) fn of_object(contents: &'a [u8]) -> Result<Self, Invalid> {
        match contents {
            [MAP, rest @ ..] => Ok(Reader { rest }),
            _ => Err(Invalid),
        }
    }

    /// Returns the name of the next member, or `None` at the end of the object.
    pub(in crate::system::cdp) fn name(&mut self) -> Result<Option<Text<'a>>, Invalid> {
        match self.is_at_end()? {
            true => Ok(None),
            false => self.text().map(Some),
        }
    }

    /// Returns the members of the object that is the member with this name, or `None` if there is
    /// no such object.
    pub(in crate::system::cdp) fn object(mut self, name: &[u8]) -> Result<Option<Self>, Invalid> {
        while let Some(other) = self.name()? {
            if other == Text::Utf8(name) && self.peek()? == ENVELOPE_TAG {
                let contents = self.envelope()?;
                return Ok(Reader::of_object(contents).ok());
            }
            self.skip()?;
        }
        Ok(None)
    }

    pub(in crate::system::cdp) fn integer(&mut self) -> Result<i32, Invalid> {
        let (major, number) = self.head()?;
        let number = i32::try_from(number).map_err(|_| Invalid)?;
        match major {
            UNSIGNED => Ok(number),
            NEGATIVE => Ok(!number),
            _ => Err(Invalid),
        }
    }

    pub(in crate::system::cdp) fn text(&mut self) -> Result<Text<'a>, Invalid> {
        let (major, length) = self.head()?;
        let bytes = self.take(length)?;
        match major {
            TEXT => Ok(Text::Utf8(bytes)),
            BYTES if length % 2 == 0 => Ok(Text::Utf16(bytes)),
            _ => Err(Invalid),
        }
    }

    /// Skips the next value. The contents of an envelope are not read.
    pub(in crate::system::cdp) fn skip(&mut self) -> Result<(), Invalid> {
        match self.peek()? {
            ENVELOPE_TAG => self.envelope().map(drop),
            FALSE | TRUE | NULL => self.take(1).map(drop),
            DOUBLE => self.double().map(drop),
            BINARY_TAG => self.binary().map(drop),
            first if matches!(first & MAJOR_TYPE, UNSIGNED | NEGATIVE) => self.head().map(drop),
            _ => self.text().map(drop),
        }
    }

    fn peek(&self) -> Result<u8, Invalid> {
        self.rest.first().copied().ok_or(Invalid)
    }

    /// Whether the object or array ends here. Nothing may come after its end.
    fn is_at_end(&self) -> Result<bool, Invalid> {
        match self.rest {
            [END] => Ok(true),
            [] | [END, ..] => Err(Invalid),
            _ => Ok(false),
        }
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], Invalid> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(Invalid)?;
        self.rest = rest;
        Ok(taken)
    }

    fn chunk<const N: usize>(&mut self) -> Result<[u8; N], Invalid> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(Invalid)?;
        self.rest = rest;
        Ok(*taken)
    }

    /// Returns the major type of a value and its number.
    fn head(&mut self) -> Result<(u8, usize), Invalid> {
        let [first] = self.chunk()?;
        let number = match first & !MAJOR_TYPE {
            number @ 0..IN_1_BYTE => usize::from(number),
            IN_1_BYTE => usize::from(u8::from_be_bytes(self.chunk()?)),
            IN_2_BYTES => usize::from(u16::from_be_bytes(self.chunk()?)),
            IN_4_BYTES => u32::from_be_bytes(self.chunk()?) as usize,
            _ => return Err(Invalid),
        };
        Ok((first & MAJOR_TYPE, number))
    }

    fn envelope(&mut self) -> Result<&'a [u8], Invalid> {
        let envelope = Envelope::at_start_of(self.rest)?.ok_or(Invalid)?;
        self.take(envelope.start)?;
        self.take(envelope.length)
    }

    fn double(&mut self) -> Result<f64, Invalid> {
        self.take(1)?;
        Ok(f64::from_be_bytes(self.chunk()?))
    }

    fn binary(&mut self) -> Result<&'a [u8], Invalid> {
        self.take(1)?;
        match self.head()? {
            (BYTES, length) => self.take(length),
            _ => Err(Invalid),
        }
    }
}

/// Writes values as JSON text, as Chromium does for a client of JSON. Fails with
/// `io::ErrorKind::InvalidData` if a value is invalid, and with `io::ErrorKind::FileTooLarge` if
/// the text becomes too long.
#[derive(Debug)]
pub(in crate::system::cdp) struct JsonWriter<'a> {
    pub(in crate::system::cdp) text: &'a mut Vec<u8>,
    /// The most bytes of text.
    pub(in crate::system::cdp) max_length: usize,
}

impl Write for JsonWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.check_room(bytes.len())?;
        self.text.extend_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl JsonWriter<'_> {
    /// Fails if there is no room for so many bytes. A long string is rejected before any of it is
    /// converted, which takes long.
    fn check_room(&self, length: usize) -> io::Result<()> {
        if length > self.max_length.saturating_sub(self.text.len()) {
            let error = "the message is too long";
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, error));
        }
        Ok(())
    }

    /// Writes the next value.
    pub(in crate::system::cdp) fn value(&mut self, reader: &mut Reader) -> io::Result<()> {
        self.nested_value(reader, 0)
    }

    fn nested_value(&mut self, reader: &mut Reader, depth: usize) -> io::Result<()> {
        match reader.peek()? {
            ENVELOPE_TAG if depth == MAX_DEPTH => Err(Invalid.into()),
            ENVELOPE_TAG => match reader.envelope()? {
                [MAP, rest @ ..] => self.object(Reader { rest }, depth + 1),
                [ARRAY, rest @ ..] => self.array(Reader { rest }, depth + 1),
                _ => Err(Invalid.into()),
            },
            value @ (FALSE | TRUE | NULL) => {
                reader.take(1)?;
                self.write_all(match value {
                    FALSE => b"false",
                    TRUE => b"true",
                    _ => b"null",
                })
            }
            DOUBLE => self.double(reader.double()?),
            BINARY_TAG => self.binary(reader.binary()?),
            first if matches!(first & MAJOR_TYPE, UNSIGNED | NEGATIVE) => {
                let integer = reader.integer()?;
                Ok(serde_json::to_writer(self, &integer)?)
            }
            _ => self.string(&reader.text()?),
        }
    }

    fn object(&mut self, mut members: Reader, depth: usize) -> io::Result<()> {
        let mut separator: &[u8] = b"{";
        while let Some(name) = members.name()? {
            self.write_all(separator)?;
            separator = b",";
            self.string(&name)?;
            self.write_all(b":")?;
            self.nested_value(&mut members, depth)?;
        }
        self.write_all(if separator == b"{" { b"{}" } else { b"}" })
    }

    fn array(&mut self, mut values: Reader, depth: usize) -> io::Result<()> {
        let mut separator: &[u8] = b"[";
        while !values.is_at_end()? {
            self.write_all(separator)?;
            separator = b",";
            self.nested_value(&mut values, depth)?;
        }
        self.write_all(if separator == b"[" { b"[]" } else { b"]" })
    }

    /// Writes integers without a fraction, and numbers that are not finite as `null`.
    fn double(&mut self, number: f64) -> io::Result<()> {
        let integer = number as i64;
        // The conversion saturates.
        let is_integer = integer as f64 == number && integer != i64::MAX;
        match is_integer {
            true => serde_json::to_writer(self, &integer)?,
            false => serde_json::to_writer(self, &number)?,
        }
        Ok(())
    }

    fn binary(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.check_room(bytes.len())?;
        let mut encoded = [0; PART / 3 * 4];
        self.write_all(b"\"")?;
        for part in bytes.chunks(PART) {
            let length = BASE64_STANDARD.encode_slice(part, &mut encoded);
            let length = length.map_err(io::Error::other)?;
            self.write_all(&encoded[..length])?;
        }
        self.write_all(b"\"")
    }

    /// Writes a string, or the name of a member.
    pub(in crate::system::cdp) fn string(&mut self, text: &Text) -> io::Result<()> {
        match text {
            Text::Utf8(bytes) => {
                self.check_room(bytes.len())?;
                let text = match std::str::from_utf8(bytes) {
                    Ok(text) => Cow::Borrowed(text),
                    Err(_) => String::from_utf8_lossy(bytes),
                };
                Ok(serde_json::to_writer(self, &text)?)
            }
            Text::Utf16(bytes) => self.utf16(bytes),
        }
    }

    fn utf16(&mut self, bytes: &[u8]) -> io::Result<()> {
        let (units, _) = bytes.as_chunks();
        self.check_room(units.len())?;
        let units = units.iter().map(|unit| u16::from_le_bytes(*unit));
        self.write_all(b"\"")?;
        for char in char::decode_utf16(units) {
            match char {
                Ok(char @ ('"' | '\\')) => self.write_all(&[b'\\', char as u8])?,
                Ok(char @ '\0'..' ') => write!(self, "\\u{:04x}", char as u32)?,
                Ok(char) => self.write_all(char.encode_utf8(&mut [0; 4]).as_bytes())?,
                Err(lone) => write!(self, "\\u{:04x}", lone.unpaired_surrogate())?,
            }
        }
        self.write_all(b"\"")
    }
}

impl From<Invalid> for io::Error {
    fn from(error: Invalid) -> Self {
        io::Error::new(io::ErrorKind::InvalidData, error)
    }
}

//! JSON text to CBOR, in one pass.

use super::{
    ARRAY, BYTES, DOUBLE, END, ENVELOPE, FALSE, IN_1_BYTE, IN_2_BYTES, IN_4_BYTES, MAP, MAX_DEPTH,
    NEGATIVE, NULL, TEXT, TRUE, UNSIGNED,
};

/// The space of an envelope's length.
const LENGTH_SIZE: usize = size_of::<u32>();

/// Why Chromium would reject JSON text.
#[derive(Debug, PartialEq, thiserror::Error)]
pub(in crate::system::cdp) enum EncodeError {
    #[error("JSON: params nest too deep")]
    TooDeep,
    #[error("JSON: invalid number")]
    Number,
    #[error("JSON: invalid text")]
    Syntax,
    #[error("the command is over 256 MiB in CBOR")]
    TooLong,
}

/// Appends the start of an envelope with an object, and returns where it begins.
pub(in crate::system::cdp) fn start_envelope(out: &mut Vec<u8>) -> usize {
    start_container(MAP, out)
}

fn start_container(kind: u8, out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.extend_from_slice(&ENVELOPE);
    out.extend_from_slice(&[0, 0, 0, 0, kind]);
    start
}

/// Appends the end of the envelope that begins at `start`.
pub(in crate::system::cdp) fn end_envelope(out: &mut Vec<u8>, start: usize) {
    out.push(END);
    let contents = start + ENVELOPE.len() + LENGTH_SIZE;
    let length = (out.len() - contents) as u32;
    out[contents - LENGTH_SIZE..contents].copy_from_slice(&length.to_be_bytes());
}

/// Appends a string.
pub(in crate::system::cdp) fn text(text: &str, out: &mut Vec<u8>) {
    match text.is_ascii() {
        true => {
            head(TEXT, text.len(), out);
            out.extend_from_slice(text.as_bytes());
        }
        false => {
            head(BYTES, text.encode_utf16().count() * 2, out);
            out.extend(text.encode_utf16().flat_map(u16::to_le_bytes));
        }
    }
}

/// Appends the first bytes of a value: its major type and a number.
fn head(major: u8, number: usize, out: &mut Vec<u8>) {
    match number {
        0..24 => out.push(major | number as u8),
        24..=0xff => out.extend_from_slice(&[major | IN_1_BYTE, number as u8]),
        0x100..=0xffff => {
            out.push(major | IN_2_BYTES);
            out.extend_from_slice(&(number as u16).to_be_bytes());
        }
        _ => {
            out.push(major | IN_4_BYTES);
            out.extend_from_slice(&(number as u32).to_be_bytes());
        }
    }
}

/// Appends the value of a valid JSON text.
///
/// # Errors
/// Fails if a number is infinite, objects and arrays nest deeper than [`MAX_DEPTH`], or one of them
/// begins after more than `max_length` bytes of CBOR. An empty one has four times as many bytes in
/// CBOR.
pub(in crate::system::cdp) fn value_from_json(
    json: &str,
    max_length: usize,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    let mut encoder = Encoder {
        json,
        at: 0,
        max_start: out.len().saturating_add(max_length),
        out,
    };
    encoder.value(0)
}

struct Encoder<'a> {
    json: &'a str,
    at: usize,
    /// The last position at which an object or array may begin.
    max_start: usize,
    out: &'a mut Vec<u8>,
}

impl Encoder<'_> {
    /// Returns the next byte that is no white space, or 0 at the end.
    fn peek(&mut self) -> u8 {
        let rest = &self.json.as_bytes()[self.at..];
        let space = |byte: &&u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        self.at += rest.iter().take_while(space).count();
        let next = self.json.as_bytes().get(self.at);
        next.copied().unwrap_or_default()
    }

    fn value(&mut self, depth: usize) -> Result<(), EncodeError> {
        match self.peek() {
            b'{' | b'[' if depth == MAX_DEPTH => Err(EncodeError::TooDeep),
            b'{' => self.container(MAP, depth + 1),
            b'[' => self.container(ARRAY, depth + 1),
            b'"' => self.string(),
            b't' => self.word("true", TRUE),
            b'f' => self.word("false", FALSE),
            b'n' => self.word("null", NULL),
            _ => self.number(),
        }
    }

    fn container(&mut self, kind: u8, depth: usize) -> Result<(), EncodeError> {
        if self.out.len() > self.max_start {
            return Err(EncodeError::TooLong);
        }
        let start = start_container(kind, self.out);
        self.at += 1;
        while !matches!(self.peek(), b'}' | b']') {
            if kind == MAP {
                self.string()?;
                if self.peek() != b':' {
                    return Err(EncodeError::Syntax);
                }
                self.at += 1;
            }
            self.value(depth)?;
            if self.peek() == b',' {
                self.at += 1;
            }
        }
        self.at += 1;
        end_envelope(self.out, start);
        Ok(())
    }

    fn word(&mut self, word: &str, value: u8) -> Result<(), EncodeError> {
        if !self.json[self.at..].starts_with(word) {
            return Err(EncodeError::Syntax);
        }
        self.at += word.len();
        self.out.push(value);
        Ok(())
    }

    /// Appends a number. Like Chromium, writes each integer of 32 bits as one, in any notation.
    fn number(&mut self) -> Result<(), EncodeError> {
        let of_number =
            |byte: &&u8| byte.is_ascii_digit() || matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E');
        let rest = &self.json.as_bytes()[self.at..];
        let end = self.at + rest.iter().take_while(of_number).count();
        let number: Option<f64> = self.json[self.at..end].parse().ok();
        let number = number
            .filter(|number| number.is_finite())
            .ok_or(EncodeError::Number)?;
        self.at = end;
        let integer = number as i32;
        if f64::from(integer) != number {
            self.out.push(DOUBLE);
            self.out.extend_from_slice(&number.to_be_bytes());
        } else if integer >= 0 {
            head(UNSIGNED, integer as usize, self.out);
        } else {
            head(NEGATIVE, !integer as usize, self.out);
        }
        Ok(())
    }

    fn string(&mut self) -> Result<(), EncodeError> {
        if self.peek() != b'"' {
            return Err(EncodeError::Syntax);
        }
        let start = self.at + 1;
        let (length, has_escapes) =
            scan_string(&self.json.as_bytes()[start..]).ok_or(EncodeError::Syntax)?;
        self.at = start + length + 1;
        let raw = &self.json[start..start + length];
        if !has_escapes {
            text(raw, self.out);
            return Ok(());
        }
        if let Some(escapes) = count_ascii_escapes(raw) {
            head(TEXT, raw.len() - escapes, self.out);
            unescape_ascii(raw, self.out);
            return Ok(());
        }
        let (mut count, mut is_ascii) = (0, true);
        for unit in units(raw) {
            count += 1;
            is_ascii &= unit < 0x80;
        }
        if is_ascii {
            head(TEXT, count, self.out);
            self.out.extend(units(raw).map(|unit| unit as u8));
        } else {
            head(BYTES, count * 2, self.out);
            self.out.extend(units(raw).flat_map(u16::to_le_bytes));
        }
        Ok(())
    }
}

/// Returns the length of the string up to its quote, and whether it contains escapes.
fn scan_string(bytes: &[u8]) -> Option<(usize, bool)> {
    let mut length = 0;
    let mut has_escapes = false;
    loop {
        length += memchr::memchr2(b'"', b'\\', bytes.get(length..)?)?;
        if bytes[length] == b'"' {
            return Some((length, has_escapes));
        }
        has_escapes = true;
        length += 2;
    }
}

/// Returns the number of escapes, unless a character is not ASCII or given by its number.
fn count_ascii_escapes(raw: &str) -> Option<usize> {
    let mut rest = raw.is_ascii().then_some(raw.as_bytes())?;
    let mut count = 0;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        if rest.get(at + 1) == Some(&b'u') {
            return None;
        }
        count += 1;
        rest = rest.get(at + 2..)?;
    }
    Some(count)
}

/// Appends a string whose escapes were counted. Long parts without escapes are copied at once.
fn unescape_ascii(raw: &str, out: &mut Vec<u8>) {
    let mut rest = raw.as_bytes();
    while let Some(at) = memchr::memchr(b'\\', rest) {
        out.extend_from_slice(&rest[..at]);
        out.push(unescaped(rest[at + 1]));
        rest = &rest[at + 2..];
    }
    out.extend_from_slice(rest);
}

/// Returns the character that an escape with this letter is for.
fn unescaped(letter: u8) -> u8 {
    match letter {
        b'b' => 0x08,
        b'f' => 0x0c,
        b'n' => 0x0a,
        b'r' => 0x0d,
        b't' => 0x09,
        other => other,
    }
}

/// Returns the UTF-16 code units of a valid string with escapes.
fn units(raw: &str) -> impl Iterator<Item = u16> {
    let mut chars = raw.chars();
    let mut low_surrogate = None;
    std::iter::from_fn(move || {
        if let Some(unit) = low_surrogate.take() {
            return Some(unit);
        }
        match chars.next()? {
            '\\' => Some(match chars.next()? {
                'u' => {
                    let digits = chars.as_str().get(..4).unwrap_or_default();
                    chars.nth(3);
                    u16::from_str_radix(digits, 16).unwrap_or_default()
                }
                letter => unescaped(letter as u8).into(),
            }),
            other => {
                let mut pair = [0; 2];
                let encoded = other.encode_utf16(&mut pair);
                low_surrogate = encoded.get(1).copied();
                Some(encoded[0])
            }
        }
    })
}

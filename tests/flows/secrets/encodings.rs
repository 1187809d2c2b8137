//! The forms in which an output may have a secret.

use std::collections::BTreeSet;

use base64::{
    Engine,
    engine::general_purpose::{GeneralPurpose, STANDARD_NO_PAD, URL_SAFE_NO_PAD},
};
use bytes::Bytes;
use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, percent_encode, percent_encode_byte};
use serde_json::Value;
use url::form_urlencoded::byte_serialize;

/// The characters that are encoded in the query of a URL, in its path, and in one segment of that.
const QUERY: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'#').add(b'<').add(b'>');
const PATH: &AsciiSet = &QUERY.add(b'?').add(b'`').add(b'{').add(b'}');
const SEGMENT: &AsciiSet = &PATH.add(b'/').add(b'%');
/// The characters that JavaScript's `encodeURIComponent` encodes.
const COMPONENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'!')
    .remove(b'~')
    .remove(b'*')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')');

/// A value that the system under test has, and that may be in none of its outputs.
#[derive(Debug, Clone)]
pub(super) struct PlantedSecret {
    pub(super) name: String,
    pub(super) bytes: Vec<u8>,
}

impl PlantedSecret {
    pub(super) fn new(name: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        let (name, bytes) = (name.into(), bytes.into());
        let is_long = bytes.len() >= 16 || bytes.len() == 8 && bytes.iter().all(u8::is_ascii_digit);
        assert!(is_long, "{name} is too short to search for");
        Self { name, bytes }
    }

    /// Returns the secret as a text, which is hexadecimal digits for a binary one.
    pub(super) fn printable(&self) -> String {
        let text = String::from_utf8(self.bytes.clone());
        text.unwrap_or_else(|_| hex(&self.bytes))
    }

    /// Returns the different forms of the secret, each with its name.
    pub(super) fn forms(&self) -> Vec<(&'static str, Vec<u8>)> {
        let bytes = &self.bytes[..];
        let mut forms = vec![
            ("plain", bytes.to_vec()),
            ("hexadecimal", hex(bytes).into()),
            ("hexadecimal", hex(bytes).to_uppercase().into()),
            ("numbers", numbers(bytes, ", ").into()),
            ("numbers", numbers(bytes, ",").into()),
            ("escaped bytes", bytes.escape_ascii().to_string().into()),
            ("escaped bytes", debug_of_bytes(bytes).into()),
        ];
        for before in 0..3 {
            for engine in [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
                forms.push(("base64", base64_part(bytes, before, engine)));
            }
        }
        for encoded in percent_encoded(bytes) {
            forms.push(("percent-encoded", lower_case_escapes(&encoded).into()));
            forms.push(("percent-encoded", encoded.into()));
        }
        if let Ok(text) = str::from_utf8(bytes) {
            let once = json(text);
            forms.extend([
                ("JSON in JSON", json(&once).into()),
                ("JSON", json_in_ascii(&once).into()),
                ("JSON", once.into()),
                ("UTF-16LE", utf16(text)),
            ]);
        }
        let mut known = BTreeSet::new();
        forms.retain(|(_, form)| known.insert(form.clone()));
        forms
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the bytes of an even number of hexadecimal digits.
pub(super) fn from_hex(digits: &str) -> Vec<u8> {
    let pairs = digits.as_bytes().chunks_exact(2);
    let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
    pairs.map(byte).collect()
}

/// Returns the decimal numbers of bytes, as Rust and JSON print a list of them.
fn numbers(bytes: &[u8], separator: &str) -> String {
    let numbers: Vec<_> = bytes.iter().map(u8::to_string).collect();
    numbers.join(separator)
}

/// Returns the content of a byte string, as it is printed by `Bytes`.
fn debug_of_bytes(bytes: &[u8]) -> String {
    let quoted = format!("{:?}", Bytes::copy_from_slice(bytes));
    quoted["b\"".len()..quoted.len() - 1].to_owned()
}

/// Returns the characters that these bytes alone determine in base64, if as many other bytes are
/// encoded before them.
fn base64_part(bytes: &[u8], before: usize, engine: &GeneralPurpose) -> Vec<u8> {
    let encoded = engine.encode([&vec![0; before], bytes].concat());
    let [first, end] = [(before * 8).div_ceil(6), (before + bytes.len()) * 8 / 6];
    encoded.as_bytes()[first..end].to_vec()
}

fn percent_encoded(bytes: &[u8]) -> Vec<String> {
    let sets = [NON_ALPHANUMERIC, COMPONENT, SEGMENT, PATH, QUERY];
    let encoded = sets.map(|set| percent_encode(bytes, set).to_string());
    let every_byte = bytes.iter().map(|byte| percent_encode_byte(*byte));
    let others = [every_byte.collect(), byte_serialize(bytes).collect()];
    encoded.into_iter().chain(others).collect()
}

/// Returns the text with lower-case hexadecimal digits after each `%`.
fn lower_case_escapes(text: &str) -> String {
    let mut parts = text.split('%');
    let mut lower = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (digits, rest) = part.split_at(part.len().min(2));
        lower.extend(["%", &digits.to_lowercase(), rest]);
    }
    lower
}

/// Returns the content of a JSON string.
fn json(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

/// Returns the content of a JSON string without other characters than ASCII.
fn json_in_ascii(json: &str) -> String {
    let mut ascii = String::new();
    for c in json.chars() {
        match c {
            c if c.is_ascii() => ascii.push(c),
            c => {
                let units = c.encode_utf16(&mut [0; 2]).to_vec();
                ascii.extend(units.iter().map(|unit| format!("\\u{unit:04x}")));
            }
        }
    }
    ascii
}

fn utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

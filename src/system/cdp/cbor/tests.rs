//! Conversion in both directions.

use std::io;

use proptest::{collection::vec, prelude::*};
use serde_json::{Value, json, value::RawValue};

use super::*;

/// Returns the value of a JSON text.
pub(in crate::system::cdp) fn value_to_cbor(json: &str) -> Vec<u8> {
    let mut cbor = Vec::new();
    value_from_json(json, usize::MAX, &mut cbor).unwrap();
    cbor
}

fn value_to_json(cbor: &[u8], max_length: usize) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let mut json = JsonWriter {
        text: &mut text,
        max_length,
    };
    json.value(&mut Reader::new(cbor))?;
    Ok(text)
}

/// Returns the JSON text of an object: its envelope's contents.
pub(in crate::system::cdp) fn object_to_json_text(contents: &[u8]) -> io::Result<Vec<u8>> {
    let length = (contents.len() as u32).to_be_bytes();
    value_to_json(&[&ENVELOPE[..], &length, contents].concat(), usize::MAX)
}

pub(in crate::system::cdp) fn object_to_json(contents: &[u8]) -> Value {
    serde_json::from_slice(&object_to_json_text(contents).unwrap()).unwrap()
}

/// Returns the JSON text that a client receives for the value of another one.
fn round_trip(json: &str) -> String {
    String::from_utf8(value_to_json(&value_to_cbor(json), usize::MAX).unwrap()).unwrap()
}

#[test]
fn values_are_encoded_as_chromium_does() {
    for (json, expected) in [
        ("null", &[0xf6][..]),
        (" true ", &[0xf5]),
        ("false", &[0xf4]),
        ("0", &[0]),
        ("-0", &[0]),
        ("-0.0", &[0]),
        ("23", &[0x17]),
        ("24", &[0x18, 24]),
        ("255", &[0x18, 255]),
        ("2.56E2", &[0x19, 1, 0]),
        ("65536", &[0x1a, 0, 1, 0, 0]),
        ("2147483647", &[0x1a, 0x7f, 0xff, 0xff, 0xff]),
        ("-1", &[0x20]),
        ("-2147483648", &[0x3a, 0x7f, 0xff, 0xff, 0xff]),
        ("2147483648", &[0xfb, 0x41, 0xe0, 0, 0, 0, 0, 0, 0]),
        ("1.5", &[0xfb, 0x3f, 0xf8, 0, 0, 0, 0, 0, 0]),
        ("1e-999", &[0]),
        ("\"\"", &[0x60]),
        (r#""a\n\"\u0041\/""#, b"\x65a\n\"A/"),
        ("\"é\"", &[0x42, 0xe9, 0]),
        (r#""\u00e9""#, &[0x42, 0xe9, 0]),
        ("\"😀\"", &[0x44, 0x3d, 0xd8, 0, 0xde]),
        (
            r#""😀\ud800a""#,
            &[0x48, 0x3d, 0xd8, 0, 0xde, 0, 0xd8, b'a', 0],
        ),
        ("[ ]", &[0xd8, 0x18, 0x5a, 0, 0, 0, 2, 0x9f, 0xff]),
        (
            "{\"a\" : 1 ,\"a\":[2]\n}",
            &[
                0xd8, 0x18, 0x5a, 0, 0, 0, 17, 0xbf, 0x61, b'a', 1, 0x61, b'a', 0xd8, 0x18, 0x5a,
                0, 0, 0, 3, 0x9f, 2, 0xff, 0xff,
            ],
        ),
    ] {
        assert_eq!(value_to_cbor(json), expected, "{json}");
    }
}

#[test]
fn text_that_chromium_would_reject_is_an_error() {
    let deep = |depth| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    for (json, error) in [
        ("1e999", EncodeError::Number),
        (&deep(MAX_DEPTH + 1), EncodeError::TooDeep),
        ("", EncodeError::Number),
        ("[1", EncodeError::Number),
        ("{1:2}", EncodeError::Syntax),
        ("{\"a\"}", EncodeError::Syntax),
        ("\"\\", EncodeError::Syntax),
        ("tru", EncodeError::Syntax),
    ] {
        assert_eq!(
            value_from_json(json, usize::MAX, &mut Vec::new()),
            Err(error),
            "{json}"
        );
    }
    assert_eq!(round_trip(&deep(MAX_DEPTH)), deep(MAX_DEPTH));
    let mut cbor = vec![0; 1000];
    let too_long = value_from_json("[1,[]]", 8, &mut cbor);
    assert_eq!(too_long, Err(EncodeError::TooLong));
    assert_eq!(value_from_json("[1,[]]", 9, &mut vec![0; 1000]), Ok(()));
}

#[test]
fn values_of_chromium_are_the_json_that_it_writes_itself() {
    let double = |number: f64| [&[0xfb][..], &number.to_be_bytes()].concat();
    for (cbor, expected) in [
        (double(1.0), "1"),
        (double(-0.0), "0"),
        (double(0.1), "0.1"),
        (double(1e21), "1e+21"),
        (double(-1.5e300), "-1.5e+300"),
        (double(5e-324), "5e-324"),
        (double(9_007_199_254_740_992.0), "9007199254740992"),
        (double(f64::NAN), "null"),
        (double(f64::INFINITY), "null"),
        (vec![0xd6, 0x43, 0xff, 0, 1], "\"/wAB\""),
        (vec![0xd6, 0x41, 0xff], "\"/w==\""),
        (vec![0xd6, 0x40], "\"\""),
        (b"\x63a\0\"".to_vec(), r#""a\u0000\"""#),
        (vec![0x62, 0xc3, 0xa9], "\"é\""),
        (vec![0x61, 0xff], "\"\u{fffd}\""),
        (vec![0x44, 0x3d, 0xd8, 0, 0xde], "\"😀\""),
        (vec![0x44, 0, 0xde, 0x3d, 0xd8], r#""\ude00\ud83d""#),
        (vec![0x46, 0xe9, 0, b'"', 0, 1, 0], r#""é\"\u0001""#),
        // As older versions of Chromium write an envelope.
        (vec![0xd8, 0x5a, 0, 0, 0, 3, 0x9f, 7, 0xff], "[7]"),
    ] {
        let text = value_to_json(&cbor, usize::MAX).unwrap();
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }
}

#[test]
fn long_binary_data_is_one_base64_text() {
    let bytes: Vec<u8> = (0..100_000).map(|index| (index % 251) as u8).collect();
    let cbor = [&[0xd6, 0x5a, 0, 1, 0x86, 0xa0], &bytes[..]].concat();
    use base64::{Engine, prelude::BASE64_STANDARD};
    let expected = json!(BASE64_STANDARD.encode(&bytes)).to_string();
    assert!(value_to_json(&cbor, usize::MAX).unwrap() == expected.as_bytes());
}

#[test]
fn invalid_values_are_errors() {
    let envelope = |contents: &[u8]| {
        let length = (contents.len() as u32).to_be_bytes();
        [&ENVELOPE[..], &length, contents].concat()
    };
    let deep = (0..=MAX_DEPTH).fold(vec![0], |inner, _| {
        envelope(&[&[ARRAY], &inner[..], &[END]].concat())
    });
    for cbor in [
        vec![],
        vec![END],
        vec![0x1a, 0x80, 0, 0, 0],
        vec![0x1b, 0, 0, 0, 0, 0, 0, 0, 1],
        vec![0x62, b'a'],
        vec![0x41, 0],
        vec![0x7b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
        vec![0xd6, 0x61, b'a'],
        vec![0xfb, 0],
        // Objects and arrays have an envelope, with nothing else in it.
        vec![ARRAY, END],
        envelope(&[]),
        envelope(&[7]),
        envelope(&[ARRAY, 7]),
        envelope(&[ARRAY, END, END]),
        envelope(&[MAP, 0x61, b'a', END]),
        envelope(&[MAP, 1, 1, END]),
        [&ENVELOPE[..], &[0, 0, 0, 9, ARRAY, END]].concat(),
        deep,
    ] {
        let error = value_to_json(&cbor, usize::MAX).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{cbor:x?}");
    }
}

#[test]
fn text_stops_at_its_bound() {
    for json in [
        "[1,2,3,4,5]",
        "\"12345678\"",
        "\"é2345678\"",
        "{\"a\":null}",
    ] {
        let cbor = value_to_cbor(json);
        assert!(value_to_json(&cbor, json.len()).is_ok(), "{json}");
        let error = value_to_json(&cbor, json.len() - 1).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge, "{json}");
    }
}

/// A string in JSON with escapes, also of lone surrogates, and the code units that it stands for.
fn string() -> impl Strategy<Value = (String, Vec<u16>)> {
    let escaped = any::<u16>().prop_map(|unit| (format!("\\u{unit:04x}"), vec![unit]));
    let plain = any::<char>()
        .prop_filter("needs an escape", |char| {
            !matches!(char, '"' | '\\' | '\0'..' ')
        })
        .prop_map(|char| (char.to_string(), char.encode_utf16(&mut [0; 2]).to_vec()));
    let short = prop::sample::select(vec![("\\n", 10), ("\\\"", 34), ("\\\\", 92), ("a", 97)]);
    let short = short.prop_map(|(text, unit)| (text.to_owned(), vec![unit]));
    vec(prop_oneof![escaped, plain, short], 0..12).prop_map(|parts| {
        let (texts, units): (Vec<String>, Vec<Vec<u16>>) = parts.into_iter().unzip();
        (format!("\"{}\"", texts.concat()), units.concat())
    })
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        any::<f64>().prop_map(|number| match number.fract() == 0.0 {
            // Written as integers.
            true => json!(number as i64 >> 12),
            false => json!(number),
        }),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 64, 6, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..6).prop_map(Value::from),
            vec((any::<String>(), inner), 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn any_value_is_unchanged_after_both_conversions(value in value()) {
        let json = value.to_string();
        let parse = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        // Both are parsed because serde_json may change the last bit of a number.
        prop_assert_eq!(parse(&round_trip(&json)), parse(&json));
    }

    #[test]
    fn any_number_keeps_its_bits(number in any::<f64>()) {
        let text = round_trip(&json!(number).to_string());
        prop_assert_eq!(text.parse::<f64>().unwrap(), number);
    }

    #[test]
    fn any_string_keeps_its_code_units((text, units) in string()) {
        let written = round_trip(&text);
        let again = value_to_cbor(&written);
        prop_assert_eq!(&again, &value_to_cbor(&text));
        let written = match Reader::new(&again).text().unwrap() {
            Text::Utf8(bytes) => bytes.iter().copied().map(u16::from).collect(),
            Text::Utf16(bytes) => {
                let (pairs, _) = bytes.as_chunks();
                pairs.iter().map(|pair| u16::from_le_bytes(*pair)).collect::<Vec<u16>>()
            }
        };
        prop_assert_eq!(written, units);
    }

    #[test]
    fn any_bytes_are_a_value_or_an_error(bytes in vec(any::<u8>(), 0..64)) {
        const MAX: usize = 100;
        if let Ok(text) = value_to_json(&bytes, MAX) {
            prop_assert!(text.len() <= MAX);
            prop_assert!(serde_json::from_slice::<&RawValue>(&text).is_ok());
        }
        let mut reader = Reader::new(&bytes);
        while reader.skip().is_ok() {}
    }

    #[test]
    fn any_text_is_encoded_or_an_error(text in "[\\[\\]{}\",:\\\\u0-9a-f\\-é ]{0,40}") {
        let mut cbor = Vec::new();
        let _ = value_from_json(&text, usize::MAX, &mut cbor);
        prop_assert!(cbor.len() <= text.len() * 9);
    }
}

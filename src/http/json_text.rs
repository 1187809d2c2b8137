//! JSON texts as a source of request values, parsed one level at a time.
//!
//! A tree of `serde_json::Value` takes up to forty times as much memory as its text. Here a value
//! is a slice of the text until it is read, so only the members of the containers that enclose it
//! are in memory, and what a request type ignores is never decoded. The text is checked completely
//! first: syntax, strings, depth, and the number of members of each container.
//!
//! ```text
//! text ─▶ check ─▶ RawJson(text) ─▶ into_value: members as RawJson ─▶ deserr ─▶ request type
//! ```

use std::{
    collections::{BTreeMap, btree_map},
    fmt,
};

use deserr::{Deserr, IntoValue, Map, Value, ValueKind};
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Number, value::RawValue};

use super::{ApiError, ApiResult, FieldErrors};

/// Elements of an array and fields of an object, at most. Each request type has lower bounds for
/// its own; this one bounds the memory for those of unknown fields and for errors.
const MAX_MEMBERS: usize = 16_384;

/// Decodes the JSON text of a body.
///
/// # Errors
/// Returns 400 if the text is not valid JSON, and otherwise with one detail per invalid field.
pub(super) fn decode<T: Deserr<FieldErrors>>(text: &[u8]) -> ApiResult<T> {
    decode_json(text, |reason| {
        ApiError::bad_request("the body is not valid JSON").detail("body", reason)
    })
}

/// Decodes a JSON text. `to_error` converts the reason for which it is not valid JSON, which names
/// no content.
///
/// # Errors
/// Returns that error, and otherwise 400 with one detail per invalid field.
pub fn decode_json<T: Deserr<FieldErrors>>(
    text: &[u8],
    to_error: impl FnOnce(String) -> ApiError,
) -> ApiResult<T> {
    let value = check(text).map_err(to_error)?;
    Ok(deserr::deserialize::<T, _, FieldErrors>(value)?)
}

/// Checks a complete text. The reasons name positions and expected tokens, never the content.
fn check(text: &[u8]) -> Result<RawJson<'_>, String> {
    let text = std::str::from_utf8(text).map_err(|error| error.to_string())?;
    serde_json::from_str::<Checked>(text).map_err(|error| error.to_string())?;
    let value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    Ok(RawJson(value))
}

/// A value that was valid and is not kept.
struct Checked;

impl<'de> Deserialize<'de> for Checked {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Unlike `IgnoredAny`, this also decodes strings and numbers, so that reading them later
        // cannot fail.
        deserializer.deserialize_any(CheckVisitor)
    }
}

struct CheckVisitor;

impl<'de> Visitor<'de> for CheckVisitor {
    type Value = Checked;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Checked, E> {
        Ok(Checked)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Checked, E> {
        Ok(Checked)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Checked, E> {
        Ok(Checked)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Checked, E> {
        Ok(Checked)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Checked, E> {
        Ok(Checked)
    }

    fn visit_str<E>(self, _: &str) -> Result<Checked, E> {
        Ok(Checked)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Checked, A::Error> {
        let mut count = 0;
        while elements.next_element::<Checked>()?.is_some() {
            count = check_count(count + 1, "an array", "elements")?;
        }
        Ok(Checked)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Checked, A::Error> {
        let mut count = 0;
        while fields.next_entry::<Checked, Checked>()?.is_some() {
            count = check_count(count + 1, "an object", "fields")?;
        }
        Ok(Checked)
    }
}

fn check_count<E: de::Error>(count: usize, container: &str, members: &str) -> Result<usize, E> {
    if count > MAX_MEMBERS {
        let message = format!("{container} has more than {MAX_MEMBERS} {members}");
        return Err(E::custom(message));
    }
    Ok(count)
}

/// A value as the slice of a checked text.
#[derive(Clone, Copy)]
struct RawJson<'a>(&'a RawValue);

impl<'a> RawJson<'a> {
    /// Decodes one level.
    #[expect(clippy::expect_used, reason = "the complete text was checked before")]
    fn parse<T: Deserialize<'a>>(self) -> T {
        serde_json::from_str(self.0.get()).expect("the text was checked")
    }
}

impl<'a> IntoValue for RawJson<'a> {
    type Sequence = Vec<RawJson<'a>>;
    type Map = RawFields<'a>;

    fn kind(&self) -> ValueKind {
        match self.0.get().as_bytes().first() {
            Some(b'n') | None => ValueKind::Null,
            Some(b't' | b'f') => ValueKind::Boolean,
            Some(b'"') => ValueKind::String,
            Some(b'[') => ValueKind::Sequence,
            Some(b'{') => ValueKind::Map,
            Some(_) => number_value::<Self>(&self.parse()).kind(),
        }
    }

    fn into_value(self) -> Value<Self> {
        match self.0.get().as_bytes().first() {
            Some(b'n') | None => Value::Null,
            Some(b't' | b'f') => Value::Boolean(self.parse()),
            Some(b'"') => Value::String(self.parse()),
            Some(b'[') => {
                let elements: Vec<&RawValue> = self.parse();
                Value::Sequence(elements.into_iter().map(RawJson).collect())
            }
            Some(b'{') => Value::Map(RawFields(self.parse())),
            Some(_) => number_value(&self.parse()),
        }
    }
}

fn number_value<V: IntoValue>(number: &Number) -> Value<V> {
    match (number.as_u64(), number.as_i64(), number.as_f64()) {
        (Some(number), ..) => Value::Integer(number),
        (None, Some(number), _) => Value::NegativeInteger(number),
        (None, None, number) => Value::Float(number.unwrap_or(f64::NAN)),
    }
}

/// The fields of an object. Of fields of one name, the last counts.
struct RawFields<'a>(BTreeMap<String, &'a RawValue>);

impl<'a> Map for RawFields<'a> {
    type Value = RawJson<'a>;
    type Iter = RawFieldsIter<'a>;

    fn len(&self) -> usize {
        self.0.len()
    }

    fn remove(&mut self, key: &str) -> Option<RawJson<'a>> {
        self.0.remove(key).map(RawJson)
    }

    fn into_iter(self) -> RawFieldsIter<'a> {
        RawFieldsIter(self.0.into_iter())
    }
}

struct RawFieldsIter<'a>(btree_map::IntoIter<String, &'a RawValue>);

impl<'a> Iterator for RawFieldsIter<'a> {
    type Item = (String, RawJson<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|(key, value)| (key, RawJson(value)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value as Tree, json};

    use super::*;

    /// Decodes a text to a tree through the same traits as a request type.
    #[derive(Debug, PartialEq)]
    struct Decoded(Tree);

    impl Deserr<FieldErrors> for Decoded {
        fn deserialize_from_value<V: IntoValue>(
            value: Value<V>,
            _location: deserr::ValuePointerRef,
        ) -> Result<Self, FieldErrors> {
            Ok(Decoded(value.into()))
        }
    }

    fn reason(text: &[u8]) -> String {
        let error = decode::<Decoded>(text).unwrap_err();
        assert_eq!(error.body().message, "the body is not valid JSON");
        assert_eq!(error.body().details[0].code, "body");
        error.body().details[0].message.clone()
    }

    fn json_value() -> impl Strategy<Value = Tree> {
        let scalar = prop_oneof![
            Just(Tree::Null),
            any::<bool>().prop_map(Tree::from),
            any::<i64>().prop_map(Tree::from),
            any::<u64>().prop_map(Tree::from),
            (-1e300..1e300).prop_map(Tree::from),
            any::<String>().prop_map(Tree::from),
        ];
        scalar.prop_recursive(4, 64, 8, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..8).prop_map(Tree::from),
                prop::collection::btree_map(any::<String>(), inner, 0..8)
                    .prop_map(|fields| Tree::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn values_are_those_of_a_tree(value in json_value(), pretty: bool) {
            let text = if pretty {
                serde_json::to_vec_pretty(&value).unwrap()
            } else {
                serde_json::to_vec(&value).unwrap()
            };
            let expected: Tree = serde_json::from_slice(&text).unwrap();
            prop_assert_eq!(decode::<Decoded>(&text).unwrap(), Decoded(expected));
        }
    }

    #[test]
    fn text_that_a_tree_rejects_is_invalid() {
        let deep = [b"[".repeat(200), b"]".repeat(200)].concat();
        let texts: [&[u8]; 16] = [
            b"",
            b" ",
            b"{",
            b"{} {}",
            b"[1,]",
            b"{\"a\":1,}",
            b"{a:1}",
            b"{1:1}",
            b"nul",
            b"01",
            b"1e999",
            b"\"\\ud800\"",
            b"{\"\\ud800\":1}",
            b"\"\n\"",
            b"\"\xff\"",
            &deep,
        ];
        for text in texts {
            assert!(serde_json::from_slice::<Tree>(text).is_err());
            assert!(!reason(text).is_empty(), "{}", text.escape_ascii());
        }
    }

    #[test]
    fn last_field_of_a_name_counts() {
        let decoded = decode::<Decoded>(br#"{"a": 1, "\u0061": 2}"#).unwrap();
        assert_eq!(decoded, Decoded(json!({"a": 2})));
    }

    #[test]
    fn containers_have_a_bounded_number_of_members() {
        let array = |count| serde_json::to_vec(&json!({"ignored": vec![0; count]})).unwrap();
        assert!(decode::<Decoded>(&array(MAX_MEMBERS)).is_ok());
        let message = reason(&array(MAX_MEMBERS + 1));
        let expected = "an array has more than 16384 elements at line 1 ";
        assert!(message.starts_with(expected), "{message}");
        let fields: Tree = (0..=MAX_MEMBERS)
            .map(|index| (index.to_string(), json!(null)))
            .collect::<serde_json::Map<_, _>>()
            .into();
        let message = reason(&serde_json::to_vec(&fields).unwrap());
        let expected = "an object has more than 16384 fields at line 1 ";
        assert!(message.starts_with(expected), "{message}");
    }
}

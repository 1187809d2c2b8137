//! Random messages: what is written to the pipe is one command with the members that a complete
//! parser reads, and what a client receives is Chromium's message with its own id. Bytes of
//! Chromium that are no message are an error.
//!
//! `PROPTEST_CASES` sets the number of cases.

use proptest::{collection::vec, prelude::*, sample::Index};
use serde_json::{Map, Value, json, value::RawValue};

use super::{
    browser_message::{BrowserHead, BrowserMessage},
    command::{Command, FIRST_ID},
    session::SessionId,
};
use crate::system::cdp::{
    cbor::{
        Envelope,
        tests::{object_to_json_text, value_to_cbor},
    },
    message::Head,
    policy::Caller,
};

const ROOT: &str = "0123456789ABCDEF0123456789ABCDEF";

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[\"\\\\{}\\[\\]:,\u{0}\u{7f}é漢a]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            vec(("[a-z\"\\\\]{0,4}", inner), 0..4)
                .prop_map(|members| Value::Object(Map::from_iter(members))),
        ]
    })
}

/// A message of a client, with its members in any order.
fn message() -> impl Strategy<Value = String> {
    let id = prop_oneof![4 => any::<i32>().prop_map(Value::from), 1 => value()];
    let method = prop_oneof![
        Just("Page.navigate"),
        Just("Target.getTargets"),
        Just("Target.setAutoAttach"),
        Just("Target.sendMessageToTarget"),
        Just("Tethering.bind"),
        Just("\u{0}\"}"),
    ];
    let session = prop_oneof![
        3 => Just(Value::from(ROOT)),
        1 => value(),
    ];
    let members = (
        id.prop_map(|id| Some(("id", id))),
        method.prop_map(|method| Some(("method", Value::from(method)))),
        prop::option::of(value().prop_map(|params| ("params", params))),
        prop::option::of(session.prop_map(|session| ("sessionId", session))),
    );
    let texts = members.prop_map(|(a, b, c, d)| {
        let members = [a, b, c, d].into_iter().flatten();
        let text = |(name, value): (&str, Value)| format!("{}:{value}", json!(name));
        members.map(text).collect::<Vec<String>>()
    });
    texts
        .prop_shuffle()
        .prop_map(|members| format!("{{{}}}", members.join(",")))
}

/// A message with some bytes replaced, removed or repeated.
fn mutated() -> impl Strategy<Value = String> {
    let mutation = (any::<Index>(), 0..4u8, any::<u8>());
    (message(), vec(mutation, 1..4)).prop_map(|(text, mutations)| {
        let mut bytes = text.into_bytes();
        for (index, kind, byte) in mutations {
            let at = index.index(bytes.len().max(1)).min(bytes.len());
            match kind {
                0 => bytes.insert(at, byte),
                1 => bytes.truncate(at),
                2 => bytes.extend_from_within(at..),
                _ => drop(bytes.splice(at..bytes.len().min(at + 1), [byte])),
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Whether two values are equal to a reader that has 64-bit floats only. `serde_json` may change
/// the last bit of a number.
fn is_equal(a: Option<&Value>, b: Option<&Value>) -> bool {
    match (a, b) {
        (Some(Value::Number(a)), Some(Value::Number(b))) => {
            let [a, b] = [a, b].map(|number| number.as_f64().unwrap());
            (a - b).abs() <= a.abs() * f64::EPSILON
        }
        (Some(Value::Array(a)), Some(Value::Array(b))) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_equal(Some(a), Some(b)))
        }
        (Some(Value::Object(a)), Some(Value::Object(b))) => {
            a.len() == b.len() && a.iter().all(|(name, a)| is_equal(Some(a), b.get(name)))
        }
        (a, b) => a == b,
    }
}

/// Checks the reply that rejects the message, or the command on the pipe.
fn check(text: &str) -> Result<(), TestCaseError> {
    let command = match Command::parse(text, Some(Caller::Client)) {
        Ok(command) => command,
        Err(reply) => {
            let reply: Value = serde_json::from_slice(&reply).unwrap();
            prop_assert!(reply["error"]["code"].is_i64(), "{reply}");
            return Ok(());
        }
    };
    let root = SessionId::parse(ROOT.as_bytes()).unwrap();
    let mut pipe = b"before".to_vec();
    command.write(FIRST_ID, root, &mut pipe);
    let message = &pipe[b"before".len()..];
    let Envelope { start, length } = Envelope::at_start_of(message).unwrap().unwrap();
    prop_assert_eq!(start + length, message.len(), "two messages");
    let written = object_to_json_text(&message[start..]).unwrap();
    let sent: Map<String, Value> = serde_json::from_slice(&written).unwrap();
    let names: Vec<&str> = sent.keys().map(String::as_str).collect();
    let mut given: Map<String, Value> = serde_json::from_str(text).unwrap();
    // As if absent.
    given.retain(|_, value| !value.is_null());
    prop_assert_eq!(&sent["id"], &json!(FIRST_ID));
    prop_assert_eq!(Some(f64::from(command.id)), given["id"].as_f64());
    prop_assert_eq!(&sent["method"], &given["method"]);
    let session = match given.get("sessionId").map(|session| session.as_str()) {
        None | Some(Some("")) => ROOT.to_owned(),
        Some(session) => {
            let id = SessionId::parse(session.unwrap_or_default().as_bytes());
            id.unwrap_or(SessionId::UNKNOWN).to_string()
        }
    };
    prop_assert_eq!(&sent["sessionId"], &Value::from(session));
    let has_filter =
        sent["method"] == "Target.getTargets" || sent["method"] == "Target.setAutoAttach";
    if !has_filter {
        prop_assert!(is_equal(sent.get("params"), given.get("params")));
    }
    prop_assert!(names.len() <= 4);
    // No member is there twice: the strict reading of the head would fail.
    let head = Head::parse(&written).unwrap();
    prop_assert_eq!(head.method.as_deref(), given["method"].as_str());
    Ok(())
}

/// A reply of Chromium, with its members in any order.
fn reply() -> impl Strategy<Value = (String, bool)> {
    let session = prop::option::of(Just(format!("\"sessionId\":\"{ROOT}\"")));
    (value(), session, any::<Index>()).prop_map(|(result, session, order)| {
        let has_session = session.is_some();
        let mut members = vec![format!("\"id\":{FIRST_ID}"), format!("\"result\":{result}")];
        members.extend(session);
        // Mostly as Chromium orders them.
        match order.index(4) {
            0 => members.reverse(),
            1 => members.rotate_left(1),
            _ => {}
        }
        (format!("{{{}}}", members.join(",")), has_session)
    })
}

proptest! {
    #[test]
    fn any_command_is_one_message_on_the_pipe(text in message()) {
        check(&text)?;
    }

    #[test]
    fn any_mutated_command_is_one_message_or_rejected(text in mutated()) {
        check(&text)?;
    }

    #[test]
    fn any_text_is_one_message_or_rejected(text in ".{0,64}") {
        check(&text)?;
    }

    #[test]
    fn reply_differs_in_id_and_session_only((text, has_session) in reply(), id in any::<i32>()) {
        let mut expected: Map<String, Value> = serde_json::from_str(&text).unwrap();
        expected.insert("id".into(), id.into());
        let message = value_to_cbor(&text);
        let message = BrowserMessage::parse(&message[7..]).unwrap();
        prop_assert_eq!(message.head, BrowserHead::Reply(FIRST_ID as i32));
        prop_assert_eq!(message.session.is_some(), has_session);
        for session in [message.session, None] {
            let mut json = Vec::new();
            let head = BrowserHead::Reply(id);
            message.write_json(head, session, &mut json, usize::MAX).unwrap();
            if session.is_none() {
                expected.remove("sessionId");
            }
            let received: Value = serde_json::from_slice(&json).unwrap();
            prop_assert!(is_equal(Some(&received), Some(&Value::Object(expected.clone()))));
            // The head can be read from the two ends of the text.
            let session = session.map(|session| session.to_string());
            let head = Head::of_browser(&json).unwrap();
            prop_assert_eq!((head.id, head.session.as_deref()), (Some(id.into()), session.as_deref()));
        }
    }

    #[test]
    fn any_bytes_of_chromium_are_json_or_an_error(
        (text, _) in reply(),
        mutations in vec((any::<Index>(), any::<u8>()), 0..8),
        length in any::<Index>(),
    ) {
        let mut message = value_to_cbor(&text);
        for (index, byte) in mutations {
            let at = index.index(message.len());
            message[at] = byte;
        }
        message.truncate(message.len() - length.index(message.len()));
        let _ = Envelope::at_start_of(&message);
        let Ok(message) = BrowserMessage::parse(message.get(7..).unwrap_or_default()) else {
            return Ok(());
        };
        let _ = message.session_in("result");
        const MAX: usize = 1000;
        let mut json = Vec::new();
        let written = message.write_json(BrowserHead::Reply(1), message.session, &mut json, MAX);
        prop_assert!(json.len() <= MAX);
        if written.is_ok() {
            // Syntax alone: a name or a string may contain a lone surrogate.
            prop_assert!(serde_json::from_slice::<&RawValue>(&json).is_ok());
        }
    }
}

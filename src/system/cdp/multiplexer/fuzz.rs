//! Random messages: what is written to the pipe is one command with the members that a complete
//! parser reads, and what a client receives is Chromium's message with its own id.
//!
//! `PROPTEST_CASES` sets the number of cases.

use bytes::BytesMut;
use proptest::{collection::vec, prelude::*, sample::Index};
use serde_json::{Map, Value, json};

use super::{
    command::{Command, FIRST_ID},
    router::{with_id, without_session},
    session::SessionId,
};
use crate::system::cdp::{message::Head, policy::Caller};

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
    let (terminator, written) = pipe[b"before".len()..].split_last().unwrap();
    prop_assert_eq!(*terminator, 0);
    prop_assert!(!written.contains(&0), "two messages");
    let sent: Map<String, Value> = serde_json::from_slice(written).unwrap();
    let names: Vec<&str> = sent.keys().map(String::as_str).collect();
    let mut given: Map<String, Value> = serde_json::from_str(text).unwrap();
    // As if absent.
    given.retain(|_, value| !value.is_null());
    prop_assert_eq!(&sent["id"], &json!(FIRST_ID));
    prop_assert_eq!(Some(f64::from(command.id)), given["id"].as_f64());
    prop_assert_eq!(&sent["method"], &given["method"]);
    let session = match given.get("sessionId").map(|session| session.as_str()) {
        None => ROOT.to_owned(),
        Some(session) => {
            let id = SessionId::parse(session.unwrap_or_default().as_bytes());
            id.unwrap_or(SessionId::UNKNOWN).to_string()
        }
    };
    prop_assert_eq!(&sent["sessionId"], &Value::from(session));
    let has_filter =
        sent["method"] == "Target.getTargets" || sent["method"] == "Target.setAutoAttach";
    if !has_filter {
        prop_assert_eq!(sent.get("params"), given.get("params"));
    }
    prop_assert!(names.len() <= 4);
    // No member is there twice: the strict reading of the head would fail.
    let head = Head::parse(written).unwrap();
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
        let with_id = with_id(BytesMut::from(text.as_bytes()), id);
        let received: Map<String, Value> = serde_json::from_slice(&with_id).unwrap();
        prop_assert_eq!(&received, &expected);
        expected.remove("sessionId");
        let bare: Map<String, Value> = serde_json::from_slice(&without_session(with_id)).unwrap();
        prop_assert_eq!(&bare, &expected);
        prop_assert_eq!(text.contains("sessionId\":\"0123"), has_session);
    }
}

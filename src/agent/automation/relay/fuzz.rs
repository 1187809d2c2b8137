//! Random messages: what the relay reads in them is what a complete JSON parser reads.
//!
//! The allow-list depends on it. A command whose method the relay and Chromium read differently
//! would pass it. `PROPTEST_CASES` sets the number of cases.

use proptest::{collection::vec, prelude::*, sample::Index};
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::{Value, json, value::RawValue};

use super::*;
use crate::system::cdp::{
    message::Head,
    policy::{self, Caller},
};

/// The length of long messages.
const LONG_MESSAGE: usize = 2048;

/// The members of an object in their order, repeated names included.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MembersVisitor;

        impl<'de> Visitor<'de> for MembersVisitor {
            type Value = Members<'de>;

            fn expecting(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(MembersVisitor)
    }
}

/// The head of a message: `id`, `method` and `sessionId`.
type Expected = (Option<i64>, Option<String>, Option<String>);

/// Returns the head as a complete parser reads it, or `None` if the text is no JSON object, or if a
/// member of the head is repeated or of another type.
fn expected_head(text: &[u8]) -> Option<Expected> {
    let Members(members) = serde_json::from_str(std::str::from_utf8(text).ok()?).ok()?;
    let member = |name: &str| {
        let mut values = members.iter().filter(|(key, _)| key == name);
        let value = values.next().map(|(_, value)| value.get());
        values.next().is_none().then_some(value.unwrap_or("null"))
    };
    Some((
        serde_json::from_str(member("id")?).ok()?,
        serde_json::from_str(member("method")?).ok()?,
        serde_json::from_str(member("sessionId")?).ok()?,
    ))
}

fn head_of(head: Option<Head>) -> Option<Expected> {
    let head = head?;
    let owned = |text: std::borrow::Cow<str>| text.into_owned();
    Some((head.id, head.method.map(owned), head.session.map(owned)))
}

/// Writes JSON with a random choice of escapes and white space.
struct Writer {
    choices: Vec<u8>,
    next: usize,
    out: String,
}

impl Writer {
    fn write(choices: &[u8], members: &[(String, Value)]) -> String {
        let mut writer = Writer {
            choices: choices.to_owned(),
            next: 0,
            out: String::new(),
        };
        writer.object(members.iter().map(|(name, value)| (name, value)));
        writer.out
    }

    /// Returns true once in `n` times, as chosen.
    fn chance(&mut self, n: u8) -> bool {
        self.next += 1;
        let choice = self.choices.get(self.next % self.choices.len().max(1));
        choice.is_some_and(|choice| choice.wrapping_add(self.next as u8) % n == 0)
    }

    fn object<'a>(&mut self, members: impl Iterator<Item = (&'a String, &'a Value)>) {
        self.out.push('{');
        for (number, (name, value)) in members.enumerate() {
            if number > 0 {
                self.out.push(',');
            }
            self.space();
            self.string(name);
            self.space();
            self.out.push(':');
            self.value(value);
        }
        self.out.push('}');
    }

    fn value(&mut self, value: &Value) {
        self.space();
        match value {
            Value::String(text) => self.string(text),
            Value::Object(members) => self.object(members.iter()),
            Value::Array(items) => {
                self.out.push('[');
                for (number, item) in items.iter().enumerate() {
                    if number > 0 {
                        self.out.push(',');
                    }
                    self.value(item);
                }
                self.out.push(']');
            }
            other => self.out.push_str(&other.to_string()),
        }
        self.space();
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for character in text.chars() {
            let is_special = matches!(character, '"' | '\\') || character < ' ';
            if is_special || self.chance(7) {
                let mut units = [0; 2];
                for unit in character.encode_utf16(&mut units) {
                    self.out.push_str(&format!("\\u{unit:04x}"));
                }
            } else {
                self.out.push(character);
            }
        }
        self.out.push('"');
    }

    fn space(&mut self) {
        if self.chance(9) {
            self.out.push_str("\t ");
        }
    }
}

/// Names and texts that could be mistaken for the head of a message.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec![
            "id",
            "method",
            "sessionId",
            "params",
            "result",
            "Page.enable",
            "Runtime.evaluate",
            "Target.setAutoAttach",
            "Target.createTarget",
            "Browser.setDownloadBehavior",
            "Browser.close",
            "Target.exposeDevToolsProtocol",
            r#"","sessionId":"FAKE"}"#,
            r#"\","method":"Browser.close"#,
            "{\"id\":1,",
            "}}",
            "\\",
        ])
        .prop_map(str::to_owned),
        any::<String>(),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            vec((text(), inner), 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// A member of a message: mostly of the expected type, in any order, repeated at times.
fn member() -> impl Strategy<Value = (String, Value)> {
    prop_oneof![
        3 => (0..3i64).prop_map(|id| ("id".to_owned(), id.into())),
        3 => text().prop_map(|method| ("method".to_owned(), method.into())),
        2 => text().prop_map(|session| ("sessionId".to_owned(), session.into())),
        2 => value().prop_map(|params| ("params".to_owned(), params)),
        1 => (text(), value()),
    ]
}

/// The text of a message, which may lack members or have them twice.
fn message() -> impl Strategy<Value = String> {
    let command = (0..3i64, text(), vec(member(), 0..3)).prop_map(|(id, method, more)| {
        let head = [
            ("id".to_owned(), id.into()),
            ("method".to_owned(), method.into()),
        ];
        head.into_iter().chain(more).collect()
    });
    let members = prop_oneof![command, vec(member(), 0..6)];
    let shuffled = members.prop_shuffle();
    (shuffled, vec(any::<u8>(), 1..32))
        .prop_map(|(members, choices)| Writer::write(&choices, &members))
}

/// A message of Chromium: the id or the method first, the session last, and a long text.
fn chromium_message() -> impl Strategy<Value = Vec<u8>> {
    let first = prop_oneof![
        (0..LAST_RELAY_ID).prop_map(|id| json!({ "id": id })),
        Just(json!({"method": "Page.frameNavigated"})),
    ];
    let session = prop::option::of("[0-9A-F]{32}");
    (first, value(), text(), session).prop_map(|(first, content, end, session)| {
        let body = if first["id"].is_null() {
            "params"
        } else {
            "result"
        };
        let long = "x".repeat(LONG_MESSAGE);
        let body = format!(
            r#""{body}":{{"a":{content},"b":"{long}","c":{}}}"#,
            json!(end)
        );
        let first = first.to_string();
        let first = first.trim_end_matches('}');
        let session = session
            .map(|id| format!(r#","sessionId":"{id}""#))
            .unwrap_or_default();
        format!("{first},{body}{session}}}").into_bytes()
    })
}

/// A change of a text.
#[derive(Debug, Clone)]
enum Mutation {
    Truncate(Index),
    Remove(Index),
    Replace(Index, u8),
    Insert(Index, Vec<u8>),
    Repeat(Index, Index),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let token = prop::sample::select(vec![
        "\"", "{", "}", ",", ":", "\\", "\\u0000", "\\ud800", "/**/", "null", "\0",
    ]);
    let at = any::<Index>;
    prop_oneof![
        at().prop_map(Mutation::Truncate),
        at().prop_map(Mutation::Remove),
        (at(), any::<u8>()).prop_map(|(at, byte)| Mutation::Replace(at, byte)),
        (at(), token).prop_map(|(at, token)| Mutation::Insert(at, token.into())),
        (at(), at()).prop_map(|(from, to)| Mutation::Repeat(from, to)),
    ]
}

fn mutate(text: &mut Vec<u8>, mutation: Mutation) {
    if text.is_empty() {
        return;
    }
    match mutation {
        Mutation::Truncate(at) => text.truncate(at.index(text.len())),
        Mutation::Remove(at) => drop(text.remove(at.index(text.len()))),
        Mutation::Replace(at, byte) => *at.get_mut(text) = byte,
        Mutation::Insert(at, bytes) => {
            let at = at.index(text.len());
            text.splice(at..at, bytes);
        }
        Mutation::Repeat(from, to) => {
            let (from, to) = (from.index(text.len()), to.index(text.len()));
            let part = text[from.min(to)..from.max(to)].to_owned();
            text.splice(to..to, part);
        }
    }
}

/// Sends a text as the worker and asserts that each command for Chromium is permitted and
/// well-formed.
fn assert_only_permitted_commands(text: &[u8]) -> Result<(), TestCaseError> {
    let mut relay = Relay::new(
        "/state/scratch/7".into(),
        SessionFiles::default(),
        DownloadSettings::default(),
    );
    let sent = relay.from_worker(Bytes::copy_from_slice(text));
    let Some((Some(id), Some(_), session)) = expected_head(text) else {
        prop_assert!(sent.is_err());
        prop_assert_eq!(relay.take_actions(), []);
        return Ok(());
    };
    for action in relay.take_actions() {
        if let RelayAction::ToBrowser(command) = action {
            let head = expected_head(&command);
            let Some((Some(sent_id), Some(method), sent_session)) = head else {
                return Err(TestCaseError::fail("a command without an id or a method"));
            };
            prop_assert!(policy::is_allowed(Caller::Script, &method), "{}", method);
            prop_assert_eq!(sent_id, id);
            // An empty id is that of the root session, which a changed command does not name.
            let named = |session: Option<String>| session.filter(|id| !id.is_empty());
            prop_assert_eq!(named(sent_session), named(session.clone()));
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn head_is_that_of_a_complete_parser(text in message()) {
        prop_assert_eq!(head_of(Head::parse(text.as_bytes())), expected_head(text.as_bytes()));
    }

    #[test]
    fn head_of_a_mutated_message_is_that_of_a_complete_parser(
        text in message(),
        mutations in vec(mutation(), 1..6),
    ) {
        let mut text = text.into_bytes();
        for mutation in mutations {
            mutate(&mut text, mutation);
        }
        prop_assert_eq!(head_of(Head::parse(&text)), expected_head(&text));
    }

    #[test]
    fn head_read_at_the_ends_is_that_of_a_complete_parser(text in chromium_message()) {
        let head = head_of(Head::of_browser(&text));
        prop_assert!(head.is_some());
        prop_assert_eq!(head, expected_head(&text));
    }

    #[test]
    fn mutated_message_of_chromium_does_not_panic(
        text in chromium_message(),
        mutations in vec(mutation(), 1..6),
    ) {
        let mut text = text;
        for mutation in mutations {
            mutate(&mut text, mutation);
        }
        let mut relay = Relay::new("/state/scratch/7".into(), SessionFiles::default(), DownloadSettings::default());
        let _ = relay.from_browser(text.into(), Instant::now());
    }

    #[test]
    fn random_bytes_are_read_like_a_complete_parser(text in vec(any::<u8>(), 0..64)) {
        prop_assert_eq!(head_of(Head::parse(&text)), expected_head(&text));
        let _ = Head::of_browser(&text);
    }

    #[test]
    fn no_spelling_of_a_command_passes_the_policy(text in message()) {
        assert_only_permitted_commands(text.as_bytes())?;
    }

    #[test]
    fn no_mutation_of_a_command_passes_the_policy(
        text in message(),
        mutations in vec(mutation(), 1..6),
    ) {
        let mut text = text.into_bytes();
        for mutation in mutations {
            mutate(&mut text, mutation);
        }
        assert_only_permitted_commands(&text)?;
    }
}

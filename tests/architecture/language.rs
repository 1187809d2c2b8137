//! The words of the project: plain technical English with the field's terms.
//!
//! A denied word is nearly always a sign of a name that says what somebody does instead of what the
//! thing is (`told`, `keeper`), or of a comment without a subject. Names of the wire format, of the
//! operating system and of other crates are listed with their reason.

use std::collections::{BTreeMap, BTreeSet};

use super::source::{Source, assert_none, identifier, sources};

const MAX_COMMENT_WIDTH: usize = 100;

/// Denied as a part of an identifier: `told_when`, `ToldEvent`.
const DENIED_WORDS: &[&str] = &[
    "asked",
    "asking",
    "asks",
    "beginnings",
    "came",
    "come",
    "comes",
    "condemn",
    "condemned",
    "doer",
    "doers",
    "ears",
    "fate",
    "forgotten",
    "goes",
    "going",
    "hear",
    "heard",
    "hearing",
    "hears",
    "heed",
    "heeds",
    "however",
    "hurried",
    "keeper",
    "keepers",
    "looker",
    "meant",
    "mend",
    "mended",
    "mends",
    "nobody",
    "nobodys",
    "ours",
    "remembered",
    "said",
    "say",
    "saying",
    "says",
    "seat",
    "seats",
    "shelf",
    "somebody",
    "strange",
    "surroundings",
    "tell",
    "teller",
    "telling",
    "tells",
    "theirs",
    "told",
    "took",
    "wanted",
    "went",
    "what",
    "whatever",
    "whenever",
    "wherever",
    "who",
    "whoever",
    "whom",
    "wish",
    "wishes",
    "woke",
];

/// Denied as parts of an identifier that follow each other.
const DENIED_PAIRS: &[[&str; 2]] = &[
    ["see", "off"],
    ["left", "over"],
    ["last", "words"],
    ["let", "alone"],
    ["go", "on"],
    ["let", "go"],
    ["is", "said"],
];

/// Denied as the whole name of a type.
const DENIED_TYPES: &[&str] = &[
    "Came", "Given", "Gone", "Hold", "Keeper", "Late", "Left", "Live", "Look", "Over", "Own",
    "Place", "Taken", "Turn", "Turns",
];

/// Denied as the first word of a doc comment: its first sentence has a subject and a verb.
const DENIED_OPENERS: &[&str] = &[
    "Here",
    "How",
    "It",
    "Nobody",
    "Of",
    "One",
    "So",
    "Somebody",
    "Something",
    "Such",
    "That",
    "There",
    "These",
    "They",
    "Those",
    "What",
    "Where",
    "Who",
    "Whoever",
    "Whom",
];

/// Denied in comments and in strings, in any case.
const DENIED_PHRASES: &[&str] = &[
    "begun",
    "by luck",
    "condemn",
    "doer",
    "ere long",
    "goes by",
    "hands and eyes",
    "heard",
    "hears",
    "heed",
    "heeds",
    "is said",
    "keeper",
    "let alone",
    "nobody",
    "of its own accord",
    "says so",
    "somebody",
    "so that one",
    "teller",
    "tells",
    "theirs",
    "told",
    "what came",
    "what comes",
    "whoever",
    "whom",
    "without end",
];

/// An exception, its place, and its reason.
struct Allowed {
    word: &'static str,
    /// A prefix of the path.
    place: &'static str,
    _reason: &'static str,
}

const ALLOWED: &[Allowed] = &[
    Allowed {
        word: "nobody",
        place: "",
        _reason: "the system's unprivileged user",
    },
    Allowed {
        word: "going",
        place: "src/",
        _reason: "`going_away`, the close code of RFC 6455",
    },
];

fn is_allowed(word: &str, source: &Source) -> bool {
    ALLOWED
        .iter()
        .any(|allowed| allowed.word == word && source.path.starts_with(allowed.place))
}

fn checked_sources() -> impl Iterator<Item = Source> {
    ["src", "runtime", "tests", "benches"]
        .into_iter()
        .flat_map(sources)
        // Has all the words.
        .filter(|source| source.path != file!())
}

/// A line of a source file.
enum Line<'a> {
    Comment(&'a str),
    Code {
        /// Without strings and trailing comment.
        code: String,
        strings: Vec<&'a str>,
    },
}

fn parse_line(line: &str) -> Line<'_> {
    if line.trim_start().starts_with("//") {
        return Line::Comment(line.trim_start());
    }
    let (mut code, mut strings, mut rest) = (String::new(), Vec::new(), line);
    while let Some(start) = rest.find(['"', '/']) {
        code.push_str(&rest[..start]);
        rest = &rest[start..];
        if rest.starts_with("//") {
            return Line::Code { code, strings };
        }
        // The quote of a character, `'"'`, has no end on its line in most cases.
        match rest.strip_prefix('"').and_then(string_end) {
            Some(end) => {
                strings.push(&rest[1..=end]);
                code.push_str("\"\"");
                rest = &rest[end + 2..];
            }
            None => {
                code.push_str(&rest[..1]);
                rest = &rest[1..];
            }
        }
    }
    code.push_str(rest);
    Line::Code { code, strings }
}

/// Returns the index of the closing quote.
fn string_end(text: &str) -> Option<usize> {
    let mut escaped = false;
    for (index, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return Some(index),
            _ => {}
        }
    }
    None
}

/// Returns the parts of an identifier in lower case: `["said", "when"]` for `saidWhen`.
fn words_of(identifier: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut previous = '_';
    for c in identifier.chars() {
        let starts_word = c.is_uppercase() && !previous.is_uppercase() || !previous.is_alphabetic();
        if c.is_alphabetic() {
            match words.last_mut() {
                Some(word) if !starts_word => word.extend(c.to_lowercase()),
                _ => words.push(c.to_lowercase().collect()),
            }
        }
        previous = c;
    }
    words
}

fn identifiers(code: &str) -> BTreeSet<&str> {
    let mut found = BTreeSet::new();
    let mut rest = code;
    while let Some(start) = rest.find(|c: char| c.is_alphabetic() || c == '_') {
        rest = &rest[start..];
        let name = identifier(rest);
        found.insert(name);
        rest = &rest[name.len()..];
    }
    found
}

/// Returns the denied phrase in a text.
fn denied_phrase(text: &str, source: &Source) -> Option<&'static str> {
    let words: Vec<String> = text
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect();
    let text = format!(" {} ", words.join(" "));
    DENIED_PHRASES
        .iter()
        .find(|phrase| text.contains(&format!(" {phrase} ")) && !is_allowed(phrase, source))
        .copied()
}

/// Returns the denied word of an identifier.
fn denied_word(name: &str, source: &Source) -> Option<String> {
    let words = words_of(name);
    let single = words
        .iter()
        .find(|word| DENIED_WORDS.contains(&word.as_str()) && !is_allowed(word, source));
    if let Some(word) = single {
        return Some(word.clone());
    }
    let pair = words
        .windows(2)
        .find(|pair| DENIED_PAIRS.iter().any(|denied| denied == pair));
    pair.map(|pair| pair.join("_"))
}

#[test]
fn identifiers_have_no_denied_word() {
    let mut offences = Vec::new();
    for source in checked_sources() {
        for (number, line) in source.text.lines().enumerate() {
            let Line::Code { code, .. } = parse_line(line) else {
                continue;
            };
            for name in identifiers(&code) {
                if let Some(word) = denied_word(name, &source) {
                    let place = format!("{}:{}", source.path, number + 1);
                    offences.push(format!("{place}: {name} has the word {word}"));
                }
            }
        }
    }
    assert_none(&offences);
}

#[test]
fn comments_and_strings_have_no_denied_phrase() {
    let mut offences = Vec::new();
    for source in checked_sources() {
        for (number, line) in source.text.lines().enumerate() {
            let texts = match parse_line(line) {
                Line::Comment(text) => vec![text],
                Line::Code { strings, .. } => strings,
            };
            for phrase in texts.iter().filter_map(|text| denied_phrase(text, &source)) {
                let place = format!("{}:{}", source.path, number + 1);
                offences.push(format!("{place}: \"{phrase}\" in {}", line.trim()));
            }
        }
    }
    assert_none(&offences);
}

#[test]
fn doc_comments_start_with_a_subject_or_a_verb() {
    let mut offences = Vec::new();
    for source in checked_sources() {
        for (number, line) in source.text.lines().enumerate() {
            let text = line.trim_start();
            let Some(text) = ["/// ", "//! "]
                .iter()
                .find_map(|mark| text.strip_prefix(mark))
            else {
                continue;
            };
            let opener = text.split_once(' ').map_or(text, |(first, _)| first);
            if DENIED_OPENERS.contains(&opener) {
                let place = format!("{}:{}", source.path, number + 1);
                offences.push(format!("{place}: {text}"));
            }
        }
    }
    assert_none(&offences);
}

#[test]
fn comments_are_at_most_100_columns_wide() {
    let mut offences = Vec::new();
    for source in checked_sources() {
        for (number, line) in source.text.lines().enumerate() {
            let width = line.chars().count();
            if line.trim_start().starts_with("//") && width > MAX_COMMENT_WIDTH {
                offences.push(format!("{}:{}: {width} columns", source.path, number + 1));
            }
        }
    }
    assert_none(&offences);
}

/// Types that share their name, and the reason.
const SHARED_TYPE_NAMES: &[(&str, &str)] = &[
    ("Config", "each server's checked settings"),
    (
        "FlagsVariable",
        "each server's Chromium flags from the environment",
    ),
    ("Health", "the health of each server"),
    ("ReplayError", "each server's error about recordings"),
    ("Replays", "each server's recordings"),
    ("Services", "what the handlers of each server use"),
    ("Settings", "the options of each command"),
    ("Started", "each server after its start"),
    ("StateDir", "each server's state directory"),
    (
        "AgentError",
        "the failure of an agent, in the agent and in control",
    ),
    ("Event", "the events of a state machine, one per module"),
    ("State", "the states of a state machine, one per module"),
    ("Frame", "the two ends of the script worker's protocol"),
    ("Page", "the worker protocol's page, and a page of a list"),
    ("Script", "a script, and its form in the worker protocol"),
    ("SendError", "the two ends of the script worker's protocol"),
    ("Options", "the options of a service, passed to its start"),
    ("DisplayStatus", "the display's status, and its wire form"),
    ("ProcessStatus", "a process's status, and its wire form"),
    (
        "Action",
        "an input action, and an action of the browser's state machine",
    ),
    ("Change", "a change of a file, and one of a browser's row"),
    (
        "DisplayAccess",
        "the access to a display, of the X server and of a client's process",
    ),
    ("Execution", "the execution of a script and of a program"),
    (
        "Host",
        "a host of browsers, and the host functions of a script",
    ),
    (
        "ResizeError",
        "the failure to resize a display or a terminal",
    ),
    ("Migration", "SeaORM migrations, one per file"),
    ("Model", "SeaORM entities, one per table"),
];

#[test]
fn no_two_types_share_a_name() {
    let mut types: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut offences = Vec::new();
    for source in sources("src").into_iter().chain(sources("runtime")) {
        for line in source.shipped().lines() {
            let Some(name) = public_type(line) else {
                continue;
            };
            if DENIED_TYPES.contains(&name) {
                offences.push(format!("{}: the type name {name}", source.path));
            }
            types
                .entry(name.to_owned())
                .or_default()
                .insert(source.path.clone());
        }
    }
    types.retain(|_, paths| paths.len() > 1);
    for (name, _) in SHARED_TYPE_NAMES {
        if types.remove(*name).is_none() {
            offences.push(format!("{name} is not shared: remove the exception"));
        }
    }
    for (name, paths) in types {
        let paths: Vec<String> = paths.into_iter().collect();
        offences.push(format!("{name} is a type in {}", paths.join(", ")));
    }
    assert_none(&offences);
}

/// Returns the name of the type that a line declares for other modules.
fn public_type(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let rest = line
        .strip_prefix("pub ")
        .or_else(|| line.strip_prefix("pub(crate) "))?;
    let rest = ["struct ", "enum ", "trait ", "type "]
        .iter()
        .find_map(|keyword| rest.strip_prefix(keyword))?;
    Some(identifier(rest))
}

#[test]
fn identifier_is_split_into_words() {
    assert_eq!(words_of("told_when"), ["told", "when"]);
    assert_eq!(words_of("ToldWhen2say"), ["told", "when", "say"]);
    assert_eq!(words_of("HTTP_BODY"), ["http", "body"]);
}

#[test]
fn strings_are_separated_from_code() {
    let Line::Code { code, strings } = parse_line(r#"a("x \" y", 1 / 2); // "z""#) else {
        panic!("not a comment");
    };
    assert_eq!(code, r#"a("", 1 / 2); "#);
    assert_eq!(strings, [r#"x \" y"#]);
}

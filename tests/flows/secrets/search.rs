//! Searches outputs for secrets, in all their forms at once.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, fs,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use aho_corasick::{AhoCorasick, Match};

use super::{encodings::PlantedSecret, outputs::Outputs};

/// The kinds of output in which no secret may be. Frames of replays are compared elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum OutputKind {
    Log,
    PanicMessage,
    Response,
    ErrorResponse,
    Event,
    Metric,
    Url,
    Argument,
    Environment,
    AuditEntry,
    ReplayName,
    StateFile,
    SqliteFile,
    SqliteLog,
    PostgresFile,
    PostgresLog,
    TemporaryFile,
    CoreFile,
}

/// A secret in an output.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Finding {
    pub(super) kind: OutputKind,
    pub(super) secret: String,
    pub(super) form: &'static str,
    /// The file, the request or the process with the secret.
    pub(super) source: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finding {
            kind,
            secret,
            form,
            source,
        } = self;
        write!(f, "{kind:?}: {secret} ({form}) in {source}")
    }
}

/// A search for secrets, with the results so far.
pub(super) struct LeakSearch {
    automaton: AhoCorasick,
    /// The name of the secret and the form of each pattern.
    patterns: Vec<(String, &'static str)>,
    findings: BTreeSet<Finding>,
    searched_bytes: BTreeMap<OutputKind, usize>,
}

impl LeakSearch {
    pub(super) fn new(secrets: &[PlantedSecret]) -> Self {
        let (mut patterns, mut texts) = (Vec::new(), Vec::new());
        for secret in secrets {
            for (form, text) in secret.forms() {
                patterns.push((secret.name.clone(), form));
                texts.push(text);
            }
        }
        Self {
            automaton: AhoCorasick::new(texts).unwrap(),
            patterns,
            findings: BTreeSet::new(),
            searched_bytes: BTreeMap::new(),
        }
    }

    /// Searches an output.
    pub(super) fn bytes(&mut self, kind: OutputKind, source: &str, output: &[u8]) {
        *self.searched_bytes.entry(kind).or_default() += output.len();
        for found in self.automaton.find_overlapping_iter(output) {
            if is_part_of_number(output, &found) {
                continue;
            }
            let (secret, form) = &self.patterns[found.pattern()];
            self.findings.insert(Finding {
                kind,
                secret: secret.clone(),
                form,
                source: source.to_owned(),
            });
        }
    }

    pub(super) fn outputs(&mut self, outputs: &Outputs) {
        for output in outputs.taken() {
            self.bytes(output.kind, &output.source, &output.bytes);
        }
    }

    /// Searches the files below a directory that have a kind, which depends on their path in it,
    /// and these paths. Files that are removed meanwhile are left out.
    pub(super) fn files(&mut self, root: &Path, kind_of: impl Fn(&Path) -> Option<OutputKind>) {
        for file in files(root) {
            let relative = file.strip_prefix(root).unwrap();
            if let Some(kind) = kind_of(relative)
                && let Ok(content) = fs::read(&file)
            {
                let source = file.display().to_string();
                self.bytes(kind, &source, &content);
                self.bytes(kind, &source, relative.as_os_str().as_bytes());
            }
        }
    }

    pub(super) fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter()
    }

    /// Returns the names of the secrets that were found in outputs of a kind.
    pub(super) fn found_in(&self, kind: OutputKind) -> BTreeSet<&str> {
        let found = self.findings().filter(|finding| finding.kind == kind);
        found.map(|finding| finding.secret.as_str()).collect()
    }

    /// Returns how many bytes of a kind were searched.
    pub(super) fn searched_bytes(&self, kind: OutputKind) -> usize {
        self.searched_bytes.get(&kind).copied().unwrap_or_default()
    }
}

/// Whether digits are found in a longer number, which is another one.
fn is_part_of_number(text: &[u8], found: &Match) -> bool {
    let is_digit = |at: Option<usize>| {
        let byte = at.and_then(|at| text.get(at));
        byte.is_some_and(u8::is_ascii_digit)
    };
    text[found.range()].iter().all(u8::is_ascii_digit)
        && (is_digit(found.start().checked_sub(1)) || is_digit(Some(found.end())))
}

/// Returns the kind of a file in a state directory.
pub(super) fn kind_of_state_file(path: &Path) -> Option<OutputKind> {
    let name = path.file_name()?.to_str()?;
    Some(match name {
        "berth.db" => OutputKind::SqliteFile,
        "berth.db-wal" | "berth.db-shm" => OutputKind::SqliteLog,
        _ => OutputKind::StateFile,
    })
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => found.extend(files(&entry.path())),
            Ok(kind) if kind.is_file() => found.push(entry.path()),
            _ => {}
        }
    }
    found
}

/// Returns texts with the secret and other characters around it, each in one of the forms.
fn embedded(secret: &PlantedSecret, before: usize) -> Vec<Vec<u8>> {
    use base64::{Engine, prelude::*};
    let all = [&b"abc"[..before], &secret.bytes, b"xyz"].concat();
    let text = String::from_utf8_lossy(&all).into_owned();
    let json = serde_json::json!({ "value": text }).to_string();
    let url = url::Url::parse_with_params("http://h/", [("q", &text)]).unwrap();
    let mut path = url.clone();
    path.path_segments_mut().unwrap().push(&text);
    let utf16 = text.encode_utf16().flat_map(u16::to_le_bytes);
    vec![
        all.clone(),
        BASE64_STANDARD.encode(&all).into(),
        BASE64_URL_SAFE.encode(&all).into(),
        all.iter()
            .flat_map(|b| format!("{b:02x}").into_bytes())
            .collect(),
        all.iter()
            .flat_map(|b| format!("{b:02X}").into_bytes())
            .collect(),
        all.iter()
            .flat_map(|b| format!("%{b:02x}").into_bytes())
            .collect(),
        format!("{all:?}").into(),
        format!("{:?}", bytes::Bytes::from(all.clone())).into(),
        format!("{text:?}").into(),
        serde_json::json!({ "body": json }).to_string().into(),
        json.into(),
        url.to_string().into(),
        path.to_string().into(),
        utf16.collect(),
    ]
}

#[test]
fn secret_is_found_in_each_form_and_nothing_else_is() {
    let texts = [
        "a-secret-of-16-b",
        "a secret/of+17&b?",
        "a \"secret\" \\ of 20",
        "ein Geheimnis: süß'%",
    ];
    for text in texts {
        let secret = PlantedSecret::new("it", text);
        for before in 0..3 {
            for output in embedded(&secret, before) {
                let mut search = LeakSearch::new(std::slice::from_ref(&secret));
                search.bytes(OutputKind::Log, "log", &output);
                let found = search.found_in(OutputKind::Log).len();
                assert_eq!(found, 1, "{}", String::from_utf8_lossy(&output));
            }
        }
    }
    let secrets = texts.map(|text| PlantedSecret::new("it", text));
    let mut search = LeakSearch::new(&secrets);
    for text in texts {
        let others = [&text[1..], &text[..15], &text.to_uppercase(), "a secret"];
        for other in others {
            search.bytes(OutputKind::Log, "log", other.as_bytes());
        }
    }
    assert_eq!(search.findings().count(), 0);
}

#[test]
fn binary_key_is_found_in_each_form_that_it_has() {
    let key: Vec<u8> = (0..32_u8)
        .map(|byte| byte.wrapping_mul(37).wrapping_add(100))
        .collect();
    let secret = PlantedSecret::new("key", key.clone());
    for before in 0..3 {
        // The others are texts, which replace its bytes.
        for output in embedded(&secret, before).into_iter().take(8) {
            let mut search = LeakSearch::new(std::slice::from_ref(&secret));
            search.bytes(OutputKind::Log, "log", &output);
            assert_eq!(search.found_in(OutputKind::Log).len(), 1, "{output:?}");
        }
    }
}

#[test]
fn code_in_a_longer_number_is_no_leak() {
    let code = PlantedSecret::new("code", "12345678");
    for (output, count) in [
        ("code 12345678.", 1),
        ("12345678", 1),
        ("code=12345678&x", 1),
        ("112345678", 0),
        ("123456789", 0),
    ] {
        let mut search = LeakSearch::new(std::slice::from_ref(&code));
        search.bytes(OutputKind::Log, "log", output.as_bytes());
        assert_eq!(search.findings().count(), count, "{output}");
    }
}

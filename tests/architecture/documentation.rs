//! The documents agree with the code: their links and paths exist, and they list every setting and
//! every metric.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::source::{assert_none, occurrences, sources};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// Returns the Markdown files of the package, as paths relative to it.
fn documents() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for directory in ["", "docs", "docs/design", "docs/adr"] {
        for entry in fs::read_dir(root().join(directory)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path.strip_prefix(root()).unwrap().to_owned());
            }
        }
    }
    assert!(found.len() > 20, "{found:?}");
    found
}

/// Returns what lies between each `open` and the next `close`.
fn between<'a>(text: &'a str, open: &'a str, close: char) -> impl Iterator<Item = &'a str> {
    text.match_indices(open)
        .filter_map(move |(at, _)| text[at + open.len()..].split_once(close))
        .map(|(inside, _)| inside)
}

#[test]
fn entry_documents_stay_short() {
    for (path, max) in [("README.md", 150), ("ARCHITECTURE.md", 200)] {
        let lines = read(path).lines().count();
        assert!(lines <= max, "{path} has {lines} lines, at most {max}");
    }
}

#[test]
fn relative_links_lead_to_files() {
    let mut offences = Vec::new();
    for document in documents() {
        let text = fs::read_to_string(root().join(&document)).unwrap();
        for link in between(&text, "](", ')') {
            let (path, _anchor) = link.split_once('#').unwrap_or((link, ""));
            if path.contains("://") || path.is_empty() {
                continue;
            }
            let target = root().join(document.parent().unwrap()).join(path);
            if !target.exists() {
                offences.push(format!("{}: {link}", document.display()));
            }
        }
    }
    assert_none(&offences);
}

#[test]
fn paths_in_documents_exist() {
    const DIRECTORIES: [&str; 5] = ["src/", "runtime/", "tests/", "scripts/", "docs/"];
    let mut offences = Vec::new();
    for document in documents() {
        let text = fs::read_to_string(root().join(&document)).unwrap();
        for quoted in between(&text, "`", '`') {
            let is_path = DIRECTORIES.iter().any(|start| quoted.starts_with(start))
                && !quoted.contains(char::is_whitespace);
            let path = root().join(quoted);
            if is_path && !path.exists() && !path.with_extension("rs").exists() {
                offences.push(format!("{}: {quoted}", document.display()));
            }
        }
    }
    assert_none(&offences);
}

#[test]
fn tests_that_the_security_document_names_exist() {
    let defined: String = ["src", "tests", "runtime"]
        .iter()
        .flat_map(|directory| sources(directory))
        .map(|source| source.text)
        .collect();
    let document = read("docs/security.md");
    let is_test = |quoted: &&str| {
        let is_identifier = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        quoted.chars().all(is_identifier) && quoted.matches('_').count() >= 3
    };
    let named: BTreeSet<&str> = between(&document, "`", '`').filter(is_test).collect();
    assert!(named.len() > 30, "{named:?}");
    let missing = named
        .iter()
        .filter(|name| !defined.contains(&format!("fn {name}(")));
    assert_none(&missing.map(ToString::to_string).collect::<Vec<_>>());
}

/// Returns the long options that `berth COMMAND --help` lists.
fn options(command: &[&str]) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_berth"))
        .args(command)
        .arg("--help")
        .output()
        .unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    help.lines()
        .filter_map(|line| line.trim_start().split_once("--"))
        .filter(|(before, _)| before.is_empty() || before.ends_with(", "))
        .map(|(_, rest)| {
            let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-';
            rest.chars().take_while(|c| is_name(*c)).collect()
        })
        .filter(|name: &String| !["help", "version"].contains(&name.as_str()))
        .collect()
}

#[test]
fn configuration_lists_every_option() {
    let document = read("docs/configuration.md");
    let mut offences = Vec::new();
    for command in [
        &["agent"][..],
        &["control"],
        &["dev"],
        &["key", "create"],
        &["database", "check"],
        &["database", "migrate"],
        &["profile", "import"],
        &["secrets", "status"],
        &["secrets", "rotate"],
        &["secrets", "retire"],
    ] {
        let options = options(command);
        assert!(options.contains("log"), "{command:?}: {options:?}");
        for option in options {
            if !document.contains(&format!("`--{option}`"))
                && !document.contains(&format!("`--{option} "))
            {
                offences.push(format!("berth {}: --{option}", command.join(" ")));
            }
        }
    }
    assert_none(&offences);
}

/// Returns the names of all metrics of the programs.
fn metrics() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for source in sources("src") {
        for kind in ["counter!(", "gauge!(", "histogram!("] {
            for end in occurrences(&source.text, kind) {
                let name = source.text[end..].trim_start().strip_prefix('"');
                let name = name.and_then(|name| name.split_once('"'));
                names.extend(name.map(|(name, _)| name.to_owned()));
            }
        }
    }
    names
}

#[test]
fn operations_list_every_metric() {
    let names = metrics();
    assert!(names.len() > 10, "{names:?}");
    let document = read("docs/operations.md");
    let missing = names
        .into_iter()
        .filter(|name| !document.contains(&format!("`{name}`")));
    assert_none(&missing.collect::<Vec<_>>());
}

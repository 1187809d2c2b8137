//! The map of ARCHITECTURE.md, held by a test: who may import whom, and which crate has one importer.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// A source file: where it is below the package, and its text without comments.
struct Source {
    path: String,
    code: String,
}

fn sources(folder: &str) -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    let mut folders = vec![root.join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path: PathBuf = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("node_modules") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(Source {
                    code: without_comments(&fs::read_to_string(&path).unwrap()),
                    path: path
                        .strip_prefix(root)
                        .unwrap()
                        .to_str()
                        .unwrap()
                        .to_owned(),
                });
            }
        }
    }
    assert!(!found.is_empty(), "no source below {folder}");
    found
}

fn without_comments(text: &str) -> String {
    text.lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect::<Vec<_>>()
        .join("\n")
}

impl Source {
    fn is_in(&self, places: &[&str]) -> bool {
        places.iter().any(|place| self.path.starts_with(place))
    }

    /// The code without its unit tests, which may reach further than the code itself.
    fn shipped(&self) -> &str {
        self.code.split("#[cfg(test)]").next().unwrap_or_default()
    }

    /// The modules of ours that the file names: `http` for `crate::http::…`, both for `crate::{http, system}`.
    fn own_modules(&self) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        for start in occurrences(self.shipped(), "crate::") {
            let rest = &self.shipped()[start..];
            match rest.strip_prefix('{') {
                Some(group) => names.extend(top_level_names(group)),
                None => names.extend(identifier(rest)),
            }
        }
        names
    }

    fn names_crate(&self, name: &str) -> bool {
        occurrences(&self.code, name).any(|end| {
            let before = self.code[..end - name.len()].chars().next_back();
            let after = &self.code[end..];
            !before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':' || c == '"')
                && (after.starts_with("::") || after.starts_with(';'))
        })
    }
}

/// Where each occurrence ends.
fn occurrences<'a>(text: &'a str, part: &'a str) -> impl Iterator<Item = usize> + 'a {
    text.match_indices(part)
        .map(|(start, found)| start + found.len())
}

fn identifier(text: &str) -> Option<String> {
    let name: String = text
        .chars()
        .take_while(|c| c.is_alphanumeric() || *c == '_')
        .collect();
    (!name.is_empty()).then_some(name)
}

/// The first names within a group of imports whose opening brace is behind us.
fn top_level_names(group: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let (mut depth, mut expecting) = (0, true);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => expecting = true,
            c if expecting && c.is_alphabetic() => {
                names.extend(identifier(&group[at..]));
                expecting = false;
            }
            _ => {}
        }
    }
    names
}

/// Every offence, so that one run names them all.
fn assert_none(offences: &[String]) {
    assert!(offences.is_empty(), "\n{}\n", offences.join("\n"));
}

#[test]
fn requests_only_move_downwards() {
    // What lies in the folder may name no more of our modules than these.
    let rules: [(&[&str], &[&str]); 3] = [
        (&["src/api/"], &["api"]),
        (
            &["src/http/"],
            &["api", "http", "request_scope", "shutdown", "streams"],
        ),
        (&["src/system/"], &["api", "lines", "shutdown", "system"]),
    ];
    let mut offences = Vec::new();
    for source in sources("src") {
        for (places, allowed) in rules {
            if source.is_in(places) {
                for name in source.own_modules() {
                    if !allowed.contains(&name.as_str()) {
                        offences.push(format!("{} names crate::{name}", source.path));
                    }
                }
            }
        }
    }
    assert_none(&offences);
}

#[test]
fn the_two_servers_do_not_import_each_other() {
    let mut offences = Vec::new();
    for source in sources("src") {
        for (place, other) in [("src/agent/", "control"), ("src/control/", "agent")] {
            if source.is_in(&[place]) && source.own_modules().contains(other) {
                offences.push(format!("{} names crate::{other}", source.path));
            }
        }
    }
    assert_none(&offences);
}

#[test]
fn the_domain_knows_no_http_and_no_routes() {
    // Where a server is put together, and what passes HTTP and WebSockets on as its very job.
    const ASSEMBLY: [&str; 2] = ["src/agent/mod.rs", "src/control/mod.rs"];
    const PASSING_ON: [&str; 1] = ["src/control/proxy"];
    let mut offences = Vec::new();
    for source in sources("src") {
        let domain =
            source.is_in(&["src/agent/", "src/control/"]) && !source.path.contains("/routes/");
        if !domain || source.is_in(&ASSEMBLY) || source.is_in(&PASSING_ON) {
            continue;
        }
        if source.own_modules().contains("http") || source.shipped().contains("axum::") {
            offences.push(format!("{} speaks HTTP", source.path));
        }
        if source.shipped().contains("routes::") {
            offences.push(format!("{} names its routes", source.path));
        }
    }
    assert_none(&offences);
}

#[test]
fn one_place_for_each_outside_thing() {
    let rules: [(&str, &[&str]); 18] = [
        ("sea_orm", &["src/control/store"]),
        ("sea_orm_migration", &["src/control/store"]),
        ("arboard", &["src/system/x11/clipboard"]),
        ("chromiumoxide", &["src/system/cdp"]),
        ("x11rb", &["src/system"]),
        ("tar", &["src/system/files/archive"]),
        ("zip", &["src/system/files/archive"]),
        ("zstd", &["src/system/files/archive"]),
        ("jsonwebtoken", &["src/control/session_token"]),
        ("object_store", &["src/control/blobs.rs"]),
        ("metrics_exporter_prometheus", &["src/http/metrics.rs"]),
        ("tracing_subscriber", &["src/cli/logs.rs"]),
        ("portable_pty", &["src/system/process/pty.rs"]),
        ("enigo", &["src/system/x11/input"]),
        ("jpeg_encoder", &["src/system/media/jpeg.rs"]),
        ("xkeysym", &["src/api/keys.rs"]),
        ("deno_core", &["runtime/"]),
        ("oxc", &["runtime/"]),
    ];
    let mut offences = Vec::new();
    for source in sources("src").into_iter().chain(sources("runtime")) {
        for (name, places) in rules {
            if source.names_crate(name) && !source.is_in(places) {
                offences.push(format!("{} uses {name}", source.path));
            }
        }
    }
    assert_none(&offences);
}

/// A handler's `#[utoipa::path(…, path = "/…")]`: its file's place in the tree of routes, and the path.
fn declared_routes(server: &str) -> Vec<(String, String)> {
    let folder = format!("src/{server}/routes");
    let mut declared = Vec::new();
    for source in sources(&folder) {
        let place = source.path[folder.len()..].trim_end_matches(".rs");
        let place = place.trim_end_matches("/mod").trim_start_matches('/');
        for start in occurrences(source.shipped(), "#[utoipa::path(") {
            let (_, rest) = source.shipped()[start..].split_once("path = \"").unwrap();
            let (path, _) = rest.split_once('"').unwrap();
            declared.push((place.to_owned(), path.to_owned()));
        }
    }
    declared
}

fn document(server: &str) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_berth"))
        .args(["openapi", server])
        .output()
        .unwrap();
    assert!(output.status.success(), "berth openapi {server} failed");
    serde_json::from_slice(&output.stdout).unwrap()
}

const SERVERS: [&str; 2] = ["agent", "control"];

#[test]
fn a_route_lies_where_its_url_says() {
    let mut offences = Vec::new();
    for server in SERVERS {
        let declared = declared_routes(server);
        let places: BTreeSet<&String> = declared.iter().map(|(place, _)| place).collect();
        for place in places {
            let mut paths = declared.iter().filter(|(other, _)| other == place);
            // An alias lies with the path it is an alias of.
            let of = |path: &str| {
                let item = if path.ends_with('}') {
                    "item"
                } else {
                    "collection"
                };
                [place_of(path), format!("{}/{item}", place_of(path))]
            };
            if !paths.any(|(_, path)| of(path).contains(place)) {
                offences.push(format!("src/{server}/routes/{place} serves another URL"));
            }
        }
    }
    assert_none(&offences);
}

/// `/browsers/{id}/json/version` belongs to `browsers/json/version`. Where a collection and its items are two paths,
/// `collection.rs` and `item.rs` lie in its folder.
fn place_of(path: &str) -> String {
    let segments = path
        .split('/')
        .filter(|part| !part.is_empty() && !part.starts_with('{'));
    segments.collect::<Vec<_>>().join("/").replace('-', "_")
}

#[test]
fn every_route_is_in_the_document() {
    let mut offences = Vec::new();
    for server in SERVERS {
        let document = document(server);
        let documented: Vec<&String> = document["paths"].as_object().unwrap().keys().collect();
        for (place, path) in declared_routes(server) {
            if !documented.iter().any(|known| known.ends_with(&path)) {
                offences.push(format!("{server}: {path} of {place} is not registered"));
            }
        }
        // Session routes are passed on as they come; the agent's document has them.
        const PASSED_ON: [&str; 1] = ["src/control/routes/browsers/mod.rs"];
        for source in sources(&format!("src/{server}/routes")) {
            if source.is_in(&PASSED_ON) {
                continue;
            }
            // `routes!` registers a handler together with its documentation, `route` would do so without.
            if source.shipped().contains(".route(") {
                offences.push(format!("{} serves what no document names", source.path));
            }
        }
    }
    assert_none(&offences);
}

#[test]
fn no_route_is_in_the_document_twice() {
    let mut offences = Vec::new();
    for server in SERVERS {
        let document = document(server);
        let mut known = BTreeSet::new();
        for path in document["paths"].as_object().unwrap().keys() {
            // Whatever its parameters are called.
            let mut segments = Vec::new();
            for segment in path.split('/') {
                let parameter = segment.starts_with('{');
                segments.push(if parameter { "{}" } else { segment });
            }
            if !known.insert(segments.join("/")) {
                offences.push(format!("{server}: {path} is documented twice"));
            }
        }
    }
    assert_none(&offences);
}

#[test]
fn the_documents_change_on_purpose() {
    for server in SERVERS {
        insta::assert_json_snapshot!(format!("openapi_{server}"), document(server));
    }
}

#[test]
fn only_settings_read_the_environment() {
    let offences: Vec<String> = sources("src")
        .into_iter()
        .filter(|source| !source.is_in(&["src/cli/"]) && !source.path.ends_with("/settings.rs"))
        // It keeps our settings from children, and learns nothing from them.
        .filter(|source| source.path != "src/system/process/child.rs")
        .filter(|source| source.shipped().contains("env::var"))
        .map(|source| format!("{} reads the environment", source.path))
        .collect();
    assert_none(&offences);
}

#[test]
fn no_test_sleeps() {
    let offences: Vec<String> = sources("tests")
        .into_iter()
        .filter(|source| source.path != file!())
        .filter(|source| {
            let waits = ["sleep(", "waitForTimeout("];
            waits.iter().any(|wait| source.code.contains(wait))
        })
        .map(|source| format!("{} sleeps: wait for what it waits for", source.path))
        .collect();
    assert_none(&offences);
}

//! The handlers of each server, compared with its OpenAPI document.

use std::{collections::BTreeSet, process::Command};

use serde_json::Value;

use super::source::{assert_none, occurrences, sources};

pub(super) const SERVERS: [&str; 2] = ["agent", "control"];

/// A handler's `#[utoipa::path(…, path = "/…")]`.
struct Route {
    /// The handler's module below `routes`, such as `browsers/replays`.
    module: String,
    path: String,
}

fn declared_routes(server: &str) -> Vec<Route> {
    let directory = format!("src/{server}/routes");
    let mut routes = Vec::new();
    for source in sources(&directory) {
        let module = source.path[directory.len()..].trim_end_matches(".rs");
        let module = module.trim_end_matches("/mod").trim_start_matches('/');
        for start in occurrences(source.shipped(), "#[utoipa::path(") {
            let (_, rest) = source.shipped()[start..].split_once("path = \"").unwrap();
            let (path, _) = rest.split_once('"').unwrap();
            routes.push(Route {
                module: module.to_owned(),
                path: path.to_owned(),
            });
        }
    }
    routes
}

pub(super) fn document(server: &str) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_berth"))
        .args(["openapi", server])
        .output()
        .unwrap();
    assert!(output.status.success(), "berth openapi {server} failed");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn route_module_matches_its_url() {
    let mut offences = Vec::new();
    for server in SERVERS {
        let routes = declared_routes(server);
        let modules: BTreeSet<&String> = routes.iter().map(|route| &route.module).collect();
        for module in modules {
            // An alias is in the module of the path it is an alias of.
            let mut paths = routes.iter().filter(|route| route.module == *module);
            if !paths.any(|route| modules_of(&route.path).contains(module)) {
                offences.push(format!("src/{server}/routes/{module} serves another URL"));
            }
        }
    }
    assert_none(&offences);
}

/// Returns the modules that may serve a path: `/browsers/{id}/json/version` belongs to
/// `browsers/json/version`. Where a collection and its items are two paths, `collection.rs` and
/// `item.rs` are in its directory.
fn modules_of(path: &str) -> [String; 2] {
    // The page of the console, whose other files are below `/console`.
    let path = if path == "/" { "/console" } else { path };
    // The names of files are those of modules without their dots: `/.well-known/jwks.json`.
    let segments = path
        .split('/')
        .filter(|part| !part.is_empty() && !part.starts_with('{'))
        .filter_map(|part| part.trim_start_matches('.').split('.').next());
    let module = segments.collect::<Vec<_>>().join("/").replace('-', "_");
    let file = if path.ends_with('}') {
        "item"
    } else {
        "collection"
    };
    [format!("{module}/{file}"), module]
}

#[test]
fn every_route_is_documented() {
    let mut offences = Vec::new();
    for server in SERVERS {
        let document = document(server);
        let documented: Vec<&String> = document["paths"].as_object().unwrap().keys().collect();
        for Route { module, path } in declared_routes(server) {
            if !documented.iter().any(|known| known.ends_with(&path)) {
                offences.push(format!("{server}: {path} of {module} is not registered"));
            }
        }
        // Session routes are forwarded unchanged; the agent's document has them.
        const FORWARDED: [&str; 1] = ["src/control/routes/browsers/mod.rs"];
        for source in sources(&format!("src/{server}/routes")) {
            if source.is_in(&FORWARDED) {
                continue;
            }
            // `routes!` registers a handler with its documentation, `route` without.
            if source.shipped().contains(".route(") {
                offences.push(format!("{} has an undocumented route", source.path));
            }
        }
    }
    assert_none(&offences);
}

#[test]
fn no_route_is_documented_twice() {
    let mut offences = Vec::new();
    for server in SERVERS {
        let document = document(server);
        let mut known = BTreeSet::new();
        for path in document["paths"].as_object().unwrap().keys() {
            // The names of parameters do not make a difference.
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
fn openapi_documents_match_their_snapshots() {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../snapshots");
    settings.set_prepend_module_to_snapshot(false);
    settings.bind(|| {
        for server in SERVERS {
            let name = format!("berth__architecture__openapi_{server}");
            insta::assert_json_snapshot!(name, document(server));
        }
    });
}

//! Rules for the OpenAPI documents. `flows::openapi` has a validator check them as a whole.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::routes::{SERVERS, document};

/// The operations that accept the token of a login flow.
const FLOW_OPERATIONS: [&str; 4] = [
    "get /auth/connections/{id}",
    "get /auth/connections/{id}/events",
    "post /auth/connections/{id}/submit",
    "post /auth/connections/{id}/cancel",
];

/// Returns all operations of a document with their names, such as `post /process/exec`.
fn operations(document: &Value) -> impl Iterator<Item = (String, &Value)> {
    let paths = document["paths"].as_object().unwrap();
    paths.iter().flat_map(|(path, item)| {
        let methods = item.as_object().unwrap().iter();
        methods
            .filter(|(_, operation)| operation["responses"].is_object())
            .map(move |(method, operation)| (format!("{method} {path}"), operation))
    })
}

/// Returns the object that a `$ref` leads to, or the object itself.
fn resolve<'a>(document: &'a Value, object: &'a Value) -> &'a Value {
    match object["$ref"].as_str() {
        Some(reference) => {
            let pointer = reference.trim_start_matches('#');
            document.pointer(pointer).unwrap_or(&Value::Null)
        }
        None => object,
    }
}

/// Calls `visit` with a value and all values in it.
fn for_each(value: &Value, visit: &mut impl FnMut(&Value)) {
    visit(value);
    match value {
        Value::Object(fields) => fields.values().for_each(|field| for_each(field, visit)),
        Value::Array(items) => items.iter().for_each(|item| for_each(item, visit)),
        _ => {}
    }
}

fn is_text(value: &Value) -> bool {
    value.as_str().is_some_and(|text| !text.is_empty())
}

/// Returns the offences of one operation against the rules for its texts.
fn offences_of(document: &Value, operation: &Value, groups: &BTreeSet<&str>) -> Vec<String> {
    let mut offences = Vec::new();
    let summary = operation["summary"].as_str().unwrap_or_default();
    if summary.is_empty() || summary.ends_with('.') || summary.len() > 60 {
        offences.push(format!(
            "summary {summary:?} is not short and without full stop"
        ));
    }
    let tags = operation["tags"].as_array().unwrap();
    if tags.len() != 1 || !groups.contains(tags[0].as_str().unwrap()) {
        offences.push("does not belong to one described group".to_owned());
    }
    for parameter in operation["parameters"].as_array().into_iter().flatten() {
        if !is_text(&parameter["description"]) {
            offences.push(format!(
                "parameter {} has no description",
                parameter["name"]
            ));
        }
    }
    for (status, response) in operation["responses"].as_object().unwrap() {
        let response = resolve(document, response);
        if !is_text(&response["description"]) {
            offences.push(format!("response {status} has no description"));
        }
        let is_error = matches!(status.as_bytes()[0], b'4' | b'5' | b'd');
        if is_error && !is_error_body(&response["content"]) {
            offences.push(format!("response {status} has no error body"));
        }
        offences.extend(media_type_offences(&response["content"]));
    }
    let body = &operation["requestBody"];
    offences.extend(media_type_offences(&body["content"]));
    if body["content"]["application/json"].is_object()
        && body["content"]["application/json"]["example"].is_null()
    {
        offences.push("request body has no example".to_owned());
    }
    offences
}

/// Returns whether an error has the common format. Pages for people may show an error as HTML.
fn is_error_body(content: &Value) -> bool {
    let reference = &content["application/json"]["schema"]["$ref"];
    reference == "#/components/schemas/ErrorBody" || content["text/html"].is_object()
}

/// Returns the offences of a body's schemas against the rules for its media types.
fn media_type_offences(content: &Value) -> Vec<String> {
    let mut offences = Vec::new();
    for (media_type, content) in content.as_object().into_iter().flatten() {
        let schema = &content["schema"];
        let is_described = match media_type.as_str() {
            "application/json" | "multipart/form-data" => schema.is_object(),
            "text/event-stream" => {
                let data = &schema["properties"]["data"];
                data["contentSchema"]["$ref"].is_string()
            }
            "text/html" => schema["type"] == "string",
            _ => schema["type"] == "string" && schema["format"] == "binary",
        };
        if !is_described {
            offences.push(format!("{media_type} has the schema {schema}"));
        }
    }
    offences
}

#[test]
fn every_reference_leads_to_a_definition() {
    for server in SERVERS {
        let document = document(server);
        let mut dangling = BTreeSet::new();
        for_each(&document, &mut |value| {
            if value["$ref"].is_string() && resolve(&document, value).is_null() {
                dangling.insert(value["$ref"].to_string());
            }
        });
        assert!(dangling.is_empty(), "{server}: {dangling:?}");
    }
}

#[test]
fn path_parameters_are_declared_and_have_one_name() {
    let mut offences = Vec::new();
    for server in SERVERS {
        let document = document(server);
        // The name of the parameter that follows a part of a path.
        let mut names: BTreeMap<&str, &str> = BTreeMap::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            for (start, _) in path.match_indices('{') {
                let name = path[start + 1..].split('}').next().unwrap();
                let known = names.entry(&path[..start]).or_insert(name);
                if *known != name {
                    offences.push(format!("{server}: {path} renames {known} to {name}"));
                }
                for (method, operation) in item.as_object().unwrap() {
                    let own = operation["parameters"].as_array().into_iter().flatten();
                    let shared = item["parameters"].as_array().into_iter().flatten();
                    let mut all = own.chain(shared);
                    let is_declared = all.any(|one| one["in"] == "path" && one["name"] == name);
                    if method != "parameters" && !is_declared {
                        offences.push(format!("{server}: {method} {path} lacks {name}"));
                    }
                }
            }
        }
    }
    assert!(offences.is_empty(), "\n{}\n", offences.join("\n"));
}

#[test]
fn every_operation_declares_its_credentials() {
    for server in SERVERS {
        let document = document(server);
        let schemes = document["components"]["securitySchemes"]
            .as_object()
            .unwrap();
        for (name, operation) in operations(&document) {
            let accepted = operation["security"].as_array().into_iter().flatten();
            let accepted = accepted.flat_map(|one| one.as_object().unwrap().keys());
            let accepted: Vec<&String> = accepted.collect();
            assert!(accepted.iter().all(|name| schemes.contains_key(*name)));
            let is_of_flow = FLOW_OPERATIONS.contains(&name.as_str());
            let takes_token = name.contains("/browsers/{id}/") || is_of_flow;
            let expected: &[&str] = match (name.as_str(), takes_token) {
                (
                    "get /health"
                    | "get /"
                    | "get /console/{name}"
                    | "get /.well-known/jwks.json"
                    | "post /auth/connections/{id}/exchange",
                    _,
                ) => &[],
                (name, _) if name.starts_with("get /login/") => &[],
                (_, true) => &["bearer", "session_token"],
                (_, false) => &["bearer"],
            };
            assert_eq!(accepted, expected, "{server}: {name}");
            // A wrong code is a 401, too.
            let is_guarded = !expected.is_empty() || name.ends_with("/exchange");
            assert_eq!(operation["responses"]["401"].is_object(), is_guarded);
        }
    }
}

#[test]
fn every_operation_is_described() {
    let mut offences = Vec::new();
    for server in SERVERS {
        let document = document(server);
        let groups = document["tags"].as_array().unwrap().iter();
        let groups = groups.filter(|group| is_text(&group["description"]));
        let groups = groups
            .map(|group| group["name"].as_str().unwrap())
            .collect();
        for (name, operation) in operations(&document) {
            for offence in offences_of(&document, operation, &groups) {
                offences.push(format!("{server}: {name}: {offence}"));
            }
        }
    }
    assert!(offences.is_empty(), "\n{}\n", offences.join("\n"));
}

#[test]
fn operation_ids_are_unique() {
    for server in SERVERS {
        let document = document(server);
        let mut known = BTreeSet::new();
        for (name, operation) in operations(&document) {
            let id = operation["operationId"].as_str().unwrap();
            assert!(
                known.insert(id),
                "{server}: {name} has the id {id} of another operation"
            );
        }
    }
}

#[test]
fn operations_that_the_audit_log_names_exist() {
    let sources = super::source::sources("src/control/routes/auditing");
    let source = sources
        .iter()
        .find(|source| source.path.ends_with("operations.rs"));
    let constants = source.unwrap().code.split("pub(super) struct").next();
    let named: BTreeSet<&str> = constants.unwrap().split('"').skip(1).step_by(2).collect();
    assert!(named.len() > 20, "{named:?}");
    let document = document("control");
    let ids: BTreeSet<&str> = operations(&document)
        .filter_map(|(_, operation)| operation["operationId"].as_str())
        .collect();
    let missing: Vec<_> = named.difference(&ids).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

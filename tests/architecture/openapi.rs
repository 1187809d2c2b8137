//! Rules for the texts of the OpenAPI documents.

use std::collections::BTreeSet;

use serde_json::Value;

use super::routes::{SERVERS, document};

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

fn is_text(value: &Value) -> bool {
    value.as_str().is_some_and(|text| !text.is_empty())
}

/// Returns the offences of one operation against the rules for its texts.
fn offences_of(operation: &Value, groups: &BTreeSet<&str>) -> Vec<String> {
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
        if !is_text(&response["description"]) {
            offences.push(format!("response {status} has no description"));
        }
    }
    let body = &operation["requestBody"];
    if body["content"]["application/json"].is_object()
        && body["content"]["application/json"]["example"].is_null()
    {
        offences.push("request body has no example".to_owned());
    }
    offences
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
            for offence in offences_of(operation, &groups) {
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

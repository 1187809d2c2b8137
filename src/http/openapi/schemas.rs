//! Schemas of request bodies and event streams.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use utoipa::openapi::{
    Components, ObjectBuilder, OpenApi, Ref, RefOr, Required, Schema, path::Operation, schema::Type,
};

const SCHEMAS: &str = "#/components/schemas/";
const EVENT_STREAM: &str = "text/event-stream";

/// Marks a JSON body as optional if none of its fields is required: an absent body is read as `{}`.
pub(super) fn complete_request_body(operation: &mut Operation, components: &Components) {
    let Some(RefOr::T(body)) = &mut operation.request_body else {
        return;
    };
    let Some(RefOr::T(content)) = body.content.get("application/json") else {
        return;
    };
    if let Some(schema) = &content.schema
        && is_optional(schema, components)
    {
        body.required = Some(Required::False);
    }
}

/// Returns whether an empty object matches a schema.
fn is_optional(schema: &RefOr<Schema>, components: &Components) -> bool {
    match schema {
        RefOr::Ref(reference) => reference
            .ref_location
            .strip_prefix(SCHEMAS)
            .and_then(|name| components.schemas.get(name))
            .is_some_and(|schema| is_optional(schema, components)),
        RefOr::T(Schema::Object(object)) => object.required.is_empty(),
        RefOr::T(Schema::AllOf(all)) => {
            let mut parts = all.items.iter();
            parts.all(|schema| is_optional(schema, components))
        }
        RefOr::T(_) => false,
    }
}

/// Replaces the schema of an event's data by the schema of an event, as OpenAPI 3.2 defines it for
/// the items of such a stream.
pub(super) fn describe_streams(operation: &mut Operation) {
    for response in operation.responses.responses.values_mut() {
        let RefOr::T(response) = response else {
            continue;
        };
        if let Some(RefOr::T(content)) = response.content.get_mut(EVENT_STREAM)
            && let Some(RefOr::Ref(data)) = &content.schema
        {
            content.schema = Some(event_schema(data.clone()).into());
        }
    }
}

/// Returns the schema of an event whose data is JSON of the schema `data`.
fn event_schema(data: Ref) -> ObjectBuilder {
    let id = ObjectBuilder::new()
        .schema_type(Type::String)
        .pattern(Some("^([a-z]+_[0-9a-z]+:)?[0-9]+$"))
        .description(Some(
            "The event's id, which `Last-Event-ID` continues after. Absent for an event after which \
             no stream continues",
        ));
    let data = ObjectBuilder::new()
        .schema_type(Type::String)
        .content_media_type("application/json")
        .content_schema(Some(data));
    ObjectBuilder::new()
        .schema_type(Type::Object)
        .description(Some("One event of the stream. Comments keep it open."))
        .property("id", id)
        .property("data", data)
        .required("data")
}

/// Removes schemas that nothing refers to.
pub(super) fn remove_unused(document: &mut OpenApi) {
    let Ok(Value::Object(mut whole)) = serde_json::to_value(&*document) else {
        return;
    };
    let schemas = whole
        .get_mut("components")
        .and_then(|components| components.as_object_mut()?.remove("schemas"));
    let schemas: BTreeMap<String, Value> = schemas
        .and_then(|schemas| serde_json::from_value(schemas).ok())
        .unwrap_or_default();
    let mut used = BTreeSet::new();
    let mut unread = references(&Value::Object(whole));
    while let Some(name) = unread.pop() {
        if let Some(schema) = schemas.get(&name)
            && used.insert(name)
        {
            unread.extend(references(schema));
        }
    }
    if let Some(components) = &mut document.components {
        components.schemas.retain(|name, _| used.contains(name));
    }
}

/// Returns the names of the schemas that a part of a document refers to.
fn references(part: &Value) -> Vec<String> {
    match part {
        Value::Object(fields) => fields
            .iter()
            .flat_map(|(key, value)| match value.as_str() {
                Some(text) if key == "$ref" => {
                    let name = text.strip_prefix(SCHEMAS);
                    name.map(str::to_owned).into_iter().collect()
                }
                _ => references(value),
            })
            .collect(),
        Value::Array(items) => items.iter().flat_map(references).collect(),
        _ => Vec::new(),
    }
}

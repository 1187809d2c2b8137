//! Schemas of request bodies and event streams.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use utoipa::openapi::{
    Components, ObjectBuilder, OpenApi, Ref, RefOr, Required, Schema,
    path::Operation,
    schema::{SchemaType, Type},
};

const SCHEMAS: &str = "#/components/schemas/";
const EVENT_STREAM: &str = "text/event-stream";
const LAST_EVENT_ID: &str = "Last-Event-ID";

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
///
/// Streams whose `Last-Event-ID` is a number have one in each event. Those whose id is a text have
/// the number after the id of what they are about, and events after which no stream continues.
pub(super) fn describe_streams(operation: &mut Operation) {
    let has_numbers = has_numeric_ids(operation);
    for response in operation.responses.responses.values_mut() {
        let RefOr::T(response) = response else {
            continue;
        };
        if let Some(RefOr::T(content)) = response.content.get_mut(EVENT_STREAM)
            && let Some(RefOr::Ref(data)) = &content.schema
        {
            content.schema = Some(event_schema(data.clone(), has_numbers).into());
        }
    }
}

fn has_numeric_ids(operation: &Operation) -> bool {
    let mut parameters = operation.parameters.iter().flatten();
    !parameters.any(|parameter| match parameter {
        RefOr::T(parameter) if parameter.name == LAST_EVENT_ID => match &parameter.schema {
            Some(RefOr::T(Schema::Object(schema))) => is_text(&schema.schema_type),
            _ => false,
        },
        _ => false,
    })
}

/// Returns whether values of a type may be texts.
fn is_text(schema_type: &SchemaType) -> bool {
    match schema_type {
        SchemaType::Type(only) => *only == Type::String,
        SchemaType::Array(types) => types.contains(&Type::String),
        SchemaType::AnyValue => false,
    }
}

/// Returns the schema of an event whose data is JSON of the schema `data`.
fn event_schema(data: Ref, has_numbers: bool) -> ObjectBuilder {
    let pattern = match has_numbers {
        true => "^[0-9]+$",
        false => "^[a-z]+_[0-9a-z]+:[0-9]+$",
    };
    let id = ObjectBuilder::new()
        .schema_type(Type::String)
        .pattern(Some(pattern))
        .description(Some(
            "The event's id, which `Last-Event-ID` continues after",
        ));
    let data = ObjectBuilder::new()
        .schema_type(Type::String)
        .content_media_type("application/json")
        .content_schema(Some(data));
    let event = ObjectBuilder::new()
        .schema_type(Type::Object)
        .description(Some("One event of the stream. Comments keep it open."))
        .property("id", id);
    let event = match has_numbers {
        true => event.required("id"),
        false => event,
    };
    event.property("data", data).required("data")
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

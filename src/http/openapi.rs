//! Assembles a server's OpenAPI document from those of its routes.

use utoipa::openapi::{
    ComponentsBuilder, InfoBuilder, OpenApi, PathItem, RefOr, SecurityRequirement,
    path::Operation,
    security::{HttpAuthScheme, HttpBuilder, SecurityScheme},
    tag::TagBuilder,
};

use crate::api::{ErrorBody, groups};

const BEARER: &str = "bearer";

/// The general part of a server's OpenAPI document.
#[derive(Debug, Clone, Copy)]
pub struct ApiInfo {
    pub title: &'static str,
    /// Conventions of all operations, in Markdown.
    pub description: &'static str,
}

/// Returns one document of both groups of routes, the guarded ones marked as such.
#[must_use]
pub fn document(info: ApiInfo, mut open: OpenApi, mut guarded: OpenApi) -> OpenApi {
    let requirement = SecurityRequirement::new(BEARER, Vec::<String>::new());
    for operation in guarded.paths.paths.values_mut().flat_map(operations) {
        operation.security = Some(vec![requirement.clone()]);
    }
    open.merge(guarded);
    open.info = InfoBuilder::new()
        .title(info.title)
        .description(Some(info.description))
        .version(env!("CARGO_PKG_VERSION"))
        .build();
    let mut components = open
        .components
        .take()
        .map_or_else(ComponentsBuilder::new, ComponentsBuilder::from)
        .schema_from::<ErrorBody>()
        .build();
    let bearer = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some("The server's token or an API key"))
        .build();
    components.add_security_scheme(BEARER, SecurityScheme::Http(bearer));
    open.components = Some(components);
    describe_groups(&mut open);
    for operation in open.paths.paths.values_mut().flat_map(operations) {
        describe_responses(operation);
    }
    open
}

/// Lists the groups that have an operation, in the order of the reference.
fn describe_groups(document: &mut OpenApi) {
    let items = document.paths.paths.values_mut();
    let used: Vec<String> = items
        .flat_map(operations)
        .flat_map(|operation| operation.tags.clone().unwrap_or_default())
        .collect();
    let tags = groups::ALL
        .iter()
        .filter(|group| used.iter().any(|name| name == group.name))
        .map(|group| {
            TagBuilder::new()
                .name(group.name)
                .description(Some(group.description))
                .build()
        });
    document.tags = Some(tags.collect());
}

/// Describes the responses that have no description, by their status.
fn describe_responses(operation: &mut Operation) {
    for (status, response) in &mut operation.responses.responses {
        let RefOr::T(response) = response else {
            continue;
        };
        if !response.description.is_empty() {
            continue;
        }
        response.description = match status.as_str() {
            "200" => "Success",
            "201" => "Created",
            "206" => "The requested range",
            "400" => "The request is invalid; `details` has one entry per field",
            "401" => "The credential is missing or invalid",
            "404" => "The resource does not exist",
            _ => "See the error code",
        }
        .to_owned();
    }
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    [
        item.get.as_mut(),
        item.put.as_mut(),
        item.post.as_mut(),
        item.delete.as_mut(),
        item.patch.as_mut(),
        item.head.as_mut(),
    ]
    .into_iter()
    .flatten()
}

//! Assembles a server's OpenAPI document from those of its routes.
//!
//! The routes declare their own parameters, bodies and errors. Added here is what they have in
//! common: how to authenticate (`security`), errors that the extractors and the guard respond with
//! and headers that belong to a status (`responses`), and the form of streams (`schemas`).

use http::Method;
use utoipa::openapi::{
    ComponentsBuilder, InfoBuilder, OpenApi, PathItem, path::Operation, tag::TagBuilder,
};

use crate::api::{ErrorBody, groups};

mod responses;
mod schemas;
mod security;

pub use responses::declare_errors;
pub use security::SessionRoutes;

/// The general part of a server's OpenAPI document.
#[derive(Debug, Clone, Copy)]
pub struct ApiInfo {
    pub title: &'static str,
    /// Conventions of all operations, in Markdown.
    pub description: &'static str,
    /// Describes the bearer token that guarded routes require.
    pub bearer: &'static str,
    /// Statuses with which the guard rejects requests, besides 401.
    pub guard_errors: &'static [u16],
    /// Routes that also accept a token in the query.
    pub session_routes: Option<SessionRoutes>,
}

/// Returns one document of both groups of routes, the guarded ones marked as such.
#[must_use]
pub fn document(info: ApiInfo, mut open: OpenApi, mut guarded: OpenApi) -> OpenApi {
    for (path, item) in &mut guarded.paths.paths {
        for (method, operation) in operations(item) {
            operation.security = Some(security::requirements(&info, &method, path));
            responses::declare(operation, &[401]);
            responses::declare(operation, info.guard_errors);
        }
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
    components.security_schemes.extend(security::schemes(&info));
    components.headers.extend(responses::shared_headers());
    components.responses.extend(responses::shared_errors());
    for item in open.paths.paths.values_mut() {
        let has_path_parameters = item.parameters.is_some();
        for (_, operation) in operations(item) {
            schemas::complete_request_body(operation, &components);
            responses::complete(operation, has_path_parameters);
            schemas::describe_streams(operation);
        }
    }
    open.components = Some(components);
    describe_groups(&mut open);
    schemas::remove_unused(&mut open);
    open
}

/// Lists the groups that have an operation, in the order of the reference.
fn describe_groups(document: &mut OpenApi) {
    let items = document.paths.paths.values_mut();
    let used: Vec<String> = items
        .flat_map(operations)
        .flat_map(|(_, operation)| operation.tags.clone().unwrap_or_default())
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

fn operations(item: &mut PathItem) -> impl Iterator<Item = (Method, &mut Operation)> {
    [
        (Method::GET, item.get.as_mut()),
        (Method::PUT, item.put.as_mut()),
        (Method::POST, item.post.as_mut()),
        (Method::DELETE, item.delete.as_mut()),
        (Method::PATCH, item.patch.as_mut()),
        (Method::HEAD, item.head.as_mut()),
    ]
    .into_iter()
    .filter_map(|(method, operation)| Some((method, operation?)))
}

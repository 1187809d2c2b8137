//! Assembling a server's routes with what every server has.

use axum::Router;
use axum::middleware::from_fn;
use axum::response::Redirect;
use axum::routing::get;
use http::header::CONTENT_TYPE;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{ComponentsBuilder, InfoBuilder, OpenApi, SecurityRequirement};
use utoipa_axum::router::OpenApiRouter;
use utoipa_swagger_ui::{Config, SwaggerUi};

use super::observe::observe;
use super::{ApiError, Metrics};
use crate::api::ErrorBody;

const METRICS_CONTENT_TYPE: &str = "text/plain; version=0.0.4";
const BEARER: &str = "bearer";

/// The tag of the routes that tell about the server itself.
#[must_use]
pub fn health_tag() -> &'static str {
    "server"
}

/// A server's routes: those anyone may ask, and those behind the guard.
pub struct App {
    pub title: &'static str,
    pub open: OpenApiRouter,
    pub guarded: OpenApiRouter,
}

impl App {
    /// The OpenAPI document of these routes.
    #[must_use]
    pub fn document(&self) -> OpenApi {
        document(
            self.title,
            self.open.get_openapi().clone(),
            self.guarded.get_openapi().clone(),
        )
    }

    /// The whole router: `guard` is put before every guarded route, `/metrics` included.
    pub fn router(self, metrics: Metrics, guard: impl FnOnce(Router) -> Router) -> Router {
        let document = self.document();
        let (open, _) = self.open.split_for_parts();
        let (guarded, _) = self.guarded.split_for_parts();
        let guarded = guarded.route(
            "/metrics",
            get(move || async move { ([(CONTENT_TYPE, METRICS_CONTENT_TYPE)], metrics.render()) }),
        );
        let docs = SwaggerUi::new("/docs")
            .url("/openapi.json", document)
            // The page works without asking anyone on the network.
            .config(Config::default().validator_url("none"));
        open.merge(guard(guarded))
            .merge(docs)
            .route("/", get(|| async { Redirect::temporary("/docs/") }))
            .fallback(|| async { ApiError::not_found("no such route") })
            .layer(from_fn(observe))
    }
}

/// One document of both groups of routes, the guarded ones marked as such.
#[must_use]
pub fn document(title: &str, mut open: OpenApi, mut guarded: OpenApi) -> OpenApi {
    let requirement = SecurityRequirement::new(BEARER, Vec::<String>::new());
    for operation in guarded.paths.paths.values_mut().flat_map(operations) {
        operation.security = Some(vec![requirement.clone()]);
    }
    open.merge(guarded);
    open.info = InfoBuilder::new()
        .title(title)
        .version(env!("CARGO_PKG_VERSION"))
        .build();
    let mut components = open
        .components
        .take()
        .map_or_else(ComponentsBuilder::new, ComponentsBuilder::from)
        .schema_from::<ErrorBody>()
        .build();
    components.add_security_scheme(
        BEARER,
        SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build()),
    );
    open.components = Some(components);
    open
}

fn operations(
    item: &mut utoipa::openapi::PathItem,
) -> impl Iterator<Item = &mut utoipa::openapi::path::Operation> {
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

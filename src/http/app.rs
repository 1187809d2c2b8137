//! A server's router: its routes, the guard, `/metrics`, `/docs` and the error format.

use axum::{
    Router,
    extract::Request,
    middleware::{Next, from_fn},
    response::{IntoResponse, Redirect, Response},
    routing::get,
};
use http::header::{CONTENT_TYPE, HOST};
use utoipa::openapi::OpenApi;
use utoipa_axum::router::OpenApiRouter;

use super::{
    ApiError, Metrics,
    connections::keep_authenticated,
    docs,
    openapi::{ApiInfo, document},
    telemetry::record_request,
};

const METRICS_CONTENT_TYPE: &str = "text/plain; version=0.0.4";

/// A server's routes: the public ones, and those behind the guard.
pub struct App {
    pub info: ApiInfo,
    pub open: OpenApiRouter,
    pub guarded: OpenApiRouter,
    /// Set if control forwards requests to the server, which it logs itself.
    pub is_behind_control: bool,
}

impl App {
    /// Returns the OpenAPI document of these routes.
    #[must_use]
    pub fn document(&self) -> OpenApi {
        document(
            self.info,
            self.open.get_openapi().clone(),
            self.guarded.get_openapi().clone(),
        )
    }

    /// Builds the router. `guard` protects every guarded route and `/metrics`.
    pub fn router(self, metrics: Metrics, guard: impl FnOnce(Router) -> Router) -> Router {
        let document = self.document();
        let is_behind_control = self.is_behind_control;
        let (open, _) = self.open.split_for_parts();
        let (guarded, _) = self.guarded.split_for_parts();
        let guarded =
            guarded
                .route(
                    "/metrics",
                    get(move || async move {
                        ([(CONTENT_TYPE, METRICS_CONTENT_TYPE)], metrics.render())
                    }),
                )
                .route_layer(from_fn(keep_authenticated));
        let mut router = open.merge(guard(guarded));
        if !document.paths.paths.contains_key("/") {
            router = router.route("/", get(|| async { Redirect::temporary("/docs/") }));
        }
        router
            .merge(docs::router(document))
            .fallback(|| async { ApiError::not_found("no such route") })
            // One layer for both, because each costs every request some microseconds.
            .layer(from_fn(move |request, next| {
                let respond = |request| respond_to_one_host(request, next);
                record_request(request, respond, is_behind_control)
            }))
    }
}

/// Responds to a request, unless it has several `Host` headers, of which a proxy may have used
/// another one than this server does.
async fn respond_to_one_host(request: Request, next: Next) -> Response {
    if request.headers().get_all(HOST).iter().count() > 1 {
        let message = "a request must have only one Host header";
        return ApiError::bad_request(message).into_response();
    }
    next.run(request).await
}

#[cfg(test)]
mod tests {
    use axum::{body::Body, middleware::from_fn_with_state};
    use deserr::Deserr;
    use http::{Request, StatusCode};
    use http_body_util::BodyExt;
    use secrecy::SecretString;
    use tower::ServiceExt;
    use utoipa_axum::routes;

    use super::*;
    use crate::{
        api::ErrorBody,
        http::{
            FieldErrors, JSON_BODY_LIMIT, Json, PassThrough, StaticToken, require_static_token,
        },
    };

    #[derive(Deserr, utoipa::ToSchema)]
    #[deserr(error = FieldErrors)]
    struct Greeting {
        name: String,
    }

    #[utoipa::path(post, path = "/greet", responses((status = 200)))]
    async fn greet(Json(greeting): Json<Greeting>) -> String {
        greeting.name
    }

    #[utoipa::path(get, path = "/panic", responses((status = 200)))]
    async fn panic_in_handler() {
        panic!("the secret of the handler");
    }

    #[utoipa::path(get, path = "/relayed", responses((status = 416)))]
    async fn relayed() -> Response<Body> {
        let mut response = Response::new(Body::from("unchanged"));
        *response.status_mut() = StatusCode::RANGE_NOT_SATISFIABLE;
        let range = http::HeaderValue::from_static("bytes */5");
        response.headers_mut().insert("content-range", range);
        response.extensions_mut().insert(PassThrough);
        response
    }

    fn app() -> Router {
        let app = App {
            is_behind_control: false,
            info: ApiInfo {
                title: "test",
                description: "",
                bearer: "",
                guard_errors: &[],
                session_routes: None,
            },
            open: OpenApiRouter::new(),
            guarded: OpenApiRouter::new()
                .routes(routes!(greet))
                .routes(routes!(panic_in_handler))
                .routes(routes!(relayed)),
        };
        let token = StaticToken::new(Some(&SecretString::from("let me in")));
        app.router(Metrics::install(), |guarded| {
            guarded.route_layer(from_fn_with_state(token, require_static_token))
        })
    }

    fn request(method: &str, path: &str) -> http::request::Builder {
        Request::builder()
            .method(method)
            .uri(path)
            .header("authorization", "Bearer let me in")
    }

    fn json(method: &str, path: &str) -> http::request::Builder {
        request(method, path).header("content-type", "application/json")
    }

    async fn send(request: Request<Body>) -> (Response<()>, String) {
        let (parts, body) = app().oneshot(request).await.unwrap().into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        (
            Response::from_parts(parts, ()),
            String::from_utf8(bytes.to_vec()).unwrap(),
        )
    }

    async fn error(request: Request<Body>) -> (StatusCode, ErrorBody, Response<()>) {
        let (response, body) = send(request).await;
        assert_eq!(
            response.headers()[CONTENT_TYPE],
            "application/json",
            "{body}"
        );
        assert!(response.headers().contains_key("x-request-id"));
        (
            response.status(),
            serde_json::from_str(&body).unwrap(),
            response,
        )
    }

    #[tokio::test]
    #[expect(clippy::too_many_lines, reason = "a table of requests")]
    async fn errors_of_the_framework_use_the_error_format() {
        let empty = Body::empty;
        let cases = [
            (request("GET", "/nowhere").body(empty()), 404, "not_found"),
            (
                request("GET", "/nowhere")
                    .header("host", "a")
                    .header("host", "b")
                    .body(empty()),
                400,
                "bad_request",
            ),
            (
                request("GET", "/greet").body(empty()),
                405,
                "method_not_allowed",
            ),
            (
                request("POST", "/greet").body(Body::from("{}")),
                415,
                "unsupported_media_type",
            ),
            (
                json("POST", "/greet").body(Body::from("{")),
                400,
                "bad_request",
            ),
            (
                json("POST", "/greet").body(Body::from("{\"name\":\"\\ud800\"}")),
                400,
                "bad_request",
            ),
            (request("POST", "/greet").body(empty()), 400, "bad_request"),
            (
                request("POST", "/greet")
                    .header("content-type", "text/plain")
                    .body(Body::from("{}")),
                415,
                "unsupported_media_type",
            ),
            (
                request("POST", "/greet").body(Body::from(vec![b' '; JSON_BODY_LIMIT + 1])),
                413,
                "payload_too_large",
            ),
            (
                request("GET", "/panic").body(empty()),
                500,
                "internal_error",
            ),
            (Request::get("/greet").body(empty()), 401, "unauthorized"),
            (Request::post("/greet").body(empty()), 401, "unauthorized"),
            (Request::get("/metrics").body(empty()), 401, "unauthorized"),
        ];
        for (request, status, code) in cases {
            let request = request.unwrap();
            let target = format!("{} {}", request.method(), request.uri());
            let (actual, body, response) = error(request).await;
            assert_eq!(
                (actual.as_u16(), body.code.as_str()),
                (status, code),
                "{target}"
            );
            match status {
                401 => assert_eq!(response.headers()["www-authenticate"], "Bearer"),
                405 => assert!(response.headers().contains_key("allow"), "{target}"),
                _ => {}
            }
            assert!(!body.message.contains("secret"));
        }
    }

    #[tokio::test]
    async fn every_response_forbids_content_sniffing() {
        for path in [
            "/relayed",
            "/nowhere",
            "/panic",
            "/metrics",
            "/openapi.json",
            "/docs/",
        ] {
            let (response, _) = send(request("GET", path).body(Body::empty()).unwrap()).await;
            let header = response.headers().get("x-content-type-options");
            assert_eq!(header.unwrap(), "nosniff", "{path}");
        }
    }

    #[tokio::test]
    async fn relayed_error_is_not_normalized() {
        let (response, body) = send(request("GET", "/relayed").body(Body::empty()).unwrap()).await;
        assert_eq!(response.status(), 416);
        assert_eq!(response.headers()["content-range"], "bytes */5");
        assert_eq!(body, "unchanged");
    }

    #[tokio::test]
    async fn root_leads_to_the_reference_if_the_server_has_no_page_there() {
        let (response, _) = send(Request::get("/").body(Body::empty()).unwrap()).await;
        assert_eq!(response.status(), StatusCode::TEMPORARY_REDIRECT);
        assert_eq!(response.headers()["location"], "/docs/");
    }

    #[tokio::test]
    async fn unknown_method_is_labelled_other() {
        send(request("BREW", "/nowhere").body(Body::empty()).unwrap()).await;
        let (_, metrics) = send(request("GET", "/metrics").body(Body::empty()).unwrap()).await;
        assert!(metrics.contains("method=\"other\""), "{metrics}");
        assert!(!metrics.contains("BREW"), "{metrics}");
    }

    #[tokio::test]
    async fn body_without_content_length_is_bounded() {
        let chunks =
            (0..=JSON_BODY_LIMIT / 65536).map(|_| Ok::<_, std::io::Error>(vec![b' '; 65536]));
        let body = Body::from_stream(futures::stream::iter(chunks));
        let (status, ..) = error(request("POST", "/greet").body(body).unwrap()).await;
        assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    }

    #[tokio::test]
    async fn request_id_is_kept_if_it_is_valid() {
        let id_of = |id: &'static [u8]| async move {
            let request = request("GET", "/nowhere")
                .header("x-request-id", http::HeaderValue::from_bytes(id).unwrap());
            let (response, _) = send(request.body(Body::empty()).unwrap()).await;
            response.headers()["x-request-id"]
                .to_str()
                .unwrap()
                .to_owned()
        };
        assert_eq!(id_of(b"abc-1").await, "abc-1");
        assert!(id_of(b"two words").await.starts_with("req_"));
        assert!(id_of(&[b'a'; 129]).await.starts_with("req_"));
    }

    #[tokio::test]
    async fn openapi_document_is_public_and_metrics_are_guarded() {
        let (response, body) =
            send(Request::get("/openapi.json").body(Body::empty()).unwrap()).await;
        assert_eq!(response.status(), StatusCode::OK);
        let document: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert!(document["paths"]["/greet"]["post"]["security"][0]["bearer"].is_array());
        let (response, page) = send(Request::get("/docs/").body(Body::empty()).unwrap()).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert!(page.contains("scalar.js"));
        let (script, _) = send(Request::get("/docs/scalar.js").body(Body::empty()).unwrap()).await;
        assert_eq!(script.status(), StatusCode::OK);
        let (_, metrics) = send(request("GET", "/metrics").body(Body::empty()).unwrap()).await;
        assert!(metrics.contains("berth_http_request_seconds"), "{metrics}");
    }
}

//! Assembling a server's routes with what every server has.

use axum::Router;
use axum::middleware::from_fn;
use axum::response::Redirect;
use axum::routing::get;
use http::header::CONTENT_TYPE;
use utoipa::openapi::OpenApi;
use utoipa_axum::router::OpenApiRouter;

use super::observe::observe;
use super::openapi::{ApiInfo, document};
use super::{ApiError, Metrics, docs};

const METRICS_CONTENT_TYPE: &str = "text/plain; version=0.0.4";

/// A server's routes: those anyone may ask, and those behind the guard.
pub struct App {
    pub info: ApiInfo,
    pub open: OpenApiRouter,
    pub guarded: OpenApiRouter,
}

impl App {
    /// The OpenAPI document of these routes.
    #[must_use]
    pub fn document(&self) -> OpenApi {
        document(
            self.info,
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
        open.merge(guard(guarded))
            .merge(docs::router(document))
            .route("/", get(|| async { Redirect::temporary("/docs/") }))
            .fallback(|| async { ApiError::not_found("no such route") })
            .layer(from_fn(observe))
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::middleware::from_fn_with_state;
    use axum::response::Response;
    use deserr::Deserr;
    use http::{Request, StatusCode};
    use http_body_util::BodyExt;
    use secrecy::SecretString;
    use tower::ServiceExt;
    use utoipa_axum::routes;

    use super::*;
    use crate::{
        api::ErrorBody,
        http::{AsItIs, FieldErrors, JSON_BODY_LIMIT, Json, StaticToken, require_static_token},
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
    async fn panics() {
        panic!("the secret of the handler");
    }

    #[utoipa::path(get, path = "/passed", responses((status = 416)))]
    async fn passed() -> Response<Body> {
        let mut answer = Response::new(Body::from("as it came"));
        *answer.status_mut() = StatusCode::RANGE_NOT_SATISFIABLE;
        let range = http::HeaderValue::from_static("bytes */5");
        answer.headers_mut().insert("content-range", range);
        answer.extensions_mut().insert(AsItIs);
        answer
    }

    fn app() -> Router {
        let app = App {
            info: ApiInfo {
                title: "test",
                description: "",
            },
            open: OpenApiRouter::new(),
            guarded: OpenApiRouter::new()
                .routes(routes!(greet))
                .routes(routes!(panics))
                .routes(routes!(passed)),
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

    async fn ask(request: Request<Body>) -> (Response<()>, String) {
        let (parts, body) = app().oneshot(request).await.unwrap().into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        (
            Response::from_parts(parts, ()),
            String::from_utf8(bytes.to_vec()).unwrap(),
        )
    }

    async fn error(request: Request<Body>) -> (StatusCode, ErrorBody, Response<()>) {
        let (response, body) = ask(request).await;
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
    async fn what_the_framework_refuses_has_the_one_error_shape() {
        let empty = Body::empty;
        let cases = [
            (request("GET", "/nowhere").body(empty()), 404, "not_found"),
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
            let what = format!("{} {}", request.method(), request.uri());
            let (found, body, response) = error(request).await;
            assert_eq!(
                (found.as_u16(), body.code.as_str()),
                (status, code),
                "{what}"
            );
            match status {
                401 => assert_eq!(response.headers()["www-authenticate"], "Bearer"),
                405 => assert!(response.headers().contains_key("allow"), "{what}"),
                _ => {}
            }
            assert!(!body.message.contains("secret"));
        }
    }

    #[tokio::test]
    async fn an_answer_that_is_passed_on_keeps_its_shape() {
        let (response, body) = ask(request("GET", "/passed").body(Body::empty()).unwrap()).await;
        assert_eq!(response.status(), 416);
        assert_eq!(response.headers()["content-range"], "bytes */5");
        assert_eq!(body, "as it came");
    }

    #[tokio::test]
    async fn a_made_up_method_makes_no_series() {
        ask(request("BREW", "/nowhere").body(Body::empty()).unwrap()).await;
        let (_, figures) = ask(request("GET", "/metrics").body(Body::empty()).unwrap()).await;
        assert!(figures.contains("method=\"other\""), "{figures}");
        assert!(!figures.contains("BREW"), "{figures}");
    }

    #[tokio::test]
    async fn a_body_without_a_declared_length_is_bounded_as_well() {
        let chunks =
            (0..=JSON_BODY_LIMIT / 65536).map(|_| Ok::<_, std::io::Error>(vec![b' '; 65536]));
        let body = Body::from_stream(futures::stream::iter(chunks));
        let (status, ..) = error(request("POST", "/greet").body(body).unwrap()).await;
        assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    }

    #[tokio::test]
    async fn a_request_id_is_kept_where_it_is_fit_for_a_log_line() {
        let id_of = |id: &'static [u8]| async move {
            let request = request("GET", "/nowhere")
                .header("x-request-id", http::HeaderValue::from_bytes(id).unwrap());
            let (response, _) = ask(request.body(Body::empty()).unwrap()).await;
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
    async fn the_document_and_its_page_are_open_and_the_figures_are_not() {
        let (response, body) =
            ask(Request::get("/openapi.json").body(Body::empty()).unwrap()).await;
        assert_eq!(response.status(), StatusCode::OK);
        let document: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert!(document["paths"]["/greet"]["post"]["security"][0]["bearer"].is_array());
        let (response, page) = ask(Request::get("/docs/").body(Body::empty()).unwrap()).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert!(page.contains("scalar.js"));
        let (script, _) = ask(Request::get("/docs/scalar.js").body(Body::empty()).unwrap()).await;
        assert_eq!(script.status(), StatusCode::OK);
        let (_, figures) = ask(request("GET", "/metrics").body(Body::empty()).unwrap()).await;
        assert!(figures.contains("berth_http_request_seconds"), "{figures}");
    }
}

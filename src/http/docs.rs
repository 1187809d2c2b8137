//! The API reference: `/openapi.json`, and `/docs/`, which renders it with Scalar.
//!
//! Every asset comes from this server, and the Content-Security-Policy of the page allows no other
//! origin, so the reference also works without access to the internet. The routes are open: they
//! reveal nothing that the source code does not.

use std::sync::{Arc, LazyLock};

use axum::{
    Json, Router,
    response::{Html, IntoResponse, Redirect, Response},
    routing::get,
};
use bytes::Bytes;
use http::{
    HeaderName, HeaderValue, StatusCode,
    header::{
        CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY,
        X_CONTENT_TYPE_OPTIONS,
    },
};
use utoipa::openapi::OpenApi;

const INDEX_HTML: &str = include_str!("docs/index.html");
const REFERENCE_JS: &str = include_str!("docs/reference.js");

/// Allows this server's scripts, requests to this server, and styles. Scalar adds style elements
/// and attributes at run time, which no hash can cover; without scripts and external requests
/// inline styles are harmless. `data:` images are the icons within Scalar's style sheet.
const CONTENT_POLICY: &str = "default-src 'none'; script-src 'self'; \
     style-src 'unsafe-inline'; img-src data:; connect-src 'self'; base-uri 'none'; \
     form-action 'none'; frame-ancestors 'none'";

/// The Scalar bundle (5 MB), copied out of the crate on first use: most processes never serve it.
static SCALAR_JS: LazyLock<Option<Bytes>> =
    LazyLock::new(|| scalar_api_reference::get_asset("scalar.js").map(Bytes::from));

/// Returns the routes of the API reference for `document`.
pub(super) fn router(document: OpenApi) -> Router {
    let index: Arc<str> = INDEX_HTML.replace("{{title}}", &document.info.title).into();
    let document = Arc::new(document);
    Router::new()
        .route(
            "/openapi.json",
            get(async move || Json(document).into_response()),
        )
        .route("/docs", get(async || Redirect::temporary("/docs/")))
        .route("/docs/", get(async move || index_page(&index)))
        .route("/docs/reference.js", get(async || script(REFERENCE_JS)))
        .route("/docs/scalar.js", get(async || scalar_script()))
}

fn index_page(html: &str) -> Response {
    let headers: [(HeaderName, HeaderValue); 4] = [
        (
            CONTENT_SECURITY_POLICY,
            HeaderValue::from_static(CONTENT_POLICY),
        ),
        (CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    ];
    (headers, Html(html.to_owned())).into_response()
}

fn scalar_script() -> Response {
    match &*SCALAR_JS {
        Some(bundle) => script(bundle.clone()),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

/// Returns a script. Its address has no version, so browsers may cache it for an hour only.
fn script(text: impl IntoResponse) -> Response {
    let headers = [
        (
            CONTENT_TYPE,
            HeaderValue::from_static("text/javascript; charset=utf-8"),
        ),
        (
            CACHE_CONTROL,
            HeaderValue::from_static("public, max-age=3600"),
        ),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    ];
    (headers, text).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_page_allows_no_other_origin() {
        let response = index_page(INDEX_HTML);
        let policy = response.headers()[CONTENT_SECURITY_POLICY]
            .to_str()
            .unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self';"));
        for text in [policy, INDEX_HTML, REFERENCE_JS] {
            assert!(
                !text.contains("http:") && !text.contains("https:"),
                "{text}"
            );
        }
    }
}

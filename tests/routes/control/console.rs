//! `/` and `/console`. `flows::console` uses the page in a browser.

use reqwest::{
    Method, Response, StatusCode,
    header::{HeaderMap, IF_NONE_MATCH},
};

use crate::support::dev::{Answer, Dev};

const ASSETS: [(&str, &str); 4] = [
    ("/", "text/html; charset=utf-8"),
    ("/console/main.js", "text/javascript; charset=utf-8"),
    ("/console/console.css", "text/css; charset=utf-8"),
    ("/console/icon.svg", "image/svg+xml"),
];

async fn fetch(dev: &Dev, method: Method, path: &str) -> Response {
    dev.anonymous(method, path).send().await.unwrap()
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    let value = headers.get(name);
    value.map_or("", |value| value.to_str().unwrap())
}

/// Asserts what every response of the console says to a browser.
fn assert_protected(headers: &HeaderMap, path: &str) {
    for (name, expected) in [
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cache-control", "no-cache"),
    ] {
        assert_eq!(text(headers, name), expected, "{path}: {name}");
    }
    let policy = text(headers, "content-security-policy");
    let directives: Vec<&str> = policy.split("; ").collect();
    for expected in [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' blob:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    ] {
        assert!(directives.contains(&expected), "{path}: {policy}");
    }
    assert!(!policy.contains("unsafe"), "{path}: {policy}");
}

#[tokio::test]
async fn page_and_its_files_need_no_key_and_are_protected() {
    let dev = Dev::start().await;
    for (path, content_type) in ASSETS {
        let response = fetch(&dev, Method::GET, path).await;
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        let headers = response.headers().clone();
        assert_protected(&headers, path);
        assert_eq!(text(&headers, "content-type"), content_type, "{path}");
        let body = response.text().await.unwrap();

        let head = fetch(&dev, Method::HEAD, path).await;
        assert_eq!(head.status(), StatusCode::OK, "{path}");
        let length = text(head.headers(), "content-length");
        assert_eq!(length, body.len().to_string(), "{path}");
        assert_eq!(text(head.headers(), "etag"), text(&headers, "etag"));
        assert_eq!(head.text().await.unwrap(), "");
    }
    dev.finish().await;
}

#[tokio::test]
async fn current_copy_is_304_and_other_copy_is_replaced() {
    let dev = Dev::start().await;
    for (path, _) in ASSETS {
        let response = fetch(&dev, Method::GET, path).await;
        let etag = text(response.headers(), "etag").to_owned();
        assert!(etag.starts_with('"') && etag.len() > 20, "{path}: {etag}");
        let weak = format!("\"other\", W/{etag}");
        for (tags, expected) in [
            (etag.as_str(), StatusCode::NOT_MODIFIED),
            (&weak, StatusCode::NOT_MODIFIED),
            ("*", StatusCode::NOT_MODIFIED),
            ("\"other\"", StatusCode::OK),
            ("other", StatusCode::OK),
        ] {
            let request = dev.anonymous(Method::GET, path);
            let response = request.header(IF_NONE_MATCH, tags).send().await.unwrap();
            assert_eq!(response.status(), expected, "{path}: {tags}");
            assert_protected(response.headers(), path);
            assert_eq!(text(response.headers(), "etag"), etag);
            let body = response.bytes().await.unwrap();
            let is_empty = expected == StatusCode::NOT_MODIFIED;
            assert_eq!(body.is_empty(), is_empty, "{path}: {tags}");
        }
    }
    dev.finish().await;
}

#[tokio::test]
async fn unknown_file_is_404_and_other_method_405() {
    let dev = Dev::start().await;
    for path in [
        "/console/none.js",
        "/console/index.html",
        "/console/Main.js",
        "/console/..%2fmod.rs",
        "/console/",
        "/console",
    ] {
        let answer = Answer::of(dev.anonymous(Method::GET, path)).await;
        answer.assert_error(404, "not_found");
    }
    for (path, _) in ASSETS {
        for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            let answer = Answer::of(dev.anonymous(method, path)).await;
            answer.assert_error(405, "method_not_allowed");
            assert_eq!(answer.header("allow"), "GET,HEAD", "{path}");
        }
    }
    dev.finish().await;
}

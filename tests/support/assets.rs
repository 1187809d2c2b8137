//! Files of web pages: what every response has, and how copies are validated.

use reqwest::{
    Method, Response, StatusCode,
    header::{HeaderMap, IF_NONE_MATCH},
};

use super::dev::{Answer, Dev};

pub async fn fetch(dev: &Dev, method: Method, path: &str) -> Response {
    dev.anonymous(method, path).send().await.unwrap()
}

/// Returns the value of a header, or an empty text.
pub fn header<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    let value = headers.get(name);
    value.map_or("", |value| value.to_str().unwrap())
}

/// Asserts that a response has the headers of a file, and these directives in its policy.
pub fn assert_protected(headers: &HeaderMap, path: &str, directives: &[&str]) {
    for (name, expected) in [
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cache-control", "no-cache"),
    ] {
        assert_eq!(header(headers, name), expected, "{path}: {name}");
    }
    let policy = header(headers, "content-security-policy");
    let found: Vec<&str> = policy.split("; ").collect();
    for expected in directives {
        assert!(found.contains(expected), "{path}: {policy}");
    }
    assert!(!policy.contains("unsafe"), "{path}: {policy}");
}

/// Asserts that files need no key, and have their type and a policy with these directives.
pub async fn assert_open(dev: &Dev, files: &[(&str, &str)], directives: &[&str]) {
    for (path, content_type) in files {
        let response = fetch(dev, Method::GET, path).await;
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        let headers = response.headers().clone();
        assert_protected(&headers, path, directives);
        assert_eq!(header(&headers, "content-type"), *content_type, "{path}");
        let body = response.text().await.unwrap();

        let head = fetch(dev, Method::HEAD, path).await;
        assert_eq!(head.status(), StatusCode::OK, "{path}");
        let length = header(head.headers(), "content-length");
        assert_eq!(length, body.len().to_string(), "{path}");
        assert_eq!(header(head.headers(), "etag"), header(&headers, "etag"));
        assert_eq!(head.text().await.unwrap(), "");
    }
}

/// Asserts that a client with the current copy of a file gets 304, and another one the file.
pub async fn assert_validates_copies(dev: &Dev, files: &[(&str, &str)], directives: &[&str]) {
    for (path, _) in files {
        let response = fetch(dev, Method::GET, path).await;
        let etag = header(response.headers(), "etag").to_owned();
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
            assert_protected(response.headers(), path, directives);
            assert_eq!(header(response.headers(), "etag"), etag);
            let body = response.bytes().await.unwrap();
            let is_empty = expected == StatusCode::NOT_MODIFIED;
            assert_eq!(body.is_empty(), is_empty, "{path}: {tags}");
        }
    }
}

/// Asserts that other names are 404, and other methods of the files 405.
pub async fn assert_rejects_others(dev: &Dev, unknown: &[&str], files: &[(&str, &str)]) {
    for path in unknown {
        let answer = Answer::of(dev.anonymous(Method::GET, path)).await;
        answer.assert_error(404, "not_found");
    }
    for (path, _) in files {
        for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            let answer = Answer::of(dev.anonymous(method, path)).await;
            answer.assert_error(405, "method_not_allowed");
            assert_eq!(answer.header("allow"), "GET,HEAD", "{path}");
        }
    }
}

//! Pages of our own: a document with its style and its script in it, so that one token opens all of it.

use axum::response::{Html, IntoResponse, Response};
use base64::{Engine, prelude::BASE64_STANDARD};
use http::{
    HeaderName, HeaderValue,
    header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS},
};
use sha2::{Digest, Sha256};

use super::error::AsItIs;

/// A document, and what a browser may do for it.
pub struct Page {
    html: String,
    policy: HeaderValue,
}

impl Page {
    /// Puts style and script into their places in `document`. Beside these two a browser heeds and loads what `also` allows, in the words
    /// of a content security policy.
    #[must_use]
    pub fn new(document: &str, style: &str, script: &str, also: &'static str) -> Self {
        let policy = format!(
            "default-src 'none'; script-src '{}'; style-src '{}'; base-uri 'none'; form-action 'none'; {also}",
            digest(script),
            digest(style)
        );
        let html = document.replace("{{style}}", style);
        Self {
            html: html.replace("{{script}}", script),
            policy: HeaderValue::try_from(policy).expect("a policy is plain text"),
        }
    }

    /// Its text, with something in each of its other places: `{{name}}` in the document.
    #[must_use]
    pub fn text(&self, places: &[(&str, &str)]) -> String {
        let fill = |html: String, (name, text): &(&str, &str)| {
            html.replace(&format!("{{{{{name}}}}}"), text)
        };
        places.iter().fold(self.html.clone(), fill)
    }

    /// The same as an answer that nobody keeps.
    #[must_use]
    pub fn answer(&self, places: &[(&str, &str)]) -> Response {
        let mut answer = Html(self.text(places)).into_response();
        let headers: [(HeaderName, HeaderValue); 4] = [
            (CONTENT_SECURITY_POLICY, self.policy.clone()),
            (CACHE_CONTROL, HeaderValue::from_static("no-store")),
            // The page's address may bear a token.
            (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
            (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        ];
        answer.headers_mut().extend(headers);
        answer.extensions_mut().insert(AsItIs);
        answer
    }
}

/// By which a browser knows a part of a document that it may heed.
fn digest(part: &str) -> String {
    format!("sha256-{}", BASE64_STANDARD.encode(Sha256::digest(part)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str =
        "<style>{{style}}</style>{{one}}{{two}}{{one}}<script>{{script}}</script>";

    #[test]
    fn every_place_is_filled() {
        let page = Page::new(DOCUMENT, "a{}", "b()", "img-src 'self'");
        let expected = "<style>a{}</style>121<script>b()</script>";
        assert_eq!(page.text(&[("one", "1"), ("two", "2")]), expected);
    }

    #[test]
    fn what_the_policy_allows_is_what_the_page_has() {
        let answer = Page::new(DOCUMENT, "a{}", "b()", "img-src 'self'").answer(&[]);
        let policy = answer.headers()[CONTENT_SECURITY_POLICY].to_str().unwrap();
        let digests = ["a{}", "b()"].map(|part| BASE64_STANDARD.encode(Sha256::digest(part)));
        assert!(policy.contains(&format!("style-src 'sha256-{}'", digests[0])));
        assert!(policy.contains(&format!("script-src 'sha256-{}'", digests[1])));
        assert!(policy.starts_with("default-src 'none';") && policy.ends_with("img-src 'self'"));
    }
}

//! HTML pages with inlined style and script: a single request, with a token in its URL, loads all.

use axum::response::{Html, IntoResponse, Response};
use base64::{Engine, prelude::BASE64_STANDARD};
use http::{
    HeaderName, HeaderValue,
    header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS},
};
use sha2::{Digest, Sha256};

use super::error::PassThrough;

/// An HTML page and its content security policy.
pub struct HtmlPage {
    html: String,
    policy: HeaderValue,
}

impl HtmlPage {
    /// Inserts style and script at `{{style}}` and `{{script}}` of `document`.
    ///
    /// The policy allows only these two, identified by digest, and the directives in
    /// `extra_policy`.
    ///
    /// # Panics
    /// Panics if `extra_policy` is not valid in a header.
    #[expect(clippy::expect_used, reason = "policies are constants of ASCII text")]
    #[must_use]
    pub fn new(document: &str, style: &str, script: &str, extra_policy: &'static str) -> Self {
        let policy = format!(
            "default-src 'none'; script-src '{}'; style-src '{}'; base-uri 'none'; form-action 'none'; {extra_policy}",
            source_digest(script),
            source_digest(style)
        );
        let html = document.replace("{{style}}", style);
        Self {
            html: html.replace("{{script}}", script),
            policy: HeaderValue::try_from(policy).expect("the policy is ASCII text"),
        }
    }

    /// Returns the document with each remaining placeholder `{{name}}` replaced by its value.
    #[must_use]
    pub fn render(&self, values: &[(&str, &str)]) -> String {
        let replace = |html: String, (name, value): &(&str, &str)| {
            html.replace(&format!("{{{{{name}}}}}"), value)
        };
        values.iter().fold(self.html.clone(), replace)
    }

    /// Returns the rendered document as a response that is not cached.
    #[must_use]
    pub fn response(&self, values: &[(&str, &str)]) -> Response {
        let mut response = Html(self.render(values)).into_response();
        let headers: [(HeaderName, HeaderValue); 4] = [
            (CONTENT_SECURITY_POLICY, self.policy.clone()),
            (CACHE_CONTROL, HeaderValue::from_static("no-store")),
            // The page's address may contain a token.
            (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
            (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        ];
        response.headers_mut().extend(headers);
        response.extensions_mut().insert(PassThrough);
        response
    }
}

/// Returns the source expression that allows an inline part of a document.
fn source_digest(part: &str) -> String {
    format!("sha256-{}", BASE64_STANDARD.encode(Sha256::digest(part)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str =
        "<style>{{style}}</style>{{one}}{{two}}{{one}}<script>{{script}}</script>";

    #[test]
    fn every_placeholder_is_replaced() {
        let page = HtmlPage::new(DOCUMENT, "a{}", "b()", "img-src 'self'");
        let expected = "<style>a{}</style>121<script>b()</script>";
        assert_eq!(page.render(&[("one", "1"), ("two", "2")]), expected);
    }

    #[test]
    fn policy_allows_the_inlined_style_and_script() {
        let response = HtmlPage::new(DOCUMENT, "a{}", "b()", "img-src 'self'").response(&[]);
        let policy = response.headers()[CONTENT_SECURITY_POLICY]
            .to_str()
            .unwrap();
        let digests = ["a{}", "b()"].map(|part| BASE64_STANDARD.encode(Sha256::digest(part)));
        assert!(policy.contains(&format!("style-src 'sha256-{}'", digests[0])));
        assert!(policy.contains(&format!("script-src 'sha256-{}'", digests[1])));
        assert!(policy.starts_with("default-src 'none';") && policy.ends_with("img-src 'self'"));
    }
}

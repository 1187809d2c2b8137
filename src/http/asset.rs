//! Files of web pages that are part of the program.

use axum::response::{IntoResponse, Response};
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, StatusCode,
    header::{
        CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, REFERRER_POLICY,
        X_CONTENT_TYPE_OPTIONS,
    },
};
use sha2::{Digest, Sha256};

use super::is_not_modified;

/// Makes browsers validate their copy before each use: the addresses have no version, and all parts
/// must be of the same build.
const CACHE_POLICY: &str = "no-cache";

/// A file of a page, with its entity tag.
#[derive(Debug, Clone)]
pub struct Asset {
    content: Bytes,
    content_type: &'static str,
    etag: HeaderValue,
}

impl Asset {
    pub const HTML: &'static str = "text/html; charset=utf-8";
    pub const SCRIPT: &'static str = "text/javascript; charset=utf-8";
    pub const STYLE: &'static str = "text/css; charset=utf-8";
    pub const JSON: &'static str = "application/json";
    pub const SVG: &'static str = "image/svg+xml";
    pub const PNG: &'static str = "image/png";

    /// Returns a file with this content.
    ///
    /// # Panics
    /// Never: Base64 is valid in a header.
    #[expect(clippy::expect_used, reason = "Base64 is valid in a header")]
    #[must_use]
    pub fn new(content_type: &'static str, content: impl Into<Bytes>) -> Self {
        let content = content.into();
        let digest = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(&content));
        Self {
            content,
            content_type,
            etag: HeaderValue::try_from(format!("\"{digest}\"")).expect("a digest is ASCII text"),
        }
    }

    /// Returns the file with a content security policy, or 304 if the client has it.
    #[must_use]
    pub fn respond(&self, request: &HeaderMap, policy: &HeaderValue) -> Response {
        let headers = [
            (CACHE_CONTROL, HeaderValue::from_static(CACHE_POLICY)),
            (CONTENT_SECURITY_POLICY, policy.clone()),
            (ETAG, self.etag.clone()),
            (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
            (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        ];
        if is_not_modified(request, &self.etag) {
            return (StatusCode::NOT_MODIFIED, headers).into_response();
        }
        let content_type = [(CONTENT_TYPE, HeaderValue::from_static(self.content_type))];
        (headers, content_type, self.content.clone()).into_response()
    }
}

/// Declares the files of a page, which lie in directories relative to the calling module, and the
/// schema of their names. Declares a function that finds a file by its name, too.
macro_rules! assets {
    ($($directory:literal {
        $($variant:ident = $name:literal: $content_type:expr),* $(,)?
    })*) => {
        /// The name of a file of the page.
        #[derive(utoipa::ToSchema)]
        #[expect(dead_code, reason = "only describes the names")]
        pub(super) enum AssetName {
            $($(#[schema(rename = $name)] $variant,)*)*
        }

        static ASSETS: std::sync::LazyLock<Vec<(&str, $crate::http::Asset)>> =
            std::sync::LazyLock::new(|| {
                vec![$($((
                    $name,
                    $crate::http::Asset::new(
                        $content_type,
                        include_str!(concat!($directory, $name)),
                    ),
                ),)*)*]
            });

        /// Returns the file with this name.
        pub(super) fn find(name: &str) -> Option<&'static $crate::http::Asset> {
            let mut assets = ASSETS.iter();
            assets
                .find(|(known, _)| *known == name)
                .map(|(_, asset)| asset)
        }
    };
}

pub(crate) use assets;

/// Checks of the files of a page.
#[cfg(test)]
pub(crate) mod checks {
    use std::collections::BTreeSet;

    use super::Asset;

    impl Asset {
        /// Returns the content of a text file.
        pub(crate) fn text(&self) -> &str {
            std::str::from_utf8(&self.content).unwrap()
        }
    }

    /// Returns the names that lie between each `open` and the next `close`.
    pub(crate) fn between<'a>(
        text: &'a str,
        open: &'a str,
        close: char,
    ) -> impl Iterator<Item = &'a str> {
        text.match_indices(open)
            .filter_map(move |(at, _)| text[at + open.len()..].split_once(close))
            .map(|(inside, _)| inside)
    }

    /// Asserts that a file loads nothing from another server.
    pub(crate) fn assert_refers_to_no_other_server(name: &str, text: &str) {
        let text = text.replace("http://www.w3.org/2000/svg", "");
        for reference in ["http://", "https://", "@import", "url("] {
            assert!(!text.contains(reference), "{name}: {reference}");
        }
    }

    /// Asserts that a file parses no text as HTML or as a script.
    pub(crate) fn assert_parses_no_text(name: &str, text: &str) {
        for sink in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "DOMParser",
            "srcdoc",
        ] {
            assert!(!text.contains(sink), "{name}: {sink}");
        }
    }

    /// Asserts that no two files have the same entity tag.
    pub(crate) fn assert_tags_differ<'a>(assets: impl Iterator<Item = &'a Asset>) {
        let tags: Vec<&[u8]> = assets.map(|asset| asset.etag.as_bytes()).collect();
        let distinct: BTreeSet<_> = tags.iter().collect();
        assert_eq!(distinct.len(), tags.len());
    }
}

//! The files of the console, which are part of the program.

use std::sync::LazyLock;

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use http::HeaderValue;
use sha2::{Digest, Sha256};
use utoipa::ToSchema;

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const IMAGE: &str = "image/svg+xml";

/// A file of the console.
pub(super) struct Asset {
    pub(super) content: &'static str,
    pub(super) content_type: &'static str,
    pub(super) etag: HeaderValue,
}

impl Asset {
    #[expect(clippy::expect_used, reason = "Base64 is valid in a header")]
    fn new(content_type: &'static str, content: &'static str) -> Self {
        let digest = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(content));
        Self {
            content,
            content_type,
            etag: HeaderValue::try_from(format!("\"{digest}\"")).expect("a digest is ASCII text"),
        }
    }
}

/// The page.
pub(super) static INDEX: LazyLock<Asset> =
    LazyLock::new(|| Asset::new(HTML, include_str!("page/index.html")));

/// Declares the files below `/console`, and the schema of their names.
macro_rules! assets {
    ($($variant:ident = $name:literal: $content_type:expr),* $(,)?) => {
        /// The name of a file of the console.
        #[derive(ToSchema)]
        #[expect(dead_code, reason = "only describes the names")]
        pub(super) enum AssetName {
            $(#[schema(rename = $name)] $variant),*
        }

        static ASSETS: LazyLock<Vec<(&str, Asset)>> = LazyLock::new(|| {
            vec![$(($name, Asset::new($content_type, include_str!(concat!("page/", $name))))),*]
        });
    };
}

assets! {
    Api = "api.js": SCRIPT,
    Audit = "audit.js": SCRIPT,
    Browsers = "browsers.js": SCRIPT,
    Dialogs = "dialogs.js": SCRIPT,
    Dom = "dom.js": SCRIPT,
    Hosts = "hosts.js": SCRIPT,
    Keys = "keys.js": SCRIPT,
    List = "list.js": SCRIPT,
    Main = "main.js": SCRIPT,
    Pools = "pools.js": SCRIPT,
    Profiles = "profiles.js": SCRIPT,
    Projects = "projects.js": SCRIPT,
    Start = "start.js": SCRIPT,
    Style = "console.css": STYLE,
    Icon = "icon.svg": IMAGE,
}

/// Returns the file with this name.
pub(super) fn find(name: &str) -> Option<&'static Asset> {
    let mut assets = ASSETS.iter();
    assets
        .find(|(known, _)| *known == name)
        .map(|(_, asset)| asset)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of all files together, uncompressed.
    const MAX_TOTAL: usize = 96 << 10;

    /// Returns what lies between each `open` and the next `close`.
    fn between<'a>(text: &'a str, open: &'a str, close: char) -> impl Iterator<Item = &'a str> {
        text.match_indices(open)
            .filter_map(move |(at, _)| text[at + open.len()..].split_once(close))
            .map(|(inside, _)| inside)
    }

    #[test]
    fn every_referenced_file_is_an_asset() {
        let mut count = 0;
        for attribute in ["src=\"console/", "href=\"console/"] {
            for name in between(INDEX.content, attribute, '"') {
                assert!(find(name).is_some(), "{name}");
                count += 1;
            }
        }
        for (_, asset) in ASSETS.iter() {
            for name in between(asset.content, " from './", '\'') {
                assert!(find(name).is_some(), "{name}");
                count += 1;
            }
        }
        assert!(count > 30, "{count}");
    }

    #[test]
    fn files_are_small_and_refer_to_no_other_server() {
        let mut total = INDEX.content.len();
        for (name, asset) in ASSETS.iter() {
            total += asset.content.len();
            let text = asset.content.replace("http://www.w3.org/2000/svg", "");
            let text = text.replace("placeholder: 'https://example.com'", "");
            for reference in ["http://", "https://", "@import", "url("] {
                assert!(!text.contains(reference), "{name}: {reference}");
            }
        }
        assert!(!INDEX.content.contains("://"));
        assert!(total <= MAX_TOTAL, "{total} bytes");
    }

    #[test]
    fn texts_are_never_parsed_as_html_or_script() {
        for (name, asset) in ASSETS.iter() {
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
                assert!(!asset.content.contains(sink), "{name}: {sink}");
            }
        }
    }

    #[test]
    fn entity_tags_differ() {
        let tags: std::collections::BTreeSet<_> = ASSETS
            .iter()
            .map(|(_, asset)| asset.etag.as_bytes())
            .collect();
        assert_eq!(tags.len(), ASSETS.len());
        assert!(!tags.contains(INDEX.etag.as_bytes()));
    }
}

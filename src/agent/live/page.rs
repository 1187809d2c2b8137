//! The page that shows the screen: one document, so that one token opens all of it.

use std::sync::LazyLock;

use base64::{Engine, engine::general_purpose::STANDARD};
use sha2::{Digest, Sha256};

const DOCUMENT: &str = include_str!("page/index.html");
const SCRIPT: &str = include_str!("page/live.js");
const STYLE: &str = include_str!("page/live.css");

/// The page and the digests by which a browser knows the two parts of it that it may heed.
pub struct Page {
    pub html: String,
    /// `sha256-…`, as a content security policy names it.
    pub script: String,
    pub style: String,
}

static PAGE: LazyLock<Page> = LazyLock::new(|| Page {
    html: DOCUMENT
        .replace("{{style}}", STYLE)
        .replace("{{script}}", SCRIPT),
    script: digest(SCRIPT),
    style: digest(STYLE),
});

pub fn page() -> &'static Page {
    &PAGE
}

fn digest(part: &str) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(part)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_whole_and_needs_nobody_else() {
        let html = &page().html;
        assert!(html.contains(SCRIPT) && html.contains(STYLE));
        assert!(!html.contains("{{"));
        for reference in [" src=", "href=", "http://", "https://", "@import", "url(//"] {
            assert!(!html.contains(reference), "{reference}");
        }
        // Either would end its element early.
        assert!(!SCRIPT.contains("</") && !STYLE.contains("</"));
    }
}

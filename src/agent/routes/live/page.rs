//! The page that shows the screen.

use std::sync::LazyLock;

use crate::http::HtmlPage;

const DOCUMENT: &str = include_str!("page/index.html");
const SCRIPT: &str = include_str!("page/live.js");
const STYLE: &str = include_str!("page/live.css");

/// The page with its style and script. Its images come through the socket. It may be embedded in
/// other pages.
pub(crate) static PAGE: LazyLock<HtmlPage> = LazyLock::new(|| {
    let additional = "img-src blob: data:; connect-src 'self'";
    HtmlPage::new(DOCUMENT, STYLE, SCRIPT, additional)
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_is_complete_without_external_references() {
        let html = PAGE.render(&[]);
        assert!(html.contains(SCRIPT) && html.contains(STYLE));
        assert!(!html.contains("{{"));
        for reference in [" src=", "href=", "http://", "https://", "@import", "url(//"] {
            assert!(!html.contains(reference), "{reference}");
        }
        // `</` within either would close its element early.
        assert!(!SCRIPT.contains("</") && !STYLE.contains("</"));
    }
}

//! The page that shows the screen.

use std::sync::LazyLock;

use crate::http::Page;

const DOCUMENT: &str = include_str!("page/index.html");
const SCRIPT: &str = include_str!("page/live.js");
const STYLE: &str = include_str!("page/live.css");

/// Its pictures come through the socket. It may be part of another page.
pub static PAGE: LazyLock<Page> = LazyLock::new(|| {
    let also = "img-src blob: data:; connect-src 'self'";
    Page::new(DOCUMENT, STYLE, SCRIPT, also)
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_whole_and_needs_nobody_else() {
        let html = PAGE.text(&[]);
        assert!(html.contains(SCRIPT) && html.contains(STYLE));
        assert!(!html.contains("{{"));
        for reference in [" src=", "href=", "http://", "https://", "@import", "url(//"] {
            assert!(!html.contains(reference), "{reference}");
        }
        // Either would end its element early.
        assert!(!SCRIPT.contains("</") && !STYLE.contains("</"));
    }
}

//! The files of the console, which are part of the program.

use std::sync::LazyLock;

use crate::http::{Asset, assets};

/// The page.
pub(super) static INDEX: LazyLock<Asset> =
    LazyLock::new(|| Asset::new(Asset::HTML, include_str!("page/index.html")));

assets! {
    "page/" {
        Api = "api.js": Asset::SCRIPT,
        Audit = "audit.js": Asset::SCRIPT,
        Browsers = "browsers.js": Asset::SCRIPT,
        Dialogs = "dialogs.js": Asset::SCRIPT,
        Dom = "dom.js": Asset::SCRIPT,
        Element = "element.js": Asset::SCRIPT,
        Hosts = "hosts.js": Asset::SCRIPT,
        Keys = "keys.js": Asset::SCRIPT,
        List = "list.js": Asset::SCRIPT,
        Main = "main.js": Asset::SCRIPT,
        Pools = "pools.js": Asset::SCRIPT,
        Profiles = "profiles.js": Asset::SCRIPT,
        Projects = "projects.js": Asset::SCRIPT,
        Start = "start.js": Asset::SCRIPT,
        Style = "console.css": Asset::STYLE,
        Icon = "icon.svg": Asset::SVG,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::asset_checks::{
        assert_parses_no_text, assert_refers_to_no_other_server, assert_tags_differ, between,
    };

    /// Bytes of all files together, uncompressed.
    const MAX_TOTAL: usize = 96 << 10;

    #[test]
    fn every_referenced_file_is_an_asset() {
        let mut count = 0;
        for attribute in ["src=\"console/", "href=\"console/"] {
            for name in between(INDEX.text(), attribute, '"') {
                assert!(find(name).is_some(), "{name}");
                count += 1;
            }
        }
        for (_, asset) in ASSETS.iter() {
            for name in between(asset.text(), " from './", '\'') {
                assert!(find(name).is_some(), "{name}");
                count += 1;
            }
        }
        assert!(count > 30, "{count}");
    }

    #[test]
    fn files_are_small_and_refer_to_no_other_server() {
        let mut total = INDEX.text().len();
        for (name, asset) in ASSETS.iter() {
            total += asset.text().len();
            let example = "placeholder: 'https://example.com'";
            assert_refers_to_no_other_server(name, &asset.text().replace(example, ""));
        }
        assert!(!INDEX.text().contains("://"));
        assert!(total <= MAX_TOTAL, "{total} bytes");
    }

    #[test]
    fn texts_are_never_parsed_as_html_or_script() {
        for (name, asset) in ASSETS.iter() {
            assert_parses_no_text(name, asset.text());
        }
    }

    #[test]
    fn entity_tags_differ() {
        let files = ASSETS.iter().map(|(_, asset)| asset);
        assert_tags_differ(files.chain([&*INDEX]));
    }
}

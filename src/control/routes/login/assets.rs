//! The files of the login page, which are part of the program: `/login/assets/{name}`.

use std::sync::LazyLock;

use axum::{extract::State, response::Response};
use http::HeaderMap;

use super::HostedLoginPage;
use crate::{
    api::{Binary, ErrorBody, groups::SERVER},
    http::{ApiError, ApiResult, Asset, Path, assets},
};

/// The page.
pub(super) static INDEX: LazyLock<Asset> =
    LazyLock::new(|| Asset::new(Asset::HTML, include_str!("page/index.html")));

assets! {
    "page/" {
        Api = "api.js": Asset::SCRIPT,
        Connectivity = "connectivity.js": Asset::SCRIPT,
        Countdown = "countdown.js": Asset::SCRIPT,
        Form = "form.js": Asset::SCRIPT,
        Language = "language.js": Asset::SCRIPT,
        Main = "main.js": Asset::SCRIPT,
        Session = "session.js": Asset::SCRIPT,
        Start = "start.js": Asset::SCRIPT,
        State = "state.js": Asset::SCRIPT,
        Stream = "stream.js": Asset::SCRIPT,
        Theme = "theme.js": Asset::SCRIPT,
        Views = "views.js": Asset::SCRIPT,
        Style = "login.css": Asset::STYLE,
        Icon = "icon.svg": Asset::SVG,
    }
    "page/messages/" {
        Arabic = "ar.json": Asset::JSON,
        German = "de.json": Asset::JSON,
        English = "en.json": Asset::JSON,
        Spanish = "es.json": Asset::JSON,
        French = "fr.json": Asset::JSON,
        Italian = "it.json": Asset::JSON,
        Japanese = "ja.json": Asset::JSON,
        Dutch = "nl.json": Asset::JSON,
        Polish = "pl.json": Asset::JSON,
        Portuguese = "pt.json": Asset::JSON,
    }
    "../console/page/" {
        Element = "element.js": Asset::SCRIPT,
    }
}

/// Get a part of the hosted login page
///
/// Returns a script, a style sheet, an image or the texts of a language.
#[utoipa::path(
    get,
    path = "/login/assets/{name}",
    operation_id = "get_login_page_asset",
    tag = SERVER,
    params(("name" = inline(AssetName), Path, description = "The name of the file", example = "main.js")),
    responses(
        (status = 200, description = "The file", content(
            (inline(Binary) = "text/javascript"),
            (inline(Binary) = "text/css"),
            (inline(Binary) = "image/svg+xml"),
            (serde_json::Value = "application/json"),
        ), headers(("ETag" = String, description = "An entity tag, for `If-None-Match`"))),
        (status = 304, description = "The client has the current file"),
        (status = 404, body = ErrorBody, description = "The login page has no such file"),
    )
)]
pub(crate) async fn asset(
    State(page): State<HostedLoginPage>,
    Path(name): Path<String>,
    request: HeaderMap,
) -> ApiResult<Response> {
    let asset = find(&name);
    let asset =
        asset.ok_or_else(|| ApiError::not_found("no file of the login page with that name"))?;
    Ok(asset.respond(&request, &page.policy))
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::http::asset_checks::{
        assert_parses_no_text, assert_refers_to_no_other_server, assert_tags_differ, between,
    };

    /// Bytes to the first paint, uncompressed: all files with the largest language. The rest of
    /// 100 KiB is for the theme and the logo.
    const MAX_FIRST_PAINT: usize = 80 << 10;

    /// Returns the texts of each language.
    fn messages() -> BTreeMap<&'static str, BTreeMap<String, String>> {
        let files = ASSETS.iter().filter(|(name, _)| name.ends_with(".json"));
        files
            .map(|(name, asset)| (*name, serde_json::from_str(asset.text()).unwrap()))
            .collect()
    }

    #[test]
    fn every_referenced_file_is_an_asset() {
        let mut count = 0;
        for attribute in ["src=\"assets/", "href=\"assets/"] {
            for name in between(INDEX.text(), attribute, '"') {
                assert!(find(name).is_some(), "{name}");
                count += 1;
            }
        }
        let preloaded: BTreeSet<&str> =
            between(INDEX.text(), "modulepreload\" href=\"assets/", '"').collect();
        for (file, asset) in ASSETS.iter() {
            for name in between(asset.text(), " from './", '\'') {
                assert!(find(name).is_some(), "{name}");
                assert!(preloaded.contains(name), "{file}: {name} is not preloaded");
                count += 1;
            }
        }
        assert!(count > 30, "{count}");
    }

    #[test]
    fn languages_of_the_page_have_their_messages() {
        let module = find("language.js").unwrap().text();
        let list = between(module, "LANGUAGES = {", '}').next().unwrap();
        let codes = list
            .lines()
            .filter_map(|line| line.trim().split_once(": '"));
        let files: Vec<String> = codes.map(|(code, _)| format!("{code}.json")).collect();
        let files: BTreeSet<&str> = files.iter().map(String::as_str).collect();
        assert_eq!(files, messages().keys().copied().collect());
        assert_eq!(files.len(), 10);
    }

    #[test]
    fn languages_have_the_same_messages_and_placeholders() {
        let messages = messages();
        let english = &messages["en.json"];
        assert!(english.len() > 80, "{}", english.len());
        for (file, texts) in &messages {
            assert_eq!(texts.len(), english.len(), "{file}");
            for (key, text) in english {
                let translated = texts.get(key);
                let translated = translated.unwrap_or_else(|| panic!("{file} lacks {key}"));
                assert!(!translated.trim().is_empty(), "{file}: {key}");
                let placeholders = |text: &str| -> BTreeSet<String> {
                    between(text, "{", '}').map(str::to_owned).collect()
                };
                let (found, expected) = (placeholders(translated), placeholders(text));
                assert_eq!(found, expected, "{file}: {key}");
            }
        }
    }

    #[test]
    fn every_message_is_used_and_every_used_message_exists() {
        let scripts = ASSETS.iter().filter(|(name, _)| name.ends_with(".js"));
        let scripts: String = scripts.map(|(_, asset)| asset.text()).collect();
        let messages = messages();
        let english = &messages["en.json"];
        // Calls of the function `t`, and not of one whose name ends with it.
        let calls = [" t('", "(t('", "[t('", "{t('"].map(|open| between(&scripts, open, '\''));
        let in_page = between(INDEX.text(), "data-text=\"", '"');
        let used: BTreeSet<&str> = calls.into_iter().flatten().chain(in_page).collect();
        assert!(used.len() > 50, "{used:?}");
        for name in &used {
            assert!(english.contains_key(*name), "{name} has no message");
        }
        let is_unused =
            |key: &&String| !used.contains(key.as_str()) && !scripts.contains(&format!("'{key}'"));
        let unused: Vec<&String> = english.keys().filter(is_unused).collect();
        assert!(unused.is_empty(), "{unused:?}");
    }

    #[test]
    fn files_are_small_and_refer_to_no_other_server() {
        let (mut first_paint, mut largest_language) = (INDEX.text().len(), 0);
        for (name, asset) in ASSETS.iter() {
            let length = asset.text().len();
            if name.ends_with(".json") {
                largest_language = largest_language.max(length);
            } else {
                first_paint += length;
            }
            assert_refers_to_no_other_server(name, asset.text());
        }
        assert!(!INDEX.text().contains("://"));
        first_paint += largest_language;
        assert!(first_paint <= MAX_FIRST_PAINT, "{first_paint} bytes");
    }

    #[test]
    fn texts_are_never_parsed_as_html_or_script() {
        for (name, asset) in ASSETS.iter() {
            assert_parses_no_text(name, asset.text());
        }
    }

    #[test]
    fn scripts_neither_log_nor_keep_values_beyond_the_tab() {
        for (name, asset) in ASSETS.iter() {
            for sink in ["console.", "localStorage", "document.cookie", "indexedDB"] {
                assert!(!asset.text().contains(sink), "{name}: {sink}");
            }
        }
    }

    #[test]
    fn entity_tags_differ() {
        let files = ASSETS.iter().map(|(_, asset)| asset);
        assert_tags_differ(files.chain([&*INDEX]));
    }
}

//! `/login/assets/{name}`.

use super::POLICY;
use crate::support::{
    assets::{assert_open, assert_rejects_others, assert_validates_copies},
    dev::Dev,
};

const ASSETS: [(&str, &str); 5] = [
    ("/login/assets/main.js", "text/javascript; charset=utf-8"),
    ("/login/assets/element.js", "text/javascript; charset=utf-8"),
    ("/login/assets/login.css", "text/css; charset=utf-8"),
    ("/login/assets/ar.json", "application/json"),
    ("/login/assets/icon.svg", "image/svg+xml"),
];

#[tokio::test]
async fn files_of_the_page_need_no_key_and_are_protected() {
    let dev = Dev::start().await;
    assert_open(&dev, &ASSETS, &POLICY).await;
    assert_validates_copies(&dev, &ASSETS, &POLICY).await;
    let unknown = [
        "/login/assets/none.js",
        "/login/assets/index.html",
        "/login/assets/fi.json",
        "/login/assets/messages%2fen.json",
        "/login/assets/",
        "/login/assets/en.json/",
    ];
    assert_rejects_others(&dev, &unknown, &ASSETS).await;
    dev.finish().await;
}

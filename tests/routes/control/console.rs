//! `/` and `/console`. `flows::console` uses the page in a browser.

use crate::support::{
    assets::{assert_open, assert_rejects_others, assert_validates_copies},
    dev::Dev,
};

const ASSETS: [(&str, &str); 4] = [
    ("/", "text/html; charset=utf-8"),
    ("/console/main.js", "text/javascript; charset=utf-8"),
    ("/console/console.css", "text/css; charset=utf-8"),
    ("/console/icon.svg", "image/svg+xml"),
];

const POLICY: [&str; 10] = [
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self' blob:",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
];

#[tokio::test]
async fn page_and_its_files_need_no_key_and_are_protected() {
    let dev = Dev::start().await;
    assert_open(&dev, &ASSETS, &POLICY).await;
    dev.finish().await;
}

#[tokio::test]
async fn current_copy_is_304_and_other_copy_is_replaced() {
    let dev = Dev::start().await;
    assert_validates_copies(&dev, &ASSETS, &POLICY).await;
    dev.finish().await;
}

#[tokio::test]
async fn unknown_file_is_404_and_other_method_405() {
    let dev = Dev::start().await;
    let unknown = [
        "/console/none.js",
        "/console/index.html",
        "/console/Main.js",
        "/console/..%2fmod.rs",
        "/console/",
        "/console",
    ];
    assert_rejects_others(&dev, &unknown, &ASSETS).await;
    dev.finish().await;
}

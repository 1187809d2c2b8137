//! `/login/{connection_id}`. `flows::login_page` uses the page in a browser.

mod assets;
mod theme;

use reqwest::Method;

use crate::support::{
    assets::{assert_open, assert_rejects_others, assert_validates_copies, fetch, header},
    dev::Dev,
};

pub(super) const POLICY: [&str; 11] = [
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self'",
    "connect-src 'self'",
    "frame-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
];

#[tokio::test]
async fn page_is_the_same_for_every_id_and_protected() {
    let dev = Dev::start().await;
    let pages = [
        (
            "/login/conn_01kgc3v7e8r9t0w1x2y3z4a5b6",
            "text/html; charset=utf-8",
        ),
        ("/login/anything", "text/html; charset=utf-8"),
    ];
    assert_open(&dev, &pages, &POLICY).await;
    assert_validates_copies(&dev, &pages, &POLICY).await;
    assert_rejects_others(&dev, &["/login", "/login/", "/login/a/b"], &pages).await;
    let tags = [
        fetch(&dev, Method::GET, pages[0].0).await,
        fetch(&dev, Method::GET, pages[1].0).await,
    ];
    let [one, other] = tags.map(|response| header(response.headers(), "etag").to_owned());
    assert_eq!(one, other);
    dev.finish().await;
}

#[tokio::test]
async fn only_origins_of_the_settings_may_embed_the_page() {
    let origins = "https://app.example.com,http://localhost:3000/";
    let dev = Dev::with(&["--login-frame-origins", origins]).await;
    let response = fetch(&dev, Method::GET, "/login/conn_1").await;
    let policy = header(response.headers(), "content-security-policy").to_owned();
    let expected = "frame-ancestors https://app.example.com http://localhost:3000";
    assert!(policy.split("; ").any(|one| one == expected), "{policy}");
    // The console stays alone.
    let console = fetch(&dev, Method::GET, "/").await;
    let policy = header(console.headers(), "content-security-policy");
    assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
    dev.finish().await;
}

//! `/browsers/{id}/credentials/fill`.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{
    dev::{Answer, Dev},
    login_site::{LoginSite, Submitted},
    provider_server::{self, ProviderServer, TOKEN},
    wait::until,
};

const TOTP_SECRET: &str = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ";
const USER_NAME: &str = "canary-of-a-user-name";
const PASSWORD: &str = "canary-of-a-password";

/// Creates a credential for `localhost`.
async fn create(dev: &Dev, name: &str, more: Value) {
    let mut request = json!({
        "name": name,
        "domain": "localhost",
        "values": {"username": USER_NAME, "password": PASSWORD},
    });
    let fields = request.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    let created = dev.post("/credentials", request).await;
    assert_eq!(created.status, 201, "{}", created.body);
}

/// Creates a browser with a page, and returns the path of its route.
async fn open(dev: &Dev, url: &str) -> String {
    let browser = dev
        .browser(json!({"headless": true, "start_url": url}))
        .await;
    format!(
        "/browsers/{}/credentials/fill",
        browser["session_id"].as_str().unwrap()
    )
}

fn outcomes(filled: &Answer) -> Value {
    assert_eq!(filled.status, 200, "{}", filled.body);
    let text = filled.body.to_string();
    assert!(!text.contains("canary"), "{text}");
    let fields = filled.body["fields"].as_array().unwrap().iter();
    let outcomes = fields.map(|field| {
        let name = field["name"].as_str().unwrap().to_owned();
        (name, field["outcome"].clone())
    });
    Value::Object(outcomes.collect())
}

fn login() -> Submitted {
    let fields = [("user", USER_NAME), ("pass", PASSWORD)];
    let fields = fields.map(|(name, value)| (name.to_owned(), value.to_owned()));
    fields.into()
}

#[tokio::test]
async fn stored_credential_is_filled_and_submitted() {
    let (dev, site) = (Dev::start().await, LoginSite::serve().await);
    create(&dev, "shop", json!({})).await;
    let path = open(&dev, &format!("{}/login?query", site.url)).await;
    let filled = dev.post(&path, json!({"credential": "shop"})).await;
    let all = json!({"username": "filled", "password": "filled"});
    assert_eq!(outcomes(&filled), all);
    assert_eq!(filled.body["submitted"], false);
    assert_eq!(filled.body["url"], format!("{}/login", site.url));
    let filled = dev
        .post(&path, json!({"credential": "shop", "submit": true}))
        .await;
    assert_eq!(outcomes(&filled), all);
    assert_eq!(filled.body["submitted"], true);
    assert_eq!(site.submitted().await, login());
    dev.finish().await;
}

#[tokio::test]
async fn code_is_used_once_and_only_if_the_page_has_a_field() {
    let (dev, site) = (Dev::start().await, LoginSite::serve().await);
    create(
        &dev,
        "shop",
        json!({"totp_secret": TOTP_SECRET, "totp_period": 10}),
    )
    .await;
    let path = open(&dev, &format!("{}/login", site.url)).await;
    let filled = dev.post(&path, json!({"credential": "shop"})).await;
    let expected = json!({"username": "filled", "password": "filled", "code": "not_found"});
    assert_eq!(outcomes(&filled), expected);
    // Without a field that the request names, the form is not submitted.
    let fields = json!([{"name": "username"}, {"name": "password"}, {"name": "code"}]);
    let request = json!({"credential": "shop", "fields": fields, "submit": true});
    let filled = dev.post(&path, request).await;
    assert_eq!(outcomes(&filled), expected);
    assert_eq!(filled.body["submitted"], false);
    assert_eq!(dev.rows("SELECT * FROM totp_steps").await.len(), 0);

    let path = open(&dev, &format!("{}/code", site.url)).await;
    let request = json!({"credential": "shop", "fields": [{"name": "code", "selector": "input"}]});
    let mut codes = Vec::new();
    for _ in 0..2 {
        let mut request = request.clone();
        request["submit"] = json!(true);
        let filled = dev.post(&path, request).await;
        assert_eq!(outcomes(&filled), json!({"code": "filled"}));
        let submitted = site.submitted().await;
        assert_eq!(submitted[0].0, "code");
        codes.push(submitted[0].1.clone());
        let back = path.replace("credentials/fill", "automation/execute");
        let code = format!("await page.goto('{}/code')", site.url);
        let back = dev.post(&back, json!({ "code": code })).await;
        assert_eq!(back.body["success"], true, "{}", back.body);
    }
    assert_ne!(codes[0], codes[1]);
    dev.finish().await;
}

#[tokio::test]
async fn item_of_a_provider_is_found_by_path_and_by_page() {
    let (dev, site) = (Dev::start().await, LoginSite::serve().await);
    let server = ProviderServer::start_for(&site.url).await;
    let provider = json!({"name": "Team vault", "provider_type": "vendorpassword", "token": TOKEN, "base_url": server.base_url});
    let provider = dev.post("/org/credential_providers", provider).await.body;
    let path = open(&dev, &format!("{}/login", site.url)).await;
    let expected = json!({"username": "filled", "password": "filled"});
    for source in [
        json!({"provider": "Team vault", "path": "Team/Shop"}),
        json!({"provider": provider["id"], "path": "vault1/item1"}),
        json!({"auto": true}),
    ] {
        assert_eq!(outcomes(&dev.post(&path, source).await), expected);
    }
    let unknown = json!({"provider": "Team vault", "path": "Team/Other"});
    dev.post(&path, unknown)
        .await
        .assert_error(404, "not_found");
    let unknown = json!({"provider": "other", "path": "Team/Shop"});
    dev.post(&path, unknown)
        .await
        .assert_error(404, "not_found");
    // A credential of the project precedes it.
    create(&dev, "shop", json!({})).await;
    let filled = dev.post(&path, json!({"auto": true, "submit": true})).await;
    assert_eq!(outcomes(&filled), expected);
    assert_eq!(site.submitted().await, login());
    assert_ne!(provider_server::USER_NAME, USER_NAME);
    create(&dev, "second", json!({})).await;
    let path = open(&dev, &format!("{}/login", site.url)).await;
    let ambiguous = dev.post(&path, json!({"auto": true})).await;
    ambiguous.assert_error(409, "ambiguous_credential");
    let message = ambiguous.body["message"].as_str().unwrap();
    assert!(
        message.contains("shop, second") || message.contains("second, shop"),
        "{message}"
    );
    dev.finish().await;
}

#[tokio::test]
async fn audit_log_names_the_source_of_each_fill() {
    let (dev, site) = (Dev::start().await, LoginSite::serve().await);
    create(&dev, "shop", json!({})).await;
    create(&dev, "other", json!({"domain": "example.com"})).await;
    let path = open(&dev, &format!("{}/login", site.url)).await;
    let fill = async |name: &str, status: u16| {
        let filled = dev.post(&path, json!({ "credential": name })).await;
        assert_eq!(filled.status, status, "{}", filled.body);
        let credential = dev.get(&format!("/credentials/{name}")).await.body;
        let id = credential["id"].as_str().unwrap().to_owned();
        (
            path.replace("/credentials/fill", &format!("/credentials/{id}")),
            status,
        )
    };
    let expected = [fill("shop", 200).await, fill("other", 403).await];
    let window = "start=2020-01-01T00:00:00Z&end=2100-01-01T00:00:00Z";
    let log = format!("/audit-logs?{window}&action=fill_credentials");
    until("both fills in the audit log", async || {
        let listed = dev.get(&log).await.body;
        let is_listed = |(resource, status): &(String, u16)| {
            let mut entries = listed.as_array().unwrap().iter();
            let resource = resource.trim_start_matches('/');
            entries.any(|entry| entry["resource"] == resource && entry["status"] == *status)
        };
        expected.iter().all(is_listed).then_some(())
    })
    .await;
    dev.finish().await;
}

#[tokio::test]
async fn page_of_another_origin_is_refused() {
    let (dev, site) = (Dev::start().await, LoginSite::serve().await);
    create(&dev, "shop", json!({"domain": "example.com"})).await;
    let path = open(&dev, &format!("{}/login", site.url)).await;
    let refused = dev.post(&path, json!({"credential": "shop"})).await;
    refused.assert_error(403, "origin_refused");
    let allowed = json!({"credential": "shop", "allowed_domains": ["localhost"]});
    let filled = dev.post(&path, allowed).await;
    assert_eq!(
        outcomes(&filled),
        json!({"username": "filled", "password": "filled"})
    );
    dev.post(&path, json!({"auto": true}))
        .await
        .assert_error(404, "not_found");
    dev.finish().await;
}

#[tokio::test]
async fn page_with_http_is_filled_only_if_the_setting_permits_that() {
    let site = LoginSite::serve().await;
    let resolver = "--chromium-flag=--host-resolver-rules=MAP *.test 127.0.0.1";
    let url = format!("{}/login", site.url.replace("localhost", "www.shop.test"));
    let all = json!({"username": "filled", "password": "filled"});
    for (options, is_permitted) in [
        (&[resolver][..], true),
        (&[resolver, "--allow-http-logins=false"], false),
    ] {
        let dev = Dev::with(options).await;
        create(&dev, "shop", json!({"domain": "shop.test"})).await;
        create(&dev, "other", json!({"domain": "other.test"})).await;
        create(&dev, "local", json!({})).await;
        let path = open(&dev, &url).await;
        let request = json!({"credential": "shop", "submit": true});
        let filled = dev.post(&path, request).await;
        match is_permitted {
            true => {
                assert_eq!(outcomes(&filled), all);
                assert_eq!(site.submitted().await, login());
            }
            false => filled.assert_error(403, "origin_refused"),
        }
        let path = open(&dev, &url).await;
        let other = dev.post(&path, json!({"credential": "other"})).await;
        other.assert_error(403, "origin_refused");
        let path = open(&dev, &format!("{}/login", site.url)).await;
        let filled = dev.post(&path, json!({"credential": "local"})).await;
        assert_eq!(outcomes(&filled), all);
        dev.finish().await;
    }
}

#[tokio::test]
async fn invalid_request_names_each_invalid_field() {
    let dev = Dev::start().await;
    create(&dev, "shop", json!({})).await;
    let path = open(&dev, "data:text/html,<input name=username>").await;
    let many = vec![json!({"name": "a"}); 33];
    for (request, field) in [
        (json!({}), "credential"),
        (json!({"credential": ""}), "credential"),
        (json!({"credential": 1}), "credential"),
        (json!({"credential": "x".repeat(1025)}), "credential"),
        (json!({"credential": "shop", "auto": true}), "credential"),
        (
            json!({"credential": "shop", "provider": "a", "path": "b"}),
            "credential",
        ),
        (json!({"provider": "a"}), "path"),
        (json!({"path": "a"}), "provider"),
        (json!({"provider": "a", "path": "b", "auto": true}), "auto"),
        (json!({"credential": "shop", "fields": []}), "fields"),
        (json!({"credential": "shop", "fields": many}), "fields"),
        (
            json!({"credential": "shop", "fields": [{"name": ""}]}),
            "fields[0].name",
        ),
        (
            json!({"credential": "shop", "fields": [{"selector": "a"}]}),
            "fields[0].name",
        ),
        (
            json!({"credential": "shop", "fields": [{"name": "unknown"}]}),
            "fields[0].name",
        ),
        (
            json!({"credential": "shop", "fields": [{"name": "code"}]}),
            "fields[0].name",
        ),
        (json!({"credential": "shop", "submit": "yes"}), "submit"),
        (
            json!({"credential": "shop", "allowed_domains": "a"}),
            "allowed_domains",
        ),
        (
            json!({"credential": "shop", "allowed_domains": ["https://a"]}),
            "allowed_domains[0]",
        ),
        (
            json!({"credential": "shop", "allowed_domains": vec!["a.com"; 33]}),
            "allowed_domains",
        ),
    ] {
        let refused = dev.post(&path, request.clone()).await;
        refused.assert_error(400, "bad_request");
        assert_eq!(refused.bad_fields(), [field], "{request}");
    }
    dev.post(&path, json!({"credential": "unknown"}))
        .await
        .assert_error(404, "not_found");
    let unknown = "/browsers/unknown/credentials/fill";
    dev.post(unknown, json!({"credential": "shop"}))
        .await
        .assert_error(404, "not_found");
    let refused = dev.post(&path, json!({"credential": "shop"})).await;
    refused.assert_error(403, "origin_refused");
    let anonymous = dev
        .anonymous(Method::POST, &path)
        .json(&json!({"credential": "shop"}));
    Answer::of(anonymous)
        .await
        .assert_error(401, "unauthorized");
    // The agent's own route is not forwarded.
    let page = path.replace("fill", "page");
    dev.get(&page).await.assert_error(404, "not_found");
    let project = dev.post("/org/projects", json!({"name": "other"})).await;
    let request = dev.request(Method::POST, &path);
    let request = request.header("x-project-id", project.body["id"].as_str().unwrap());
    let request = request.json(&json!({"credential": "shop"}));
    Answer::of(request).await.assert_error(404, "not_found");
    dev.finish().await;
}

//! `/credentials`.

use reqwest::Method;
use serde_json::json;

use super::{TOTP_SECRET, create};
use crate::support::dev::{Answer, Dev};

fn names(listed: &Answer) -> Vec<&str> {
    let listed = listed.body.as_array().unwrap().iter();
    listed.map(|it| it["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn created_credential_shows_names_but_no_secrets() {
    let dev = Dev::start().await;
    let request = json!({
        "name": "shop",
        "domain": "Bücher.Example.",
        "values": {"username": "hidden-name", "password": "hidden-password"},
        "sso_provider": "google",
    });
    let created = dev.post("/credentials", request).await;
    assert_eq!(created.status, 201, "{}", created.body);
    let created = created.body;
    assert!(created["id"].as_str().unwrap().starts_with("cred_"));
    assert_eq!(created["created_at"], created["updated_at"]);
    assert_eq!(created["domain"], "xn--bcher-kva.example");
    assert_eq!(created["value_keys"], json!(["password", "username"]));
    assert_eq!(created["has_values"], true);
    assert_eq!(created["has_totp_secret"], false);
    assert_eq!(created["sso_provider"], "google");
    for absent in ["values", "totp_secret", "totp_algorithm", "totp_code"] {
        assert_eq!(created.get(absent), None, "{absent}");
    }
    assert!(!created.to_string().contains("hidden"), "{created}");

    let taken = json!({"name": "shop", "domain": "example.com", "values": {}});
    let taken = dev.post("/credentials", taken).await;
    taken.assert_error(409, "conflict");
    assert_eq!(taken.bad_fields(), ["name"]);
    assert_eq!(taken.header("x-should-retry"), "false");
    dev.finish().await;
}

#[tokio::test]
async fn secret_of_codes_is_confirmed_with_a_code() {
    let dev = Dev::start().await;
    let uri = format!("otpauth://totp/Shop:me?secret={TOTP_SECRET}&digits=8&period=60");
    for (name, options, expected) in [
        ("a", json!({"totp_secret": TOTP_SECRET}), ("SHA1", 6, 30)),
        (
            "b",
            json!({"totp_secret": TOTP_SECRET, "totp_algorithm": "SHA512", "totp_digits": 7, "totp_period": 300}),
            ("SHA512", 7, 300),
        ),
        ("c", json!({"totp_secret": uri}), ("SHA1", 8, 60)),
        (
            "d",
            json!({"totp_secret": uri, "totp_digits": 6}),
            ("SHA1", 6, 60),
        ),
    ] {
        let mut request = json!({"name": name, "domain": "example.com"});
        let fields = request.as_object_mut().unwrap();
        fields.extend(options.as_object().unwrap().clone());
        let created = dev.post("/credentials", request).await;
        assert_eq!(created.status, 201, "{}", created.body);
        let created = created.body;
        let (algorithm, digits, period) = expected;
        assert_eq!(created["has_totp_secret"], true);
        assert_eq!(created["has_values"], false);
        assert_eq!(created["totp_algorithm"], algorithm);
        assert_eq!(created["totp_digits"], digits);
        assert_eq!(created["totp_period"], period);
        assert_eq!(created["totp_code"].as_str().unwrap().len(), digits);
        assert!(created["totp_code_expires_at"].is_string());
        let found = dev.get(&format!("/credentials/{name}")).await.body;
        assert_eq!(found.get("totp_code"), None);
    }
    let removed = json!({"name": "e", "domain": "example.com", "totp_secret": ""});
    let removed = dev.post("/credentials", removed).await;
    assert_eq!(removed.body["has_totp_secret"], false, "{}", removed.body);
    dev.finish().await;
}

#[tokio::test]
async fn list_is_filtered_and_paged() {
    let dev = Dev::start().await;
    for (name, domain) in [
        ("a-shop", "shop.example"),
        ("b-SHOP", "www.shop.example"),
        ("c-bank", "bank.example"),
    ] {
        let request = json!({"name": name, "domain": domain, "values": {name: "x"}});
        assert_eq!(dev.post("/credentials", request).await.status, 201);
    }
    let list = async |query: &str| dev.get(&format!("/credentials?{query}")).await;
    let all = list("").await;
    assert_eq!(names(&all), ["c-bank", "b-SHOP", "a-shop"]);
    assert_eq!(all.body[0]["value_keys"], json!(["c-bank"]));
    assert_eq!(names(&list("domain=shop.example").await), ["a-shop"]);
    assert_eq!(names(&list("domain=SHOP.example.").await), ["a-shop"]);
    assert_eq!(names(&list("name=a-shop").await), ["a-shop"]);
    assert_eq!(names(&list("query=shop").await), ["b-SHOP", "a-shop"]);
    let first = list("limit=2").await;
    assert_eq!(names(&first), ["c-bank", "b-SHOP"]);
    let pages = (first.header("x-has-more"), first.header("x-next-offset"));
    assert_eq!(pages, ("true", "2"));
    let last = list("limit=2&offset=2").await;
    assert_eq!(names(&last), ["a-shop"]);
    let pages = (last.header("x-has-more"), last.header("x-next-offset"));
    assert_eq!(pages, ("false", "0"));
    dev.finish().await;
}

#[tokio::test]
async fn credentials_of_another_project_are_not_found() {
    let dev = Dev::start().await;
    let project = dev.post("/org/projects", json!({"name": "other"})).await;
    let project = project.body["id"].as_str().unwrap();
    let in_other = |method: Method, path: &str| {
        let request = dev.request(method, path);
        Answer::of(request.header("x-project-id", project).json(&json!({})))
    };
    let id = create(&dev, "shop").await["id"].clone();
    let listed = in_other(Method::GET, "/credentials").await;
    assert_eq!(listed.body, json!([]));
    for item in [id.as_str().unwrap(), "shop"] {
        for (method, path) in [
            (Method::GET, ""),
            (Method::PATCH, ""),
            (Method::DELETE, ""),
            (Method::GET, "/totp-code"),
            (Method::GET, "/totp_code"),
        ] {
            let path = format!("/credentials/{item}{path}");
            in_other(method, &path).await.assert_error(404, "not_found");
        }
    }
    let unauthorized = dev.anonymous(Method::GET, "/credentials");
    Answer::of(unauthorized)
        .await
        .assert_error(401, "unauthorized");
    dev.finish().await;
}

#[tokio::test]
async fn project_with_credentials_is_not_deleted() {
    let dev = Dev::start().await;
    let project = dev.post("/org/projects", json!({"name": "other"})).await;
    let project = project.body["id"].as_str().unwrap();
    let in_other = |method: Method, path: &str| {
        let request = dev.request(method, path).header("x-project-id", project);
        Answer::of(request.json(&json!({"name": "shop", "domain": "example.com"})))
    };
    let created = in_other(Method::POST, "/credentials").await;
    assert_eq!(created.status, 201, "{}", created.body);
    let path = format!("/org/projects/{project}");
    dev.delete(&path)
        .await
        .assert_error(409, "project_not_empty");
    assert_eq!(
        in_other(Method::DELETE, "/credentials/shop").await.status,
        204
    );
    assert_eq!(dev.delete(&path).await.status, 204);
    dev.finish().await;
}

//! `/auth/connections`.

use reqwest::Method;
use serde_json::{Value, json};

use super::{PATH, create, credential, path, provider, reauth};
use crate::support::dev::{Answer, Dev};

fn profiles(listed: &Answer) -> Vec<&str> {
    let listed = listed.body.as_array().unwrap().iter();
    listed
        .map(|it| it["profile_name"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn connection_has_defaults_and_needs_a_login() {
    let dev = Dev::start().await;
    let created = create(&dev, "Bücher.Example.", "shop", json!({})).await;
    let id = created["id"].as_str().unwrap();
    assert!(id.starts_with("conn_"), "{id}");
    let times = (&created["created_at"], &created["updated_at"]);
    assert_eq!(times.0, times.1);
    let expected = json!({
        "id": id,
        "domain": "xn--bcher-kva.example",
        "profile_name": "shop",
        "status": "NEEDS_AUTH",
        "record_session": false,
        "save_credentials": true,
        "allowed_domains": [],
        "auto_reauth": true,
        "can_reauth": false,
        "can_reauth_reason": "no_credential",
        "health_checks": true,
        "health_check_interval": 3600,
        "created_at": times.0,
        "updated_at": times.1,
    });
    assert_eq!(created, expected);
    assert_eq!(dev.get(&path(&created)).await.body, expected);
    // The first login creates the profile.
    assert_eq!(dev.get("/profiles").await.body, json!([]));
    dev.finish().await;
}

#[tokio::test]
async fn connection_has_the_given_settings() {
    let dev = Dev::start().await;
    let credential = credential(&dev, "admin", "accounts.example.com").await;
    let given = json!({
        "login_url": "https://SSO.example.net:8443/login?next=%2F#form",
        "credential": {"name": credential["id"]},
        "allowed_domains": ["sso.Example.net", "b.example", "sso.example.net."],
        "health_checks": false,
        "health_check_interval": 60,
        "auto_reauth": false,
        "save_credentials": false,
        "record_session": true,
    });
    let created = create(&dev, "www.example.com", "shop", given).await;
    for (field, value) in [
        (
            "login_url",
            json!("https://sso.example.net:8443/login?next=%2F#form"),
        ),
        ("credential", json!({"name": "admin"})),
        ("allowed_domains", json!(["sso.example.net", "b.example"])),
        ("health_checks", json!(false)),
        ("health_check_interval", json!(60)),
        ("auto_reauth", json!(false)),
        ("save_credentials", json!(false)),
        ("record_session", json!(true)),
    ] {
        assert_eq!(created[field], value, "{field}");
    }
    assert_eq!(reauth(&created), (true, "has_credential"));
    let empty = json!({"login_url": "", "credential": null, "allowed_domains": null});
    let empty = create(&dev, "example.com", "shop", empty).await;
    for absent in ["login_url", "credential"] {
        assert_eq!(empty.get(absent), None, "{absent}");
    }
    assert_eq!(empty["allowed_domains"], json!([]));
    dev.finish().await;
}

#[tokio::test]
async fn credential_of_a_provider_is_named_by_the_provider() {
    let dev = Dev::start().await;
    let provider = provider(&dev, "Team vault").await;
    for (number, (given, expected)) in [
        (
            json!({"provider": "Team vault", "path": "Team/Shop"}),
            json!({"provider": "Team vault", "path": "Team/Shop"}),
        ),
        (
            json!({"provider": provider["id"], "auto": true}),
            json!({"provider": "Team vault", "auto": true}),
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let profile = number.to_string();
        let created = create(&dev, "example.com", &profile, json!({"credential": given})).await;
        assert_eq!(created["credential"], expected);
        assert_eq!(reauth(&created), (true, "external_credential"));
    }
    dev.finish().await;
}

#[tokio::test]
async fn domain_and_profile_have_one_connection() {
    let dev = Dev::start().await;
    create(&dev, "example.com", "shop", json!({})).await;
    create(&dev, "example.com", "mall", json!({})).await;
    create(&dev, "www.example.com", "shop", json!({})).await;
    let again = json!({"domain": "EXAMPLE.com", "profile_name": "shop"});
    let again = dev.post(PATH, again).await;
    again.assert_error(409, "conflict");
    assert_eq!(again.bad_fields(), ["profile_name"]);
    assert_eq!(again.header("x-should-retry"), "false");
    dev.finish().await;
}

#[tokio::test]
async fn list_is_filtered_and_paged() {
    let dev = Dev::start().await;
    for (domain, profile) in [
        ("shop.example", "a"),
        ("www.shop.example", "b-SHOP"),
        ("bank.example", "c"),
    ] {
        create(&dev, domain, profile, json!({})).await;
    }
    let list = async |query: &str| dev.get(&format!("{PATH}?{query}")).await;
    assert_eq!(profiles(&list("").await), ["c", "b-SHOP", "a"]);
    assert_eq!(profiles(&list("domain=SHOP.example.").await), ["a"]);
    assert_eq!(profiles(&list("profile_name=b-SHOP").await), ["b-SHOP"]);
    assert_eq!(profiles(&list("profile_name=b-shop").await), [""; 0]);
    assert_eq!(profiles(&list("query=shop").await), ["b-SHOP", "a"]);
    assert_eq!(profiles(&list("query=B-sh").await), ["b-SHOP"]);
    let both = list("domain=shop.example&profile_name=c").await;
    assert_eq!(both.body, json!([]));
    let first = list("limit=2").await;
    assert_eq!(profiles(&first), ["c", "b-SHOP"]);
    let pages = (first.header("x-has-more"), first.header("x-next-offset"));
    assert_eq!(pages, ("true", "2"));
    let last = list("limit=2&offset=2").await;
    assert_eq!(profiles(&last), ["a"]);
    let pages = (last.header("x-has-more"), last.header("x-next-offset"));
    assert_eq!(pages, ("false", "0"));
    let id = first.body[0]["id"].as_str().unwrap();
    assert_eq!(profiles(&list(&format!("query={id}")).await), ["c"]);
    dev.finish().await;
}

/// Sends a request about another project.
async fn in_project(dev: &Dev, project: &Value, method: Method, path: &str, body: Value) -> Answer {
    let request = dev.request(method, path);
    let request = request.header("x-project-id", project["id"].as_str().unwrap());
    Answer::of(request.json(&body)).await
}

#[tokio::test]
async fn connections_and_credentials_of_another_project_are_not_found() {
    let dev = Dev::start().await;
    let other = dev.post("/org/projects", json!({"name": "other"})).await;
    let other = other.body;
    let created = create(&dev, "example.com", "shop", json!({})).await;
    credential(&dev, "admin", "example.com").await;
    let listed = in_project(&dev, &other, Method::GET, PATH, json!({})).await;
    assert_eq!(listed.body, json!([]));
    for method in [Method::GET, Method::PATCH, Method::DELETE] {
        let answer = in_project(&dev, &other, method, &path(&created), json!({})).await;
        answer.assert_error(404, "not_found");
    }
    let request = json!({
        "domain": "example.com",
        "profile_name": "shop",
        "credential": {"name": "admin"},
    });
    let refused = in_project(&dev, &other, Method::POST, PATH, request).await;
    refused.assert_error(400, "bad_request");
    assert_eq!(refused.bad_fields(), ["credential.name"]);
    let same = json!({"domain": "example.com", "profile_name": "shop"});
    let same = in_project(&dev, &other, Method::POST, PATH, same).await;
    assert_eq!(same.status, 201, "{}", same.body);
    let item = path(&created);
    for (method, path) in [
        (Method::GET, PATH),
        (Method::POST, PATH),
        (Method::GET, item.as_str()),
        (Method::PATCH, item.as_str()),
        (Method::DELETE, item.as_str()),
    ] {
        for jwt in ["", "?jwt=x.y.z"] {
            let request = dev.anonymous(method.clone(), &format!("{path}{jwt}"));
            let refused = Answer::of(request.json(&json!({}))).await;
            refused.assert_error(401, "unauthorized");
        }
    }
    assert_eq!(dev.get(&item).await.body, created);
    dev.finish().await;
}

#[tokio::test]
async fn project_with_connections_is_not_deleted() {
    let dev = Dev::start().await;
    let other = dev.post("/org/projects", json!({"name": "other"})).await;
    let other = other.body;
    let request = json!({"domain": "example.com", "profile_name": "shop"});
    let created = in_project(&dev, &other, Method::POST, PATH, request.clone()).await;
    assert_eq!(created.status, 201, "{}", created.body);
    let project = format!("/org/projects/{}", other["id"].as_str().unwrap());
    let refused = dev.delete(&project).await;
    refused.assert_error(409, "project_not_empty");
    let path = path(&created.body);
    let deleted = in_project(&dev, &other, Method::DELETE, &path, json!({})).await;
    assert_eq!(deleted.status, 204);
    let archived = dev.patch(&project, json!({"status": "archived"})).await;
    assert_eq!(archived.status, 200, "{}", archived.body);
    let refused = in_project(&dev, &other, Method::POST, PATH, request).await;
    refused.assert_error(403, "project_archived");
    assert_eq!(dev.delete(&project).await.status, 204);
    dev.finish().await;
}

#[tokio::test]
async fn connections_of_all_projects_count_towards_the_limit() {
    let dev = Dev::with(&["--max-auth-connections", "2"]).await;
    let other = dev.post("/org/projects", json!({"name": "other"})).await;
    let other = other.body;
    let usage = async || {
        let limits = dev.get("/org/limits").await.body;
        assert_eq!(limits["max_auth_connections"], 2);
        limits["auth_connections_used"].clone()
    };
    assert_eq!(usage().await, 0);
    let created = create(&dev, "example.com", "shop", json!({})).await;
    let request = json!({"domain": "example.com", "profile_name": "shop"});
    let second = in_project(&dev, &other, Method::POST, PATH, request).await;
    assert_eq!(second.status, 201, "{}", second.body);
    assert_eq!(usage().await, 2);
    let more = json!({"domain": "example.com", "profile_name": "mall"});
    let refused = dev.post(PATH, more.clone()).await;
    refused.assert_error(409, "conflict");
    assert_eq!(refused.header("x-should-retry"), "false");
    let message = refused.body["message"].as_str().unwrap();
    assert_eq!(message, "auth connection limit reached (2)");
    assert_eq!(dev.delete(&path(&created)).await.status, 204);
    assert_eq!(usage().await, 1);
    assert_eq!(dev.post(PATH, more).await.status, 201);
    dev.finish().await;
}

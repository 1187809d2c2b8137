//! `/org/api_keys`.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::support::{
    dev::{Answer, Dev},
    wait::until,
};

fn id(key: &Value) -> &str {
    key["id"].as_str().unwrap()
}

async fn is_accepted(dev: &Dev, key: &str) -> bool {
    let response = Answer::of(dev.anonymous(Method::GET, "/browsers").bearer_auth(key)).await;
    response.status == StatusCode::OK
}

#[tokio::test]
async fn key_is_shown_once_then_masked_rotated_and_deleted() {
    let dev = Dev::start().await;
    let created = dev
        .post("/org/api_keys", json!({"name": "ci", "days_to_expire": 1}))
        .await;
    assert_eq!(created.status, StatusCode::CREATED);
    let key = created.body["key"].as_str().unwrap().to_owned();
    assert!(created.body["expires_at"].is_string());
    assert!(is_accepted(&dev, &key).await);

    let path = format!("/org/api_keys/{}", id(&created.body));
    let seen = dev.get(&path).await;
    assert_eq!(seen.body.get("key"), None);
    let masked = seen.body["masked_key"].as_str().unwrap();
    assert!(
        key.starts_with(masked.trim_end_matches('…')) && masked.len() < 30,
        "{masked}"
    );
    let listed = dev.get("/org/api_keys").await;
    assert_eq!(listed.body[0], seen.body);
    assert!(!listed.body.to_string().contains(&key));

    let at_once = json!({"expire_in_days": 0});
    let rotated = dev.post(&format!("{path}/rotate"), at_once).await;
    assert_eq!(rotated.status, StatusCode::CREATED);
    assert_ne!(id(&rotated.body), id(&created.body));
    let fresh = rotated.body["key"].as_str().unwrap();
    assert!(!is_accepted(&dev, &key).await && is_accepted(&dev, fresh).await);

    let path = format!("/org/api_keys/{}", id(&rotated.body));
    assert_eq!(dev.delete(&path).await.status, StatusCode::NO_CONTENT);
    assert!(!is_accepted(&dev, fresh).await);
    dev.delete(&path).await.assert_error(404, "not_found");
    dev.get(&path).await.assert_error(404, "not_found");
    dev.patch(&path, json!({"name": "n"}))
        .await
        .assert_error(404, "not_found");
    dev.post(&format!("{path}/rotate"), json!({}))
        .await
        .assert_error(404, "not_found");
    dev.get("/org/api_keys/x")
        .await
        .assert_error(404, "not_found");
    dev.finish().await;
}

#[tokio::test]
async fn record_names_creator_and_project_and_remains_after_deletion() {
    let dev = Dev::start().await;
    let project = dev.get("/org/projects/default").await.body;
    let own = dev.get("/org/api_keys").await.body[0].clone();
    assert_eq!(own.get("created_by"), None);
    let request = json!({"name": "Ünï code/%", "project_id": project["id"]});
    let created = dev.post("/org/api_keys", request).await.body;
    assert_eq!(
        (&created["project_id"], &created["project_name"]),
        (&project["id"], &project["name"])
    );
    let creator = json!({"id": own["id"], "name": own["name"]});
    assert_eq!(created["created_by"], creator);
    assert_eq!(created.get("deleted_at"), None);

    let path = format!("/org/api_keys/{}", id(&created));
    let renamed = dev.patch(&path, json!({"name": "new"})).await;
    assert_eq!(
        (renamed.status, &renamed.body["name"]),
        (StatusCode::OK, &json!("new"))
    );
    assert_eq!(dev.get(&path).await.body, renamed.body);
    assert!(is_accepted(&dev, created["key"].as_str().unwrap()).await);
    for (body, fields) in [
        (json!({}), &["name"][..]),
        (json!({"name": null}), &["name"]),
        (json!({"name": ""}), &["name"]),
        (json!({"name": "a\u{0}"}), &["name"]),
        (json!({"name": "x".repeat(256)}), &["name"]),
    ] {
        let refused = dev.patch(&path, body).await;
        refused.assert_error(400, "bad_request");
        assert_eq!(refused.bad_fields(), fields);
    }

    dev.delete(&path).await;
    let listed = dev.get("/org/api_keys?status=deleted").await.body;
    assert_eq!(listed[0]["id"], created["id"]);
    assert!(listed[0]["deleted_at"].is_string());
    assert!(
        !listed
            .to_string()
            .contains(created["key"].as_str().unwrap())
    );
    dev.finish().await;
}

#[tokio::test]
async fn rotated_key_is_valid_for_its_grace_period() {
    let dev = Dev::start().await;
    let request = json!({"name": "ci", "days_to_expire": 3});
    let old = dev.post("/org/api_keys", request).await.body;
    let path = format!("/org/api_keys/{}", id(&old));
    let rotate = async |body: Value| dev.post(&format!("{path}/rotate"), body).await;
    let by_default = rotate(json!({})).await.body;
    // The old key still expires after 3 days, and the new one with it.
    assert_eq!(by_default["expires_at"], old["expires_at"]);
    assert_eq!(dev.get(&path).await.body["expires_at"], old["expires_at"]);
    let sooner = rotate(json!({"days_to_expire": 1, "expire_in_days": 1})).await;
    assert_eq!(sooner.body["name"], "ci");
    let end = dev.get(&path).await.body["expires_at"].clone();
    assert!(end.as_str() < old["expires_at"].as_str(), "{end}");
    for key in [&old, &by_default, &sooner.body] {
        assert!(is_accepted(&dev, key["key"].as_str().unwrap()).await);
    }
    rotate(json!({"expire_in_days": 0})).await;
    assert!(!is_accepted(&dev, old["key"].as_str().unwrap()).await);
    let refused = rotate(json!({})).await;
    refused.assert_error(409, "conflict");
    assert_eq!(refused.header("x-should-retry"), "false");
    let renewed = rotate(json!({"days_to_expire": 3650, "expire_in_days": 3650})).await;
    assert!(is_accepted(&dev, renewed.body["key"].as_str().unwrap()).await);

    for (body, fields) in [
        (
            json!({"days_to_expire": 0, "expire_in_days": -1}),
            &["days_to_expire", "expire_in_days"][..],
        ),
        (
            json!({"days_to_expire": 3651, "expire_in_days": 3651}),
            &["days_to_expire", "expire_in_days"],
        ),
        (json!({"expire_in_days": "1"}), &["expire_in_days"]),
        (json!({"days_to_expire": 1.5}), &["days_to_expire"]),
    ] {
        let refused = rotate(body.clone()).await;
        refused.assert_error(400, "bad_request");
        assert_eq!(refused.bad_fields(), fields, "{body}");
    }
    dev.finish().await;
}

#[tokio::test]
async fn keys_are_filtered_and_sorted() {
    let dev = Dev::start().await;
    let mut keys = Vec::new();
    for request in [
        json!({"name": "b", "days_to_expire": 2}),
        json!({"name": "a%_", "days_to_expire": 1}),
        json!({"name": "c"}),
    ] {
        keys.push(dev.post("/org/api_keys", request).await.body);
    }
    dev.delete(&format!("/org/api_keys/{}", id(&keys[2]))).await;
    let dev_name = dev.get("/org/api_keys?limit=100").await.body[2]["name"].clone();
    let dev_name = dev_name.as_str().unwrap();
    let masked = keys[0]["masked_key"]
        .as_str()
        .unwrap()
        .trim_end_matches('…');
    for (query, expected) in [
        ("", &["a%_", "b", dev_name][..]),
        (
            "status=active&include_deleted=true",
            &["a%_", "b", dev_name],
        ),
        ("status=deleted", &["c"]),
        ("status=all", &["c", "a%_", "b", dev_name]),
        ("include_deleted=true", &["c", "a%_", "b", dev_name]),
        ("include_deleted=false", &["a%_", "b", dev_name]),
        ("name=b", &["b"]),
        ("name=B", &[]),
        ("name=c", &[]),
        ("query=A%25_", &["a%_"]),
        (&format!("query={}", id(&keys[1])), &["a%_"]),
        (&format!("query={masked}"), &["b"]),
        ("query='%20OR%201=1%20--", &[]),
        // The names of the creators.
        (&format!("query={dev_name}"), &["a%_", "b", dev_name]),
        (
            "sort_by=created_at&sort_direction=asc",
            &[dev_name, "b", "a%_"],
        ),
        ("name=b&sort_by=name", &["b"]),
        (
            "sort_by=expires_at&sort_direction=asc",
            &["a%_", "b", dev_name],
        ),
        ("sort_by=expires_at", &[dev_name, "b", "a%_"]),
        ("sort_by=name&sort_direction=asc&limit=1", &["a%_"]),
    ] {
        let listed = dev.get(&format!("/org/api_keys?{query}")).await;
        let listed = listed.body.as_array().unwrap().iter();
        let names: Vec<&str> = listed.map(|key| key["name"].as_str().unwrap()).collect();
        assert_eq!(names, expected, "{query}");
    }
    let long = "x".repeat(256);
    for (query, fields) in [
        (
            "status=expired&sort_by=key&sort_direction=up&include_deleted=1",
            &["include_deleted", "sort_by", "sort_direction", "status"][..],
        ),
        (&format!("name={long}&query={long}"), &["name", "query"]),
        ("query=%00", &["query"]),
    ] {
        let refused = dev.get(&format!("/org/api_keys?{query}")).await;
        refused.assert_error(400, "bad_request");
        assert_eq!(refused.bad_fields(), fields, "{query}");
    }
    dev.finish().await;
}

#[tokio::test]
async fn invalid_key_request_names_each_invalid_field() {
    let dev = Dev::start().await;
    for (body, fields) in [
        (json!({}), &["name"][..]),
        (json!({"name": 1}), &["name"]),
        (json!({"name": "a\nb"}), &["name"]),
        (json!({"name": "ü".repeat(256)}), &["name"]),
        (
            json!({"name": "", "project_id": "x", "expires_at": "soon", "days_to_expire": 0}),
            &["days_to_expire", "expires_at", "name", "project_id"],
        ),
        (json!({"name": "a", "project_id": 1}), &["project_id"]),
        (
            json!({"name": "a", "expires_at": "2020-01-01T00:00:00Z"}),
            &["expires_at"],
        ),
        (json!({"name": "a", "expires_at": 5}), &["expires_at"]),
        (
            json!({"name": "a", "days_to_expire": 3651}),
            &["days_to_expire"],
        ),
        (
            json!({"name": "a", "days_to_expire": "1"}),
            &["days_to_expire"],
        ),
        (
            json!({"name": "a", "days_to_expire": 1, "expires_at": "2999-01-01T00:00:00Z"}),
            &["days_to_expire"],
        ),
        (
            json!({"name": 1, "days_to_expire": 3, "expires_at": "2999-01-01T00:00:00Z"}),
            &["days_to_expire", "name"],
        ),
        (json!([]), &["body"]),
    ] {
        let response = dev.post("/org/api_keys", body.clone()).await;
        response.assert_error(400, "bad_request");
        assert_eq!(response.bad_fields(), fields, "{body}");
    }
    let limited = json!({"name": "a", "policy": {"read_only": true}});
    let response = dev.post("/org/api_keys", limited).await;
    response.assert_error(400, "unsupported_field");
    assert_eq!(response.bad_fields(), ["policy"]);
    let unknown_project = json!({"name": "a", "project_id": "proj_00000000000000000000000000"});
    dev.post("/org/api_keys", unknown_project)
        .await
        .assert_error(404, "not_found");
    for (query, fields) in [
        ("limit=0", &["limit"][..]),
        ("limit=101", &["limit"]),
        ("limit=x&offset=-1", &["limit", "offset"]),
    ] {
        let response = dev.get(&format!("/org/api_keys?{query}")).await;
        response.assert_error(400, "bad_request");
        assert_eq!(response.bad_fields(), fields);
    }
    dev.finish().await;
}

#[tokio::test]
async fn keys_are_listed_in_pages() {
    let dev = Dev::start().await;
    let mut expected = vec![id(&dev.get("/org/api_keys").await.body[0]).to_owned()];
    for n in 0..4 {
        let created = dev
            .post("/org/api_keys", json!({"name": format!("k{n}")}))
            .await;
        expected.insert(0, id(&created.body).to_owned());
    }
    let (mut listed, mut offset) = (Vec::new(), 0);
    loop {
        let page = dev
            .get(&format!("/org/api_keys?limit=2&offset={offset}"))
            .await;
        let ids = page.body.as_array().unwrap().iter().map(id);
        listed.extend(ids.map(str::to_owned));
        offset = page.header("x-next-offset").parse().unwrap();
        assert_eq!(
            page.header("x-has-more"),
            if offset > 0 { "true" } else { "false" }
        );
        if offset == 0 {
            break;
        }
    }
    assert_eq!(listed, expected);
    assert_eq!(dev.get("/org/api_keys?offset=9").await.body, json!([]));
    dev.finish().await;
}

#[tokio::test]
async fn bound_key_manages_keys_of_its_project_only() {
    let dev = Dev::start().await;
    let default = dev.get("/auth/context").await.body["project_id"].clone();
    let bound = dev
        .post(
            "/org/api_keys",
            json!({"name": "bound", "project_id": default}),
        )
        .await;
    let as_bound = |method: Method, path: &str| {
        dev.anonymous(method, path)
            .bearer_auth(bound.body["key"].as_str().unwrap())
    };
    let listed = Answer::of(as_bound(Method::GET, "/org/api_keys")).await;
    assert_eq!(listed.body.as_array().unwrap().len(), 1);
    let dev_key = dev.get("/org/api_keys?offset=1").await.body[0].clone();
    let hidden = format!("/org/api_keys/{}", id(&dev_key));
    for (method, path) in [
        (Method::GET, hidden.clone()),
        (Method::PATCH, hidden.clone()),
        (Method::DELETE, hidden.clone()),
        (Method::POST, format!("{hidden}/rotate")),
    ] {
        Answer::of(as_bound(method, &path).json(&json!({"name": "n"})))
            .await
            .assert_error(404, "not_found");
    }
    let created =
        Answer::of(as_bound(Method::POST, "/org/api_keys").json(&json!({"name": "child"}))).await;
    assert_eq!(created.body["project_id"], default);
    let elsewhere = json!({"name": "child", "project_id": "proj_00000000000000000000000000"});
    let refused = Answer::of(as_bound(Method::POST, "/org/api_keys").json(&elsewhere)).await;
    refused.assert_error(403, "forbidden");
    dev.finish().await;
}

#[tokio::test]
async fn key_creates_and_rotates_no_key_that_outlives_it() {
    let dev = Dev::start().await;
    let caller = dev
        .post("/org/api_keys", json!({"name": "c", "days_to_expire": 1}))
        .await
        .body;
    let as_caller = |path: &str, body: Value| {
        let request = dev.anonymous(Method::POST, path);
        let request = request.bearer_auth(caller["key"].as_str().unwrap());
        Answer::of(request.json(&body))
    };
    for lifetime in [
        json!({"name": "n", "days_to_expire": 2}),
        json!({"name": "n", "expires_at": "2999-01-01T00:00:00Z"}),
    ] {
        let refused = as_caller("/org/api_keys", lifetime).await;
        refused.assert_error(403, "forbidden");
        let message = refused.body["message"].as_str().unwrap();
        let limit = caller["expires_at"].as_str().unwrap();
        assert!(message.contains(limit), "{message}");
    }
    let inherited = as_caller("/org/api_keys", json!({"name": "n"})).await;
    assert_eq!(inherited.status, StatusCode::CREATED);
    assert_eq!(inherited.body["expires_at"], caller["expires_at"]);

    let unlimited = dev.post("/org/api_keys", json!({"name": "u"})).await.body;
    let rotate = |key: &Value| format!("/org/api_keys/{}/rotate", id(key));
    let refused = as_caller(&rotate(&unlimited), json!({})).await;
    refused.assert_error(403, "forbidden");
    assert!(is_accepted(&dev, unlimited["key"].as_str().unwrap()).await);
    for longer in [
        json!({"days_to_expire": 2}),
        json!({"days_to_expire": 3650}),
    ] {
        let refused = as_caller(&rotate(&inherited.body), longer).await;
        refused.assert_error(403, "forbidden");
    }
    let rotated = as_caller(&rotate(&inherited.body), json!({})).await;
    assert_eq!(rotated.status, StatusCode::CREATED, "{}", rotated.body);
    dev.finish().await;
}

/// Sends `part` and reads until the response contains `end`.
async fn exchange(connection: &mut TcpStream, part: &str, end: &str) -> String {
    connection.write_all(part.as_bytes()).await.unwrap();
    let mut received = Vec::new();
    while !String::from_utf8_lossy(&received).contains(end) {
        let read = connection.read_buf(&mut received).await.unwrap();
        assert_ne!(read, 0, "{}", String::from_utf8_lossy(&received));
    }
    String::from_utf8(received).unwrap()
}

#[tokio::test]
async fn request_whose_key_is_deleted_before_its_body_arrives_creates_no_key() {
    let dev = Dev::start().await;
    let caller = dev.post("/org/api_keys", json!({"name": "caller"})).await;
    let key = caller.body["key"].as_str().unwrap();
    let body = json!({"name": "created"}).to_string();
    let address = dev.base_url.trim_start_matches("http://");
    let mut connection = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "POST /org/api_keys HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\nexpect: 100-continue\r\n\r\n",
        body.len()
    );
    // The server asks for the body after it has authenticated the request.
    let requested = exchange(&mut connection, &head, "\r\n\r\n").await;
    assert!(requested.starts_with("HTTP/1.1 100 "), "{requested}");
    let path = format!("/org/api_keys/{}", id(&caller.body));
    assert_eq!(dev.delete(&path).await.status, StatusCode::NO_CONTENT);
    let response = exchange(&mut connection, &body, "}").await;
    assert!(response.starts_with("HTTP/1.1 401 "), "{response}");
    let listed = dev.get("/org/api_keys").await.body;
    assert!(!listed.to_string().contains("created\""), "{listed}");
    dev.finish().await;
}

#[tokio::test]
async fn key_whose_deletion_cannot_be_stored_is_denied_and_deleted_later() {
    let dev = Dev::start().await;
    let created = dev.post("/org/api_keys", json!({"name": "leaked"})).await;
    let key = created.body["key"].as_str().unwrap();
    assert!(is_accepted(&dev, key).await);
    let path = format!("/org/api_keys/{}", id(&created.body));
    dev.refuse_change("UPDATE OF deleted_at ON api_keys", "true")
        .await;
    for _ in 0..2 {
        let refused = dev.delete(&path).await;
        refused.assert_error(503, "unavailable");
        assert_ne!(refused.header("retry-after"), "");
        assert!(!is_accepted(&dev, key).await);
    }
    dev.post(&format!("{path}/rotate"), json!({}))
        .await
        .assert_error(404, "not_found");
    dev.allow().await;
    until("the deletion of the key", async || {
        (dev.get(&path).await.status == StatusCode::NOT_FOUND).then_some(())
    })
    .await;
    assert!(!is_accepted(&dev, key).await);
    dev.finish().await;
}

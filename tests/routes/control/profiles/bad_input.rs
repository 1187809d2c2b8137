//! Invalid requests about profiles.

use reqwest::{Method, header};
use serde_json::json;
use tar::EntryType;

use crate::support::{
    archives::{compressed, entry, file, link, packed},
    dev::{Answer, Dev},
    profiles::{download, profile, upload},
    requests::unfinished,
};

const UNKNOWN: &str = "prof_00000000000000000000000000";

#[tokio::test]
async fn invalid_request_names_each_invalid_field() {
    let dev = Dev::start().await;
    profile(&dev, "shop").await;
    let long = "x".repeat(256);
    for name in [
        json!(""),
        json!("a b"),
        json!(".."),
        json!(long),
        json!(UNKNOWN),
        json!(1),
    ] {
        let created = dev.post("/profiles", json!({"name": name})).await;
        created.assert_error(400, "bad_request");
        assert_eq!(created.bad_fields(), ["name"], "{name}");
        let changed = dev.patch("/profiles/shop", json!({"name": name})).await;
        changed.assert_error(400, "bad_request");
        assert_eq!(changed.bad_fields(), ["name"], "{name}");
    }
    for body in [json!([]), json!("x")] {
        let created = dev.post("/profiles", body).await;
        assert_eq!(created.bad_fields(), ["body"]);
    }
    for (query, fields) in [
        ("limit=0", &["limit"][..]),
        ("limit=101&offset=-1", &["limit", "offset"]),
        (&format!("query={long}"), &["query"]),
        (&format!("name={long}"), &["name"]),
    ] {
        let listed = dev.get(&format!("/profiles?{query}")).await;
        listed.assert_error(400, "bad_request");
        assert_eq!(listed.bad_fields(), fields, "{query}");
    }
    let versions = dev.get("/profiles/shop/versions?limit=x").await;
    assert_eq!(versions.bad_fields(), ["limit"]);
    let download = dev.get("/profiles/shop/download?format=zip").await;
    assert_eq!(download.bad_fields(), ["format"]);
    for version in ["one", "-1", "99999999999999999999"] {
        let path = format!("/profiles/shop/versions/{version}/restore");
        let restored = dev.post(&path, json!({})).await;
        restored.assert_error(404, "not_found");
    }
    dev.finish().await;
}

#[tokio::test]
async fn unknown_profile_is_404() {
    let dev = Dev::start().await;
    for profile in [UNKNOWN, "unknown", "%2F", &"x".repeat(1000)] {
        for (method, path) in [
            (Method::GET, ""),
            (Method::PATCH, ""),
            (Method::DELETE, ""),
            (Method::GET, "/download"),
            (Method::PUT, "/upload"),
            (Method::GET, "/versions"),
            (Method::POST, "/versions/1/restore"),
        ] {
            let request = dev.request(method, &format!("/profiles/{profile}{path}"));
            let answer = Answer::of(request.json(&json!({}))).await;
            answer.assert_error(404, "not_found");
        }
        let created = dev
            .post("/browsers", json!({"profile": {"name": "unknown"}}))
            .await;
        created.assert_error(404, "not_found");
        assert_eq!(created.bad_fields(), ["profile"]);
    }
    assert_eq!(dev.get("/browsers?status=all").await.body, json!([]));
    dev.finish().await;
}

#[tokio::test]
async fn request_without_a_credential_is_401() {
    let dev = Dev::start().await;
    profile(&dev, "shop").await;
    for (method, path) in [
        (Method::GET, "/profiles"),
        (Method::POST, "/profiles"),
        (Method::GET, "/profiles/shop"),
        (Method::PATCH, "/profiles/shop"),
        (Method::DELETE, "/profiles/shop"),
        (Method::GET, "/profiles/shop/download"),
        (Method::PUT, "/profiles/shop/upload"),
        (Method::GET, "/profiles/shop/versions"),
        (Method::POST, "/profiles/shop/versions/1/restore"),
        (Method::POST, "/browsers/b/profiles"),
    ] {
        let answer = Answer::of(dev.anonymous(method.clone(), path)).await;
        answer.assert_error(401, "unauthorized");
        let wrong = dev.anonymous(method, path).bearer_auth("wrong");
        Answer::of(wrong).await.assert_error(401, "unauthorized");
    }
    dev.finish().await;
}

#[tokio::test]
async fn archive_that_cannot_be_used_changes_nothing() {
    let dev = Dev::with(&["--profile-mb", "1"]).await;
    profile(&dev, "shop").await;
    for archive in [&b""[..], b"no archive", &[0; 1024]] {
        let answer = upload(&dev, "shop", archive.to_vec()).await;
        answer.assert_error(400, "bad_request");
        assert_eq!(answer.bad_fields(), ["body"]);
    }
    let too_large = upload(&dev, "shop", vec![0; (1 << 20) + 1]).await;
    too_large.assert_error(413, "payload_too_large");
    // One that announces too much is refused before it is received.
    let (_sender, body) = unfinished("the start");
    let request = dev.request(Method::PUT, "/profiles/shop/upload");
    let announced = request.header(header::CONTENT_LENGTH, (1 << 20) + 1);
    let refused = Answer::of(announced.body(body)).await;
    refused.assert_error(413, "payload_too_large");
    assert_eq!(dev.get("/profiles/shop/versions").await.body, json!([]));
    assert_eq!(dev.get("/profiles/shop").await.body.get("version"), None);
    // Nothing was stored, and no save is left in progress.
    let blobs = std::fs::read_dir(dev.state_dir().join("blobs/profiles"));
    assert_eq!(blobs.map_or(0, Iterator::count), 0);
    let spool = std::fs::read_dir(dev.state_dir().join("profile-spool"));
    assert_eq!(spool.unwrap().count(), 0);
    let operations = dev.rows("SELECT id FROM profile_operations").await;
    assert_eq!(operations.len(), 0);
    dev.finish().await;
}

#[tokio::test]
async fn hostile_archive_changes_nothing() {
    let dev = Dev::start().await;
    profile(&dev, "shop").await;
    let marker = || file("Local State", b"{}");
    let valid = packed(&[marker()]);
    let uploaded = upload(&dev, "shop", valid.clone()).await;
    assert_eq!(uploaded.body["version"], 1, "{}", uploaded.body);
    let linked = |hard| entry(EntryType::Link, "file", hard, b"");
    let directory = entry(EntryType::Directory, "dir", "", b"");
    for (case, archive, status) in [
        ("dots", packed(&[marker(), file("../file", b"")]), 400),
        (
            "dots within",
            packed(&[marker(), file("a/../../file", b"")]),
            400,
        ),
        ("absolute", packed(&[marker(), file("/tmp/file", b"")]), 400),
        ("link out", packed(&[marker(), link("link", "/etc")]), 400),
        (
            "link up",
            packed(&[marker(), link("a/link", "../../x")]),
            400,
        ),
        (
            "through a link",
            packed(&[marker(), directory, link("in", "dir"), file("in/file", b"")]),
            400,
        ),
        (
            "hard link out",
            packed(&[marker(), linked("/etc/passwd")]),
            400,
        ),
        (
            "device",
            packed(&[marker(), entry(EntryType::Char, "null", "", b"")]),
            400,
        ),
        (
            "FIFO",
            packed(&[marker(), entry(EntryType::Fifo, "fifo", "", b"")]),
            400,
        ),
        ("twice", packed(&[marker(), marker()]), 400),
        ("no end marker", compressed(&marker()), 400),
        (
            "of something else",
            packed(&[file("file", b"content")]),
            400,
        ),
        (
            "bomb",
            packed(&[marker(), file("zeros", &vec![0; 66 << 20])]),
            413,
        ),
    ] {
        let refused = upload(&dev, "shop", archive).await;
        assert_eq!(refused.status.as_u16(), status, "{case}: {}", refused.body);
        if status == 400 {
            assert_eq!(refused.bad_fields(), ["body"], "{case}");
        }
    }
    let versions = dev.get("/profiles/shop/versions").await.body;
    assert_eq!(versions.as_array().unwrap().len(), 1);
    assert_eq!(download(&dev, "shop").await, valid);
    let blobs = std::fs::read_dir(dev.state_dir().join("blobs/profiles"));
    assert_eq!(blobs.unwrap().count(), 1);
    let spool = std::fs::read_dir(dev.state_dir().join("profile-spool"));
    assert_eq!(spool.unwrap().count(), 0);
    dev.finish().await;
}

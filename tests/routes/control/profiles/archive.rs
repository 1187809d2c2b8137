//! Archives of profiles: save, download, upload, versions.

use reqwest::{Method, StatusCode, header};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::support::{
    dev::{Answer, Dev},
    profiles::{download, end, found, profile, save, saved, upload},
};

fn sha256(archive: &[u8]) -> String {
    let digest = Sha256::digest(archive);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn numbers(versions: &Value) -> Vec<u64> {
    let versions = versions.as_array().unwrap().iter();
    versions
        .map(|version| version["version"].as_u64().unwrap())
        .collect()
}

#[tokio::test]
async fn saved_browser_is_downloaded_uploaded_and_restored() {
    let dev = Dev::with(&["--profile-versions", "2"]).await;
    let browser = dev.browser(json!({})).await;
    let receipt = saved(&dev, &browser, json!({"name": "shop"})).await;
    let shop = found(&dev, "shop").await;
    assert_eq!(receipt["profile_id"], shop["id"]);
    assert_eq!(
        (&receipt["version"], &shop["version"]),
        (&json!(1), &json!(1))
    );
    assert_eq!(receipt["size_bytes"], shop["size_bytes"]);
    for field in ["cookies", "origins", "skipped"] {
        assert!(receipt.get(field).is_some(), "{receipt}");
    }
    let archive = download(&dev, "shop").await;
    assert_eq!(receipt["size_bytes"], archive.len());
    assert_downloads(&dev, &archive).await;

    // The same archive in another profile.
    let other = profile(&dev, "other").await;
    let uploaded = upload(&dev, &other, archive.clone()).await;
    assert_eq!(uploaded.status, StatusCode::OK, "{}", uploaded.body);
    assert_eq!(uploaded.body["profile_id"], other.as_str());
    assert_eq!(uploaded.body["version"], 1);
    // A truncated one changes nothing.
    let truncated = archive[..archive.len() / 2].to_vec();
    let refused = upload(&dev, "other", truncated).await;
    refused.assert_error(400, "bad_request");
    assert_eq!(download(&dev, "other").await, archive);

    let id = shop["id"].as_str().unwrap();
    let second = saved(&dev, &browser, json!({"profile_id": id})).await;
    assert_eq!(second["version"], 2);
    assert_versions(&dev, &sha256(&archive)).await;
    // The archive is still that of the other profile, although the first one has lost it.
    let restored = dev
        .post("/profiles/shop/versions/2/restore", json!({}))
        .await;
    assert_eq!(restored.status, StatusCode::CREATED, "{}", restored.body);
    assert_eq!(restored.body["version"], 4);
    assert_eq!(restored.body["size_bytes"], second["size_bytes"]);
    let versions = dev.get("/profiles/shop/versions").await.body;
    assert_eq!(numbers(&versions), [4, 3]);
    let gone = dev
        .post("/profiles/shop/versions/1/restore", json!({}))
        .await;
    gone.assert_error(404, "not_found");
    assert_eq!(download(&dev, "other").await, archive);
    let deleted = dev.delete("/profiles/shop").await;
    assert_eq!(deleted.status, StatusCode::NO_CONTENT, "{}", deleted.body);
    assert_eq!(download(&dev, "other").await, archive);
    end(&dev, &browser).await;
    dev.finish().await;
}

/// Checks the versions 1 and 2, and that 1 is restored as 3.
async fn assert_versions(dev: &Dev, first: &str) {
    let versions = dev.get("/profiles/shop/versions").await.body;
    assert_eq!(numbers(&versions), [2, 1]);
    assert_eq!(versions[0]["is_current"], true);
    assert_eq!(versions[1]["is_current"], false);
    assert_eq!(versions[1]["sha256"], first);
    let page = dev.get("/profiles/shop/versions?limit=1&offset=1").await;
    assert_eq!(numbers(&page.body), [1]);
    let restored = dev
        .post("/profiles/shop/versions/1/restore", json!({}))
        .await;
    assert_eq!(restored.status, StatusCode::CREATED, "{}", restored.body);
    assert_eq!(restored.body["version"], 3);
    let versions = dev.get("/profiles/shop/versions").await.body;
    assert_eq!(numbers(&versions), [3, 2]);
    assert_eq!(versions[0]["restored_from"], 1);
    assert_eq!(versions[0]["sha256"], first);
}

/// Checks ranges, conditions and the decompressed form.
async fn assert_downloads(dev: &Dev, archive: &[u8]) {
    let get = |query: &str| dev.request(Method::GET, &format!("/profiles/shop/download{query}"));
    let whole = get("?format=tar.zst").send().await.unwrap();
    let header = |response: &reqwest::Response, name: header::HeaderName| {
        response.headers()[name].to_str().unwrap().to_owned()
    };
    let etag = header(&whole, header::ETAG);
    assert_eq!(etag, format!("\"{}\"", sha256(archive)));
    assert_eq!(
        header(&whole, header::CONTENT_DISPOSITION),
        "attachment; filename=\"shop.tar.zst\""
    );
    assert_eq!(
        header(&whole, header::CONTENT_TYPE),
        "application/octet-stream"
    );
    let part = get("").header(header::RANGE, "bytes=10-19").send().await;
    let part = part.unwrap();
    assert_eq!(part.status(), StatusCode::PARTIAL_CONTENT);
    assert_eq!(part.bytes().await.unwrap(), archive[10..20]);
    let beyond = get("").header(header::RANGE, format!("bytes={}-", archive.len()));
    let beyond = beyond.send().await.unwrap();
    assert_eq!(beyond.status(), StatusCode::RANGE_NOT_SATISFIABLE);
    let current = get("").header(header::IF_NONE_MATCH, &etag).send().await;
    assert_eq!(current.unwrap().status(), StatusCode::NOT_MODIFIED);

    let tar = get("?format=tar").send().await.unwrap();
    assert_eq!(tar.status(), StatusCode::OK);
    assert_eq!(
        header(&tar, header::CONTENT_DISPOSITION),
        "attachment; filename=\"shop.tar\""
    );
    let etag = header(&tar, header::ETAG);
    let tar = tar.bytes().await.unwrap();
    assert_eq!(&tar[257..262], b"ustar");
    assert_eq!(tar.len() % 512, 0);
    let current = get("?format=tar").header(header::IF_NONE_MATCH, etag);
    let current = current.send().await.unwrap();
    assert_eq!(current.status(), StatusCode::NOT_MODIFIED);
}

#[tokio::test]
async fn invalid_save_names_each_field_and_saves_nothing() {
    let dev = Dev::start().await;
    let browser = dev.browser(json!({})).await;
    let unknown = "prof_00000000000000000000000000";
    for (body, fields) in [
        (json!({}), &["profile_id"][..]),
        (json!([]), &["body"]),
        (json!({"profile_id": "x"}), &["profile_id"]),
        (json!({"profile_id": 1, "name": 1}), &["name", "profile_id"]),
        (json!({"name": "a b"}), &["name"]),
        (json!({"name": "a", "profile_id": unknown}), &["name"]),
    ] {
        let answer = save(&dev, &browser, body.clone()).await;
        answer.assert_error(400, "bad_request");
        assert_eq!(answer.bad_fields(), fields, "{body}");
    }
    let answer = save(&dev, &browser, json!({"profile_id": unknown})).await;
    answer.assert_error(404, "not_found");
    let none = dev
        .post("/browsers/none/profiles", json!({"name": "new"}))
        .await;
    none.assert_error(404, "not_found");
    // A token for the browser is none for the profiles of its project.
    let token = browser["cdp_ws_url"].as_str().unwrap();
    let token = token.split_once("jwt=").unwrap().1;
    let id = browser["session_id"].as_str().unwrap();
    let linked = dev.anonymous(
        Method::POST,
        &format!("/browsers/{id}/profiles?jwt={token}"),
    );
    let linked = Answer::of(linked.json(&json!({"name": "new"}))).await;
    linked.assert_error(401, "unauthorized");
    assert_eq!(dev.get("/profiles").await.body, json!([]));
    dev.finish().await;
}

/// Returns the archive of a profile that this version of Chromium has used.
fn archive_of_chromium(version: &str) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for (name, content) in [("Local State", "{}"), ("Last Version", version)] {
        let mut header = tar::Header::new_ustar();
        header.set_size(content.len() as u64);
        header.set_mode(0o600);
        let added = archive.append_data(&mut header, name, content.as_bytes());
        added.unwrap();
    }
    zstd::encode_all(&archive.into_inner().unwrap()[..], 1).unwrap()
}

#[tokio::test]
async fn archive_of_a_newer_chromium_is_not_loaded_and_not_uploaded() {
    let dev = Dev::start().await;
    let newer = archive_of_chromium("9999.0.0.0");
    profile(&dev, "shop").await;
    // Without a browser, the version of the fleet is not known.
    let uploaded = upload(&dev, "shop", newer.clone()).await;
    assert_eq!(uploaded.status, StatusCode::OK, "{}", uploaded.body);
    let body = json!({"profile": {"name": "shop"}});
    let created = dev.post("/browsers", body).await;
    created.assert_error(409, "newer_chromium");
    assert_eq!(dev.get("/browsers").await.body, json!([]));

    let browser = dev.browser(json!({})).await;
    let refused = upload(&dev, "shop", newer).await;
    refused.assert_error(409, "newer_chromium");
    assert_eq!(found(&dev, "shop").await["version"], 1);
    let uploaded = upload(&dev, "shop", archive_of_chromium("1.0.0.0")).await;
    assert_eq!(uploaded.body["version"], 2, "{}", uploaded.body);
    end(&dev, &browser).await;
    let browser = dev.browser(json!({"profile": {"name": "shop"}})).await;
    end(&dev, &browser).await;
    dev.finish().await;
}

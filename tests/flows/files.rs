//! Files and watches of a browser's host, through control.

use reqwest::{
    Method,
    multipart::{Form, Part},
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{
    dev::{Answer, Dev},
    events::Events,
    files::{noise, tree, untar},
    wait::in_time,
};

#[tokio::test]
async fn what_is_written_through_control_is_seen_by_a_watch_through_control() {
    let dev = Dev::start().await;
    let browser = dev.browser(json!({})).await;
    let route = |path: &str| {
        format!(
            "/browsers/{}{path}",
            browser["session_id"].as_str().unwrap()
        )
    };
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("file");

    let answer = dev
        .post(&route("/fs/watch"), json!({"path": folder.path()}))
        .await;
    assert_eq!(answer.status, 201, "{}", answer.body);
    let watch = answer.body["watch_id"].as_str().unwrap().to_owned();
    let events = route(&format!("/fs/watch/{watch}/events"));
    let mut events = Events::open(dev.request(Method::GET, &events)).await;

    let content: Vec<u8> = (0..=255).cycle().take(3 << 20).collect();
    let write = route(&format!("/fs/write_file?path={}", path.display()));
    let request = dev.request(Method::PUT, &write).body(content.clone());
    let answer = in_time("an answer", request.send()).await.unwrap();
    assert_eq!(answer.status(), 201);
    let until_named = async {
        loop {
            let (_, event) = events.next().await.expect("more events");
            // The draft is written beside the file, and then takes its name.
            if event["type"] == "CREATE" && event["path"] == json!(path) {
                return event;
            }
        }
    };
    let event: Value = in_time("the file's event", until_named).await;
    assert_eq!(event["is_dir"], false);

    let read = route(&format!("/fs/read_file?path={}", path.display()));
    let answer = in_time("an answer", dev.request(Method::GET, &read).send())
        .await
        .unwrap();
    assert_eq!(
        answer.headers()["content-length"],
        content.len().to_string()
    );
    assert!(answer.bytes().await.unwrap() == content);

    // An error of the agent's comes as it is.
    let answer = dev.get(&route("/fs/list_files?path=relative")).await;
    answer.assert_error(400, "bad_request");
    assert_eq!(answer.bad_fields(), ["path"]);

    dev.delete(&route(&format!("/fs/watch/{watch}"))).await;
    while events.next().await.is_some() {}
    dev.finish().await;
}

#[tokio::test]
async fn what_is_uploaded_through_control_is_downloaded_as_an_archive_through_control() {
    let dev = Dev::start().await;
    let browser = dev.browser(json!({})).await;
    let id = browser["session_id"].as_str().unwrap();
    let route = |path: &str| format!("/browsers/{id}{path}");
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    std::fs::create_dir(at("tree")).unwrap();
    let form = Form::new()
        .part("files.0.file", Part::bytes(noise(3 << 20)))
        .text("files.0.dest_path", at("tree/noise"))
        .text("files.1.dest_path", at("tree/text"))
        .part("files.1.file", Part::text("text"));
    let request = dev.request(Method::POST, &route("/fs/upload"));
    let answer = Answer::of(request.multipart(form)).await;
    assert_eq!(answer.status, 201, "{}", answer.body);

    let download = async |kind: &str| {
        let path = route(&format!("/fs/download_dir_{kind}?path={}", at("tree")));
        let request = dev.request(Method::GET, &path);
        let answer = in_time("an archive", request.send()).await.unwrap();
        assert_eq!(answer.status(), 200);
        in_time("its content", answer.bytes()).await.unwrap()
    };
    untar(&download("zstd").await, &folder.path().join("untarred"));
    let form = Form::new()
        .part("zip_file", Part::bytes(download("zip").await.to_vec()))
        .text("dest_path", at("unzipped"));
    let request = dev.request(Method::POST, &route("/fs/upload_zip"));
    let answer = Answer::of(request.multipart(form)).await;
    assert_eq!(answer.status, 201, "{}", answer.body);
    let whole = tree(&folder.path().join("tree"));
    assert_eq!(whole.len(), 2);
    assert_eq!(tree(&folder.path().join("untarred")), whole);
    assert_eq!(tree(&folder.path().join("unzipped")), whole);

    // What is refused half-way is told all the same.
    let form = Form::new().part("zip_file", Part::bytes(noise(8 << 20)));
    let request = dev.request(Method::POST, &route("/fs/upload_zip"));
    let answer = Answer::of(request.multipart(form.text("dest_path", "relative"))).await;
    answer.assert_error(400, "bad_request");
    assert_eq!(answer.bad_fields(), ["dest_path"]);
    dev.finish().await;
}

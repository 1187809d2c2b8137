//! Files and watches of a browser's host, through the control plane.

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
async fn file_written_through_control_is_reported_by_watch() {
    let dev = Dev::start().await;
    let browser = dev.browser(json!({})).await;
    let route = |path: &str| {
        format!(
            "/browsers/{}{path}",
            browser["session_id"].as_str().unwrap()
        )
    };
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("file");

    let response = dev
        .post(&route("/fs/watch"), json!({"path": directory.path()}))
        .await;
    assert_eq!(response.status, 201, "{}", response.body);
    let watch = response.body["watch_id"].as_str().unwrap().to_owned();
    let events = route(&format!("/fs/watch/{watch}/events"));
    let mut events = Events::open(dev.request(Method::GET, &events)).await;

    let content: Vec<u8> = (0..=255).cycle().take(3 << 20).collect();
    let write = route(&format!("/fs/write_file?path={}", path.display()));
    let request = dev.request(Method::PUT, &write).body(content.clone());
    let response = in_time("a response", request.send()).await.unwrap();
    assert_eq!(response.status(), 201);
    let until_created = async {
        loop {
            let (_, event) = events.next().await.expect("more events");
            // Events of the temporary file precede its rename.
            if event["type"] == "CREATE" && event["path"] == json!(path) {
                return event;
            }
        }
    };
    let event: Value = in_time("the event of the file", until_created).await;
    assert_eq!(event["is_dir"], false);

    let read = route(&format!("/fs/read_file?path={}", path.display()));
    let response = in_time("a response", dev.request(Method::GET, &read).send())
        .await
        .unwrap();
    assert_eq!(
        response.headers()["content-length"],
        content.len().to_string()
    );
    assert_eq!(response.headers()["x-content-type-options"], "nosniff");
    assert!(response.bytes().await.unwrap() == content);

    // Errors of the agent are passed on unchanged.
    let response = dev.get(&route("/fs/list_files?path=relative")).await;
    response.assert_error(400, "bad_request");
    assert_eq!(response.bad_fields(), ["path"]);

    dev.delete(&route(&format!("/fs/watch/{watch}"))).await;
    while events.next().await.is_some() {}
    dev.finish().await;
}

#[tokio::test]
async fn files_uploaded_through_control_are_downloaded_as_archives() {
    let dev = Dev::start().await;
    let browser = dev.browser(json!({})).await;
    let id = browser["session_id"].as_str().unwrap();
    let route = |path: &str| format!("/browsers/{id}{path}");
    let directory = TempDir::new().unwrap();
    let path_of = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    std::fs::create_dir(path_of("tree")).unwrap();
    let form = Form::new()
        .part("files.0.file", Part::bytes(noise(3 << 20)))
        .text("files.0.dest_path", path_of("tree/noise"))
        .text("files.1.dest_path", path_of("tree/text"))
        .part("files.1.file", Part::text("text"));
    let request = dev.request(Method::POST, &route("/fs/upload"));
    let response = Answer::of(request.multipart(form)).await;
    assert_eq!(response.status, 201, "{}", response.body);

    let download = async |kind: &str| {
        let path = route(&format!("/fs/download_dir_{kind}?path={}", path_of("tree")));
        let request = dev.request(Method::GET, &path);
        let response = in_time("an archive", request.send()).await.unwrap();
        assert_eq!(response.status(), 200);
        in_time("the content", response.bytes()).await.unwrap()
    };
    untar(&download("zstd").await, &directory.path().join("untarred"));
    let form = Form::new()
        .part("zip_file", Part::bytes(download("zip").await.to_vec()))
        .text("dest_path", path_of("unzipped"));
    let request = dev.request(Method::POST, &route("/fs/upload_zip"));
    let response = Answer::of(request.multipart(form)).await;
    assert_eq!(response.status, 201, "{}", response.body);
    let expected = tree(&directory.path().join("tree"));
    assert_eq!(expected.len(), 2);
    assert_eq!(tree(&directory.path().join("untarred")), expected);
    assert_eq!(tree(&directory.path().join("unzipped")), expected);

    // A request that is refused before its end still gets the complete error.
    let form = Form::new().part("zip_file", Part::bytes(noise(8 << 20)));
    let request = dev.request(Method::POST, &route("/fs/upload_zip"));
    let response = Answer::of(request.multipart(form.text("dest_path", "relative"))).await;
    response.assert_error(400, "bad_request");
    assert_eq!(response.bad_fields(), ["dest_path"]);
    dev.finish().await;
}

//! Files and watches of a browser's host, through control.

use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{dev::Dev, events::Events, wait::in_time};

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

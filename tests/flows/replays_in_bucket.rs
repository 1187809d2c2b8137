//! Replays in a bucket of an S3-compatible service, through restarts of control and of the service.

use std::fs;

use berth::api::ids::ReplayId;
use reqwest::{Method, Response};
use serde_json::json;

use crate::support::{
    dev::{Dev, State},
    printed::print,
    replays::add_finished,
    s3::S3Server,
    wait::until,
};

async fn start(state: State, s3: &S3Server) -> Dev {
    Dev::start_with_variables(state, &[], s3.variables()).await
}

/// Starts control, which fails. Returns the message.
async fn start_refused(state: &State, variables: Vec<(&str, String)>) -> String {
    let mut command = state.command(&["control", "--listen", "127.0.0.1:0"]);
    command.envs(variables);
    let refused = print(command).await;
    assert_eq!(refused.status.code(), Some(1), "{}", refused.stderr);
    refused.stderr
}

/// Records a replay in a new browser and deletes the browser. Returns the path of the replay.
async fn record(dev: &Dev, content: &[u8]) -> (String, ReplayId) {
    let browser = dev.browser(json!({})).await;
    let id = add_finished(dev, &browser, content);
    let path = format!("/browsers/{}", browser["session_id"].as_str().unwrap());
    assert_eq!(dev.delete(&path).await.status, 204, "{}", dev.log());
    (format!("{path}/replays/{id}"), id)
}

async fn file(dev: &Dev, replay: &str, range: &str) -> Response {
    let request = dev.request(Method::GET, replay).header("Range", range);
    request.send().await.unwrap()
}

/// Waits until a replay is stored, and asserts that it and ranges of it can be read.
async fn assert_plays(dev: &Dev, replay: &str, content: &[u8]) {
    let whole = until("the file", async || {
        let file = file(dev, replay, "bytes=0-").await;
        assert!(matches!(file.status().as_u16(), 202 | 206), "{}", dev.log());
        (file.status() == 206).then_some(file)
    })
    .await;
    assert!(whole.bytes().await.unwrap() == content);
    let part = file(dev, replay, "bytes=100-299").await;
    assert_eq!(part.status(), 206);
    assert_eq!(part.bytes().await.unwrap(), content[100..300]);
    let beyond = file(dev, replay, &format!("bytes={}-", content.len())).await;
    assert_eq!(beyond.status(), 416);
}

#[tokio::test]
async fn replays_in_a_bucket_survive_restarts_of_control_and_of_the_service() {
    let mut s3 = S3Server::start().await;
    let dev = start(State::new(), &s3).await;
    // Several parts.
    let content: Vec<u8> = (0..20_u32 << 20).map(|n| (n / 100) as u8).collect();
    let (first, id) = record(&dev, &content).await;
    assert_plays(&dev, &first, &content).await;
    let object = s3.blobs().join(format!("replays/{id}.mp4"));
    let size = fs::metadata(&object).unwrap().len();
    assert_eq!(size, content.len() as u64);
    let local = fs::read_dir(dev.state_dir().join("blobs")).unwrap();
    assert_eq!(local.count(), 0);

    let dev = start(dev.finish().await, &s3).await;
    assert_plays(&dev, &first, &content).await;

    s3.kill().await;
    let failed = dev.get(&first).await;
    failed.assert_error(503, "unavailable");
    assert!(!failed.header("retry-after").is_empty());
    assert_eq!(dev.get("/health").await.status, 200);
    let (second, _) = record(&dev, &content[..1000]).await;
    let waiting = file(&dev, &second, "bytes=0-").await;
    assert_eq!(waiting.status(), 202);
    let state = dev.crash().await;
    let refused = start_refused(&state, s3.variables()).await;
    let expected = "cannot open the blob store s3://berth-test/of/berth at http://127.";
    assert!(refused.contains(expected), "{refused}");

    s3.restart().await;
    let dev = start(state, &s3).await;
    assert_plays(&dev, &first, &content).await;
    assert_plays(&dev, &second, &content[..1000]).await;
    assert!(!dev.log().contains("canary"), "{}", dev.log());

    // The next start purges one of them.
    dev.sql("UPDATE purge_clock SET suspended_millis = 0").await;
    let month = 31_i64 * 24 * 60 * 60 * 1000;
    let expire =
        format!("UPDATE replays SET finished_at = finished_at - {month} WHERE id = '{id}'");
    dev.sql(&expire).await;
    let dev = start(dev.finish().await, &s3).await;
    until("the purge", async || {
        (dev.get(&first).await.status == 404).then_some(())
    })
    .await;
    assert!(!object.exists());
    assert_plays(&dev, &second, &content[..1000]).await;
    dev.finish().await;
}

#[tokio::test]
async fn control_refuses_a_store_and_a_database_of_which_one_lacks_the_replays() {
    let s3 = S3Server::start().await;
    let dev = start(State::new(), &s3).await;
    let (replay, _) = record(&dev, &[7; 400]).await;
    assert_plays(&dev, &replay, &[7; 400]).await;
    let state = dev.finish().await;

    let refused = start_refused(&state, Vec::new()).await;
    let expected = "blobs has none of the 1 replays of the database";
    assert!(refused.contains(expected), "{refused}");
    let refused = start_refused(&State::new(), s3.variables()).await;
    let expected = "is empty, but s3://berth-test/of/berth at http://127.";
    assert!(refused.contains(expected), "{refused}");
    assert!(refused.contains("contains replays"), "{refused}");

    let dev = start(state, &s3).await;
    assert_plays(&dev, &replay, &[7; 400]).await;
    dev.finish().await;
}

//! Request bodies, and the details of error responses.

use bytes::Bytes;
use futures::{StreamExt, stream};
use reqwest::Body;
use serde_json::Value;
use tokio::sync::mpsc;

/// Returns a body that starts with `head` and ends when the sender is dropped.
pub fn unfinished(head: impl Into<Bytes>) -> (mpsc::Sender<Bytes>, Body) {
    let (sender, receiver) = mpsc::channel::<Bytes>(1);
    let first = stream::iter([Ok::<_, std::io::Error>(head.into())]);
    let more = stream::unfold(receiver, |mut receiver| async move {
        let chunk = receiver.recv().await?;
        Some((Ok(chunk), receiver))
    });
    (sender, Body::wrap_stream(first.chain(more)))
}

/// Returns the sorted names of the fields in an error's details.
pub fn wrong_fields(error: &Value) -> Vec<&str> {
    let details = error["details"].as_array().expect("details");
    let mut fields: Vec<_> = details
        .iter()
        .map(|detail| detail["code"].as_str().expect("a field"))
        .collect();
    fields.sort_unstable();
    fields
}

//! What requests are made of, and what their answers tell.

use bytes::Bytes;
use futures::{StreamExt, stream};
use reqwest::Body;
use serde_json::Value;
use tokio::sync::mpsc;

/// A body that has begun and does not end before the sender is dropped.
pub fn unfinished(beginning: impl Into<Bytes>) -> (mpsc::Sender<Bytes>, Body) {
    let (sender, receiver) = mpsc::channel::<Bytes>(1);
    let first = stream::iter([Ok::<_, std::io::Error>(beginning.into())]);
    let more = stream::unfold(receiver, |mut receiver| async move {
        let chunk = receiver.recv().await?;
        Some((Ok(chunk), receiver))
    });
    (sender, Body::wrap_stream(first.chain(more)))
}

/// The fields that an error's details tell of, by name.
pub fn wrong_fields(answer: &Value) -> Vec<&str> {
    let details = answer["details"].as_array().expect("details");
    let mut fields: Vec<_> = details
        .iter()
        .map(|detail| detail["code"].as_str().expect("a field"))
        .collect();
    fields.sort_unstable();
    fields
}

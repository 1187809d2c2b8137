//! A reader of server-sent events.

use std::collections::VecDeque;

use reqwest::{RequestBuilder, Response, StatusCode};
use serde_json::Value;

use super::wait::in_time;

/// An open stream of events.
pub struct Events {
    response: Response,
    buffer: Vec<u8>,
    ready: VecDeque<(u64, Value)>,
}

impl Events {
    /// Opens the stream. No event after this call is missed.
    pub async fn open(request: RequestBuilder) -> Events {
        let response = in_time("a stream", request.send())
            .await
            .expect("an answer");
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        assert_eq!(
            response.headers()["cache-control"],
            "no-store, no-transform"
        );
        let mut events = Events {
            response,
            buffer: Vec::new(),
            ready: VecDeque::new(),
        };
        // The comment that opens every stream.
        assert!(events.fill().await, "it opens");
        events
    }

    /// Returns the next event with its id, or `None` at the end of the stream.
    pub async fn next(&mut self) -> Option<(u64, Value)> {
        // One bound for all: keep-alive comments must not extend the wait.
        let next = async {
            loop {
                if let Some(event) = self.ready.pop_front() {
                    return Some(event);
                }
                if !self.fill().await {
                    return None;
                }
            }
        };
        in_time("an event", next).await
    }

    /// Returns the next `count` events without their ids.
    pub async fn take(&mut self, count: usize) -> Vec<Value> {
        let mut events = Vec::new();
        while events.len() < count {
            match self.next().await {
                Some((_, event)) => events.push(event),
                None => panic!("the stream ended after {events:#?}"),
            }
        }
        events
    }

    /// Reads the next chunk; returns `false` at the end of the stream.
    async fn fill(&mut self) -> bool {
        let Ok(Some(chunk)) = in_time("a part of the stream", self.response.chunk()).await else {
            return false;
        };
        self.buffer.extend_from_slice(&chunk);
        let last = self.buffer.windows(2).rposition(|two| two == b"\n\n");
        let rest = self.buffer.split_off(last.map_or(0, |at| at + 2));
        let blocks = std::mem::replace(&mut self.buffer, rest);
        let blocks = std::str::from_utf8(&blocks).expect("UTF-8");
        self.ready.extend(blocks.split("\n\n").filter_map(event_of));
        true
    }
}

/// Parses a block; `None` for a comment.
fn event_of(block: &str) -> Option<(u64, Value)> {
    let field = |name: &str| {
        block
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    };
    let data = field("data")?;
    let id = field("id").expect("every event has an id");
    Some((
        id.parse().expect("a number"),
        serde_json::from_str(data).expect("JSON"),
    ))
}

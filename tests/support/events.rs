//! A reader of server-sent events.

use std::collections::VecDeque;

use reqwest::{RequestBuilder, Response, StatusCode};
use serde_json::Value;

use super::wait::in_time;

/// The blocks of a stream, each with its id, if it has one, and its JSON data.
pub struct EventBlocks {
    response: Response,
    buffer: Vec<u8>,
    ready: VecDeque<(Option<String>, Value)>,
}

/// An open stream of events with numeric ids.
pub struct Events {
    blocks: EventBlocks,
}

impl EventBlocks {
    pub async fn open(request: RequestBuilder) -> EventBlocks {
        let response = in_time("a stream", request.send()).await;
        EventBlocks::of(response.expect("an answer"))
    }

    pub fn of(response: Response) -> EventBlocks {
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        assert_eq!(
            response.headers()["cache-control"],
            "no-store, no-transform"
        );
        EventBlocks {
            response,
            buffer: Vec::new(),
            ready: VecDeque::new(),
        }
    }

    /// Returns the next block, or `None` at the end of the stream. Waits without a limit.
    pub async fn next(&mut self) -> Option<(Option<String>, Value)> {
        loop {
            if let Some(block) = self.ready.pop_front() {
                return Some(block);
            }
            if !self.fill().await {
                return None;
            }
        }
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
        self.ready.extend(blocks.split("\n\n").filter_map(block_of));
        true
    }
}

impl Events {
    /// Opens the stream. No event after this call is missed.
    pub async fn open(request: RequestBuilder) -> Events {
        let mut blocks = EventBlocks::open(request).await;
        // The comment that opens every stream.
        assert!(blocks.fill().await, "it opens");
        Events { blocks }
    }

    /// Returns the next event with its id, or `None` at the end of the stream.
    pub async fn next(&mut self) -> Option<(u64, Value)> {
        // One bound for all: keep-alive comments must not extend the wait.
        let (id, event) = in_time("an event", self.blocks.next()).await?;
        let id = id.expect("every event has an id");
        Some((id.parse().expect("a number"), event))
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
}

/// Parses a block; `None` for a comment.
fn block_of(block: &str) -> Option<(Option<String>, Value)> {
    let field = |name: &str| {
        block
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    };
    let data = serde_json::from_str(field("data")?).expect("JSON");
    Some((field("id").map(str::to_owned), data))
}

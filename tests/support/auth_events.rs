//! A reader of the events of a login.

use std::collections::VecDeque;

use reqwest::{RequestBuilder, Response, StatusCode};
use serde_json::Value;

use super::wait::in_time;

/// An event with its id, if it has one.
#[derive(Debug, Clone, PartialEq)]
pub struct AuthEvent {
    pub id: Option<String>,
    pub data: Value,
}

/// An open stream of the events of a login.
pub struct AuthEvents {
    response: Response,
    buffer: Vec<u8>,
    ready: VecDeque<AuthEvent>,
}

impl AuthEvents {
    pub async fn open(request: RequestBuilder) -> AuthEvents {
        let response = in_time("a stream", request.send()).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        AuthEvents {
            response,
            buffer: Vec::new(),
            ready: VecDeque::new(),
        }
    }

    /// Returns the next event that is no heartbeat, or `None` at the end.
    pub async fn next(&mut self) -> Option<AuthEvent> {
        let next = async {
            loop {
                match self.ready.pop_front() {
                    Some(event) if event.data["event"] == "sse_heartbeat" => {}
                    Some(event) => return Some(event),
                    None if !self.fill().await => return None,
                    None => {}
                }
            }
        };
        in_time("an event of a login", next).await
    }

    /// Returns the events up to the end.
    pub async fn rest(&mut self) -> Vec<AuthEvent> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event);
        }
        events
    }

    /// Waits for a state that requests something of the person, and returns it.
    pub async fn request(&mut self) -> Value {
        loop {
            let event = self.next().await.expect("a request to the person");
            if event.data["who"] == "user" {
                return event.data;
            }
        }
    }

    /// Reads the next chunk. Returns false at the end.
    async fn fill(&mut self) -> bool {
        let Ok(Some(chunk)) = self.response.chunk().await else {
            return false;
        };
        self.buffer.extend_from_slice(&chunk);
        let last = self.buffer.windows(2).rposition(|two| two == b"\n\n");
        let rest = self.buffer.split_off(last.map_or(0, |at| at + 2));
        let blocks = std::mem::replace(&mut self.buffer, rest);
        let blocks = std::str::from_utf8(&blocks).unwrap();
        self.ready.extend(blocks.split("\n\n").filter_map(event_of));
        true
    }
}

/// Parses a block. Returns `None` for a comment.
fn event_of(block: &str) -> Option<AuthEvent> {
    let field = |name: &str| {
        let mut lines = block.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    };
    Some(AuthEvent {
        data: serde_json::from_str(field("data")?).unwrap(),
        id: field("id").map(str::to_owned),
    })
}

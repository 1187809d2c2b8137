//! A reader of server-sent events.

use std::collections::VecDeque;

use reqwest::{RequestBuilder, Response, StatusCode};
use serde_json::Value;

use super::wait::in_time;

/// An open stream of events.
pub struct Events {
    response: Response,
    /// What came of a line.
    buffer: Vec<u8>,
    /// What came of an event.
    id: Option<u64>,
    data: Option<Value>,
    ready: VecDeque<(u64, Value)>,
}

impl Events {
    /// Opens the stream; what is sent from now on is not missed.
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
            id: None,
            data: None,
            ready: VecDeque::new(),
        };
        // The comment that opens every stream.
        assert!(events.fill().await, "it opens");
        events
    }

    /// The next event and its id; `None` at the end of the stream.
    pub async fn next(&mut self) -> Option<(u64, Value)> {
        // Comments keep the stream alive, and must not keep a test waiting.
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

    /// The next so many events, without their ids.
    pub async fn take(&mut self, count: usize) -> Vec<Value> {
        let mut taken = Vec::new();
        while taken.len() < count {
            match self.next().await {
                Some((_, event)) => taken.push(event),
                None => panic!("it ended after {taken:#?}"),
            }
        }
        taken
    }

    /// Takes what comes next of the stream; `false` at the end.
    async fn fill(&mut self) -> bool {
        let Ok(Some(chunk)) = in_time("a part of the stream", self.response.chunk()).await else {
            return false;
        };
        self.buffer.extend_from_slice(&chunk);
        let whole = self.buffer.iter().rposition(|byte| *byte == b'\n');
        let rest = self.buffer.split_off(whole.map_or(0, |end| end + 1));
        let lines = std::mem::replace(&mut self.buffer, rest);
        for line in std::str::from_utf8(&lines).expect("UTF-8").lines() {
            self.take_line(line);
        }
        true
    }

    /// An empty line ends an event, or a comment.
    fn take_line(&mut self, line: &str) {
        match line.split_once(": ") {
            Some(("id", id)) => self.id = Some(id.parse().expect("a number")),
            Some(("data", data)) => self.data = Some(serde_json::from_str(data).expect("JSON")),
            None if line.is_empty() => {
                let id = self.id.take();
                if let Some(data) = self.data.take() {
                    let id = id.expect("every event has an id");
                    self.ready.push_back((id, data));
                }
            }
            _ => {}
        }
    }
}

//! A reader of the events of a login.

use reqwest::{RequestBuilder, Response};
use serde_json::Value;

use super::{events::EventBlocks, wait::in_time};

/// An event with its id, if it has one.
#[derive(Debug, Clone, PartialEq)]
pub struct AuthEvent {
    pub id: Option<String>,
    pub data: Value,
}

/// An open stream of the events of a login.
pub struct AuthEvents {
    blocks: EventBlocks,
}

impl AuthEvents {
    pub async fn open(request: RequestBuilder) -> AuthEvents {
        AuthEvents {
            blocks: EventBlocks::open(request).await,
        }
    }

    pub fn of(response: Response) -> AuthEvents {
        AuthEvents {
            blocks: EventBlocks::of(response),
        }
    }

    /// Returns the next event that is no heartbeat, or `None` at the end.
    pub async fn next(&mut self) -> Option<AuthEvent> {
        let next = async {
            loop {
                let (id, data) = self.blocks.next().await?;
                if data["event"] != "sse_heartbeat" {
                    return Some(AuthEvent { id, data });
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
}

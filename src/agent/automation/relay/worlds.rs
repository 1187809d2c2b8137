//! The isolated worlds in which Playwright works beside a page's own scripts.
//!
//! Every client of Playwright makes a world of its own in every frame, and it stays there as long as the document: with a worker per
//! call, a page would collect one more with each call. So all workers share one, under a name of the agent's, which each worker is
//! told as the one it has asked for.

use std::{borrow::Cow, collections::HashMap};

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;

/// The shared world's name in the browser.
pub const WORLD: &str = "__berth_utility_world";
/// What Playwright's own names begin with.
const PLAYWRIGHT: &str = "__playwright_utility_world";
/// Contexts that may come before the worker has said its name for the world: one for each frame, at most so many.
const MAX_EARLY: usize = 256;
/// Frames of a session that are kept track of.
const MAX_FRAMES: usize = 4_096;

/// What is known of one session's frames.
#[derive(Debug, Default)]
pub struct Worlds {
    /// The worker's name for the world.
    name: Option<String>,
    /// Each frame's own context.
    main: HashMap<String, i64>,
    /// Each frame's context in the shared world, as the worker knows it.
    shared: HashMap<String, i64>,
    early: Vec<Bytes>,
}

#[derive(Deserialize)]
struct Created<'a> {
    #[serde(borrow)]
    params: CreatedParams<'a>,
}

#[derive(Deserialize)]
struct CreatedParams<'a> {
    #[serde(borrow)]
    context: Context<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Context<'a> {
    id: i64,
    #[serde(borrow)]
    name: Cow<'a, str>,
    aux_data: Option<AuxData>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AuxData {
    #[serde(default)]
    is_default: bool,
    frame_id: Option<String>,
}

impl Worlds {
    /// `Runtime.executionContextCreated` as the worker is to see it, if it is.
    pub fn created(&mut self, text: Bytes) -> Option<Bytes> {
        let Ok(event) = serde_json::from_slice::<Created>(&text) else {
            return Some(text);
        };
        let context = event.params.context;
        let Some(AuxData {
            is_default,
            frame_id: Some(frame),
        }) = context.aux_data
        else {
            return Some(text);
        };
        if self.main.len() >= MAX_FRAMES {
            return Some(text);
        }
        if is_default {
            self.main.insert(frame, context.id);
            return Some(text);
        }
        if context.name == WORLD {
            let Some(name) = &self.name else {
                if self.early.len() < MAX_EARLY {
                    self.early.push(text.clone());
                }
                return None;
            };
            // Two workers may have made one each at once. To Playwright a second one would mean that the first is gone.
            if self.shared.contains_key(&frame) {
                return None;
            }
            self.shared.insert(frame, context.id);
            return renamed(&text, "/params/context/name", name);
        }
        // Another client's.
        (!context.name.starts_with(PLAYWRIGHT)).then_some(text)
    }

    /// `Runtime.executionContextDestroyed`
    pub fn destroyed(&mut self, text: &[u8]) {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Destroyed {
            execution_context_id: i64,
        }
        if let Some(Destroyed {
            execution_context_id: gone,
        }) = super::message::params(text)
        {
            self.main.retain(|_, id| *id != gone);
            self.shared.retain(|_, id| *id != gone);
        }
    }

    /// `Runtime.executionContextsCleared`
    pub fn cleared(&mut self) {
        self.main.clear();
        self.shared.clear();
        self.early.clear();
    }

    /// A command of the worker that names a world: under the shared name, and the events that waited for the worker's name.
    /// `None` where it names none of Playwright's.
    pub fn command(&mut self, text: &[u8]) -> Option<(Bytes, Vec<Bytes>)> {
        let (name, _) = named(text)?;
        let shared = renamed(text, "/params/worldName", WORLD)?;
        self.name = Some(name);
        let early = std::mem::take(&mut self.early);
        let told = early
            .into_iter()
            .filter_map(|event| self.created(event))
            .collect();
        Some((shared, told))
    }

    /// The shared world's context in the frame of a `Page.createIsolatedWorld`.
    pub fn existing(&self, text: &[u8]) -> Option<i64> {
        let (_, frame) = named(text)?;
        self.shared.get(&frame?).copied()
    }

    /// The frames that have no shared world yet and need one, now that a script comes.
    pub fn missing(&self) -> Vec<String> {
        if self.name.is_none() {
            return Vec::new();
        }
        self.main
            .keys()
            .filter(|frame| !self.shared.contains_key(*frame))
            .cloned()
            .collect()
    }
}

/// The world of Playwright's that a command names, and the frame.
fn named(text: &[u8]) -> Option<(String, Option<String>)> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Named {
        world_name: Option<String>,
        frame_id: Option<String>,
    }
    let params: Named = super::message::params(text)?;
    let world = params.world_name?;
    world
        .starts_with(PLAYWRIGHT)
        .then_some((world, params.frame_id))
}

fn renamed(text: &[u8], place: &str, name: &str) -> Option<Bytes> {
    let mut message: Value = serde_json::from_slice(text).ok()?;
    *message.pointer_mut(place)? = Value::from(name);
    Some(message.to_string().into())
}

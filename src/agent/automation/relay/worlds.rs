//! The isolated worlds in which Playwright runs beside a page's own scripts.
//!
//! Every Playwright client creates a world in every frame, and it stays until the document goes.
//! With one worker per call, a page would collect one more world with each call. Therefore all
//! workers share one world under a name of the agent, and each worker sees it under the name that
//! it has asked for.

use std::{borrow::Cow, collections::HashMap};

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;

use super::message::params;

/// The name of the shared world in the browser.
pub(super) const SHARED_WORLD: &str = "__berth_utility_world";
/// The prefix of the names that Playwright gives its worlds.
const PLAYWRIGHT_PREFIX: &str = "__playwright_utility_world";
/// The most context events held until the worker names its world: one for each frame.
const MAX_HELD_EVENTS: usize = 256;
/// The most frames tracked in one session.
const MAX_FRAMES: usize = 4_096;

/// The execution contexts of one session's frames.
#[derive(Debug, Default)]
pub(super) struct Worlds {
    /// The worker's name for the shared world.
    worker_name: Option<String>,
    /// The default context of each frame.
    main: HashMap<String, i64>,
    /// The context of each frame in the shared world, as announced to the worker.
    shared: HashMap<String, i64>,
    held_events: Vec<Bytes>,
}

#[derive(Deserialize)]
struct ContextCreated<'a> {
    #[serde(borrow)]
    params: ContextCreatedParams<'a>,
}

#[derive(Deserialize)]
struct ContextCreatedParams<'a> {
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

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContextDestroyed {
    execution_context_id: i64,
}

/// The parameters of a command that names a world.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WorldParams {
    world_name: Option<String>,
    frame_id: Option<String>,
}

impl Worlds {
    /// Returns `Runtime.executionContextCreated` as the worker sees it, or `None` if it does not
    /// see it.
    pub(super) fn context_created(&mut self, text: Bytes) -> Option<Bytes> {
        let Ok(event) = serde_json::from_slice::<ContextCreated>(&text) else {
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
        if context.name == SHARED_WORLD {
            return self.shared_context_created(frame, context.id, &text);
        }
        // The worlds of other Playwright clients are hidden.
        (!context.name.starts_with(PLAYWRIGHT_PREFIX)).then_some(text)
    }

    fn shared_context_created(&mut self, frame: String, id: i64, text: &Bytes) -> Option<Bytes> {
        let Some(name) = &self.worker_name else {
            if self.held_events.len() < MAX_HELD_EVENTS {
                self.held_events.push(text.clone());
            }
            return None;
        };
        // Two workers may have created one each at the same time. To Playwright a second one would
        // mean that the first is gone.
        if self.shared.contains_key(&frame) {
            return None;
        }
        self.shared.insert(frame, id);
        replace_string(text, "/params/context/name", name)
    }

    /// Handles `Runtime.executionContextDestroyed`.
    pub(super) fn context_destroyed(&mut self, text: &[u8]) {
        if let Some(event) = params::<ContextDestroyed>(text) {
            let destroyed = event.execution_context_id;
            self.main.retain(|_, id| *id != destroyed);
            self.shared.retain(|_, id| *id != destroyed);
        }
    }

    /// Handles `Runtime.executionContextsCleared`.
    pub(super) fn contexts_cleared(&mut self) {
        self.main.clear();
        self.shared.clear();
        self.held_events.clear();
    }

    /// Rewrites a command of the worker to the shared world, and returns it with the events that
    /// were held until the worker named its world. Returns `None` if the command names no world of
    /// Playwright.
    pub(super) fn rewrite_command(&mut self, text: &[u8]) -> Option<(Bytes, Vec<Bytes>)> {
        let (name, _) = playwright_world(text)?;
        let shared = replace_string(text, "/params/worldName", SHARED_WORLD)?;
        self.worker_name = Some(name);
        let held = std::mem::take(&mut self.held_events);
        let events = held
            .into_iter()
            .filter_map(|event| self.context_created(event))
            .collect();
        Some((shared, events))
    }

    /// Returns the shared world's context in the frame of a `Page.createIsolatedWorld`.
    pub(super) fn shared_context(&self, text: &[u8]) -> Option<i64> {
        let (_, frame) = playwright_world(text)?;
        self.shared.get(&frame?).copied()
    }

    /// Returns the frames in which a script needs the shared world and does not have it.
    pub(super) fn frames_without_shared_world(&self) -> Vec<String> {
        if self.worker_name.is_none() {
            return Vec::new();
        }
        self.main
            .keys()
            .filter(|frame| !self.shared.contains_key(*frame))
            .cloned()
            .collect()
    }
}

/// Returns the name of the Playwright world in a command, and the frame.
fn playwright_world(text: &[u8]) -> Option<(String, Option<String>)> {
    let params: WorldParams = params(text)?;
    let world = params.world_name?;
    world
        .starts_with(PLAYWRIGHT_PREFIX)
        .then_some((world, params.frame_id))
}

fn replace_string(text: &[u8], pointer: &str, value: &str) -> Option<Bytes> {
    let mut message: Value = serde_json::from_slice(text).ok()?;
    *message.pointer_mut(pointer)? = Value::from(value);
    Some(message.to_string().into())
}

//! Records the input events of an X server (RECORD extension). Unlike a page, which sees the last
//! of several pointer moves only, it receives all of them.

use std::{
    sync::mpsc::{Receiver, Sender, channel},
    thread,
};

use x11rb::{
    connection::Connection,
    protocol::{
        record::{self, ConnectionExt as _},
        xproto::{
            BUTTON_PRESS_EVENT, BUTTON_RELEASE_EVENT, KEY_PRESS_EVENT, KEY_RELEASE_EVENT,
            KeyPressEvent, MOTION_NOTIFY_EVENT,
        },
    },
    rust_connection::RustConnection,
    x11_utils::TryParse,
};

use super::{agent::TestAgent, screen, wait::until};

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Input {
    Key {
        code: u8,
        down: bool,
    },
    /// The button's number on the server; 4–7 are the wheel.
    Button {
        number: u8,
        down: bool,
    },
    /// A move to these coordinates.
    Move(i64, i64),
}

/// An input event.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// The server's time in milliseconds.
    pub at: u32,
    pub input: Input,
}

/// A recording, which runs until the server ends.
pub struct XRecord {
    events: Receiver<Event>,
    /// Received events that were not taken yet.
    received: Vec<Event>,
}

impl XRecord {
    pub async fn on(agent: &TestAgent) -> Self {
        // The connection for events is used for nothing else.
        let (control, data) = (screen::connect(agent).await, screen::connect(agent).await);
        let context = context(&control);
        let (send, events) = channel();
        let (ready, is_ready) = channel();
        thread::spawn(move || {
            let _control = control;
            listen(&data, context, &ready, &send);
        });
        is_ready.recv().expect("the server records");
        Self {
            events,
            received: Vec::new(),
        }
    }

    /// Collects events until they match.
    pub async fn take_when(
        &mut self,
        description: &str,
        matches: impl Fn(&[Event]) -> bool,
    ) -> Vec<Event> {
        until(description, async || {
            self.received.extend(self.events.try_iter());
            matches(&self.received).then(|| std::mem::take(&mut self.received))
        })
        .await
    }
}

/// Returns the positions of the pointer.
pub fn positions(events: &[Event]) -> Vec<(i64, i64)> {
    moves(events).map(|(_, at)| at).collect()
}

/// Returns the time from the first move to the last, in milliseconds.
pub fn move_duration_ms(events: &[Event]) -> u32 {
    let mut times = moves(events).map(|(time, _)| time);
    let first = times.next().expect("a move");
    times.last().unwrap_or(first) - first
}

fn moves(events: &[Event]) -> impl Iterator<Item = (u32, (i64, i64))> {
    events.iter().filter_map(|event| match event.input {
        Input::Move(x, y) => Some((event.at, (x, y))),
        Input::Key { .. } | Input::Button { .. } => None,
    })
}

fn context(x: &RustConnection) -> record::Context {
    let context = x.generate_id().expect("an id");
    let range = record::Range {
        device_events: record::Range8 {
            first: KEY_PRESS_EVENT,
            last: MOTION_NOTIFY_EVENT,
        },
        ..record::Range::default()
    };
    let all = record::CS::ALL_CLIENTS.into();
    let created = x.record_create_context(context, 0, &[all], &[range]);
    created.expect("sent").check().expect("a context");
    context
}

fn listen(
    x: &RustConnection,
    context: record::Context,
    ready: &Sender<()>,
    events: &Sender<Event>,
) {
    const FROM_SERVER: u8 = 0;
    const START_OF_DATA: u8 = 4;
    let replies = x.record_enable_context(context).expect("sent");
    x.flush().expect("sent");
    for reply in replies.map_while(Result::ok) {
        match reply.category {
            START_OF_DATA => ready.send(()).expect("the recorder waits"),
            FROM_SERVER => {
                for event in reply.data.chunks_exact(32) {
                    // The recorder may have been dropped.
                    let _ = events.send(read(event));
                }
            }
            _ => {}
        }
    }
}

fn read(event: &[u8]) -> Event {
    // All of these events have the same layout.
    let (event, _) = KeyPressEvent::try_parse(event).expect("a whole event");
    let input = match event.response_type {
        kind @ (KEY_PRESS_EVENT | KEY_RELEASE_EVENT) => Input::Key {
            code: event.detail,
            down: kind == KEY_PRESS_EVENT,
        },
        kind @ (BUTTON_PRESS_EVENT | BUTTON_RELEASE_EVENT) => Input::Button {
            number: event.detail,
            down: kind == BUTTON_PRESS_EVENT,
        },
        MOTION_NOTIFY_EVENT => Input::Move(event.root_x.into(), event.root_y.into()),
        kind => panic!("unexpected event {kind}"),
    };
    Event {
        at: event.time,
        input,
    }
}

//! What an X server is given by mouse and keyboard, whoever gives it: all of it, where a page is told of the last of many moves alone.

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
pub enum Given {
    Key {
        code: u8,
        down: bool,
    },
    /// With the server's numbers of buttons; 4–7 are the wheel.
    Button {
        number: u8,
        down: bool,
    },
    /// To there.
    Move(i64, i64),
}

/// With the server's time, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    pub at: u32,
    pub given: Given,
}

/// Listens until the server has ended.
pub struct XRecord {
    events: Receiver<Event>,
    /// What has come and was not taken.
    come: Vec<Event>,
}

impl XRecord {
    pub async fn on(agent: &TestAgent) -> Self {
        // One connection is for the events alone, and lives as long as the thread that has it.
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
            come: Vec::new(),
        }
    }

    /// What has come since the last time, once it is `wanted`.
    pub async fn take_when(&mut self, what: &str, wanted: impl Fn(&[Event]) -> bool) -> Vec<Event> {
        until(what, async || {
            self.come.extend(self.events.try_iter());
            wanted(&self.come).then(|| std::mem::take(&mut self.come))
        })
        .await
    }
}

/// Where the pointer was sent.
pub fn places(events: &[Event]) -> Vec<(i64, i64)> {
    moves(events).map(|(_, at)| at).collect()
}

/// From the first place to the last, in milliseconds.
pub fn took(events: &[Event]) -> u32 {
    let mut times = moves(events).map(|(time, _)| time);
    let first = times.next().expect("a move");
    times.last().unwrap_or(first) - first
}

fn moves(events: &[Event]) -> impl Iterator<Item = (u32, (i64, i64))> {
    events.iter().filter_map(|event| match event.given {
        Given::Move(x, y) => Some((event.at, (x, y))),
        Given::Key { .. } | Given::Button { .. } => None,
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
            START_OF_DATA => ready.send(()).expect("somebody waits"),
            FROM_SERVER => {
                for event in reply.data.chunks_exact(32) {
                    // Nobody may listen any more.
                    let _ = events.send(read(event));
                }
            }
            _ => {}
        }
    }
}

fn read(event: &[u8]) -> Event {
    // All of these have the same fields.
    let (event, _) = KeyPressEvent::try_parse(event).expect("a whole event");
    let given = match event.response_type {
        kind @ (KEY_PRESS_EVENT | KEY_RELEASE_EVENT) => Given::Key {
            code: event.detail,
            down: kind == KEY_PRESS_EVENT,
        },
        kind @ (BUTTON_PRESS_EVENT | BUTTON_RELEASE_EVENT) => Given::Button {
            number: event.detail,
            down: kind == BUTTON_PRESS_EVENT,
        },
        MOTION_NOTIFY_EVENT => Given::Move(event.root_x.into(), event.root_y.into()),
        kind => panic!("nobody asked for {kind}"),
    };
    Event {
        at: event.time,
        given,
    }
}

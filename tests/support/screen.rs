//! An X client on an agent's screen, beside its browser.

use std::{
    collections::VecDeque,
    fs,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc::{Receiver, sync_channel},
    },
    thread,
};

use x11rb::{
    CURRENT_TIME, NONE,
    connection::Connection,
    protocol::{
        Event,
        xproto::{
            Atom, ChangeWindowAttributesAux, ConnectionExt as _, CreateWindowAux, EventMask,
            PropMode, Property, SELECTION_NOTIFY_EVENT, SelectionNotifyEvent,
            SelectionRequestEvent, Window, WindowClass,
        },
    },
    reexports::x11rb_protocol::parse_display::ConnectAddress,
    rust_connection::{DefaultStream, RustConnection},
    wrapper::ConnectionExt as _,
};

use super::agent::TestAgent;

/// Connects with the agent's X authority, as the browser does.
pub async fn connect(agent: &TestAgent) -> RustConnection {
    let health = agent.ok(agent.get("/health")).await;
    let name = health["display"]["name"].as_str().expect("a display");
    let socket = format!("/tmp/.X11-unix/X{}", name.trim_start_matches(':'));
    let authority = fs::read(agent.session_dir().join("run/Xauthority")).expect("a cookie");
    let cookie: [u8; 16] = *authority.last_chunk().expect("a whole cookie");
    let (stream, _) = DefaultStream::connect(&ConnectAddress::Socket(socket)).expect("an X server");
    let name = b"MIT-MAGIC-COOKIE-1".to_vec();
    RustConnection::connect_to_stream_with_auth_info(stream, 0, name, cookie.to_vec())
        .expect("the cookie is accepted")
}

/// The replies of a clipboard owner to requests for its content.
pub enum ClipboardReply {
    /// No reply.
    Never,
    /// Content of one target; requests for others are refused.
    Content(&'static str, Vec<u8>),
    /// Content in parts of this many bytes, after announcing this total size.
    Incremental(&'static str, Vec<u8>, usize, u32),
    /// The target is listed, and requests for it are refused.
    Refused(&'static str),
}

/// An X client that owns the clipboard until another client takes it.
pub struct ClipboardOwner {
    /// Receives a message when another client takes the clipboard.
    pub lost: Receiver<()>,
    /// The number of requests so far.
    pub request_count: Arc<AtomicUsize>,
}

impl ClipboardOwner {
    pub async fn start(agent: &TestAgent, reply: ClipboardReply) -> Self {
        let x = connect(agent).await;
        let (lost_sender, lost) = sync_channel(1);
        let owner = Owner::take(x, reply);
        let request_count = owner.request_count.clone();
        thread::spawn(move || {
            owner.serve();
            let _ = lost_sender.send(());
        });
        Self {
            lost,
            request_count,
        }
    }
}

struct Owner {
    x: RustConnection,
    reply: ClipboardReply,
    targets: Atom,
    kind: Atom,
    incr: Atom,
    request_count: Arc<AtomicUsize>,
}

impl Owner {
    fn take(x: RustConnection, reply: ClipboardReply) -> Self {
        let atom = |name: &str| {
            let cookie = x.intern_atom(false, name.as_bytes()).expect("sent");
            cookie.reply().expect("an atom").atom
        };
        let (clipboard, targets, incr) = (atom("CLIPBOARD"), atom("TARGETS"), atom("INCR"));
        let kind = match &reply {
            ClipboardReply::Never => NONE,
            ClipboardReply::Content(kind, _)
            | ClipboardReply::Incremental(kind, ..)
            | ClipboardReply::Refused(kind) => atom(kind),
        };
        let window = x.generate_id().expect("an id");
        let root = x.setup().roots[0].root;
        let (class, nothing) = (WindowClass::INPUT_ONLY, CreateWindowAux::new());
        x.create_window(0, window, root, 0, 0, 1, 1, 0, class, 0, &nothing)
            .expect("sent");
        x.set_selection_owner(window, clipboard, CURRENT_TIME)
            .expect("sent");
        // A reply to a later request means that this one is done.
        let owner = x.get_selection_owner(clipboard).expect("sent").reply();
        assert_eq!(owner.expect("an owner").owner, window);
        Self {
            x,
            reply,
            targets,
            kind,
            incr,
            request_count: Arc::default(),
        }
    }

    fn serve(&self) {
        let mut parts: Option<(Window, Atom, VecDeque<Vec<u8>>)> = None;
        while let Ok(event) = self.x.wait_for_event() {
            match event {
                Event::SelectionClear(_) => return,
                Event::SelectionRequest(request) => {
                    self.request_count.fetch_add(1, Ordering::Relaxed);
                    if let Some(rest) = self.reply_to(&request) {
                        parts = Some((request.requestor, request.property, rest));
                    }
                }
                Event::PropertyNotify(notice) if notice.state == Property::DELETE => {
                    let Some((window, property, rest)) = &mut parts else {
                        continue;
                    };
                    if (notice.window, notice.atom) == (*window, *property) {
                        let part = rest.pop_front().unwrap_or_default();
                        self.write_property(*window, *property, &part);
                    }
                }
                _ => {}
            }
        }
    }

    /// Replies to a request; returns the parts of an incremental transfer.
    fn reply_to(&self, request: &SelectionRequestEvent) -> Option<VecDeque<Vec<u8>>> {
        let (window, property) = (request.requestor, request.property);
        let is_offered = request.target == self.kind;
        let mut parts = None;
        let is_converted = match &self.reply {
            ClipboardReply::Never => return None,
            _ if request.target == self.targets => {
                let kinds = [self.targets, self.kind];
                self.x
                    .change_property32(PropMode::REPLACE, window, property, 4_u32, &kinds)
                    .expect("sent");
                true
            }
            ClipboardReply::Content(_, bytes) if is_offered => {
                self.write_property(window, property, bytes);
                true
            }
            ClipboardReply::Incremental(_, bytes, size, announced) if is_offered => {
                let events =
                    ChangeWindowAttributesAux::new().event_mask(EventMask::PROPERTY_CHANGE);
                self.x
                    .change_window_attributes(window, &events)
                    .expect("sent");
                self.x
                    .change_property32(
                        PropMode::REPLACE,
                        window,
                        property,
                        self.incr,
                        &[*announced],
                    )
                    .expect("sent");
                parts = Some(bytes.chunks(*size).map(Vec::from).collect());
                true
            }
            _ => false,
        };
        let answer = SelectionNotifyEvent {
            response_type: SELECTION_NOTIFY_EVENT,
            sequence: 0,
            time: request.time,
            requestor: window,
            selection: request.selection,
            target: request.target,
            property: if is_converted { property } else { NONE },
        };
        self.x
            .send_event(false, window, EventMask::NO_EVENT, answer)
            .expect("sent");
        self.x.flush().expect("sent");
        parts
    }

    fn write_property(&self, window: Window, property: Atom, bytes: &[u8]) {
        self.x
            .change_property8(PropMode::REPLACE, window, property, self.kind, bytes)
            .expect("sent");
        self.x.flush().expect("sent");
    }
}

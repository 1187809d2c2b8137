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

/// Connects as any program of the browser's user may.
pub async fn connect(agent: &TestAgent) -> RustConnection {
    let health = agent.ok(agent.get("/health")).await;
    let name = health["display"]["name"].as_str().expect("a display");
    let socket = format!("/tmp/.X11-unix/X{}", name.trim_start_matches(':'));
    let authority = fs::read(agent.state_dir().join("run/Xauthority")).expect("a cookie");
    let cookie: [u8; 16] = *authority.last_chunk().expect("a whole cookie");
    let (stream, _) = DefaultStream::connect(&ConnectAddress::Socket(socket)).expect("an X server");
    let name = b"MIT-MAGIC-COOKIE-1".to_vec();
    RustConnection::connect_to_stream_with_auth_info(stream, 0, name, cookie.to_vec())
        .expect("it lets us in")
}

/// How a program that has the clipboard answers.
pub enum Answers {
    /// Not at all.
    Never,
    /// With this of one kind, and nothing of the others.
    With(&'static str, Vec<u8>),
    /// The same in parts of so many bytes; it tells this size first.
    InParts(&'static str, Vec<u8>, usize, u32),
    /// It names this kind, and refuses when asked for it.
    Refusing(&'static str),
}

/// A program that has the clipboard until this is dropped or somebody else takes it.
pub struct ClipboardOwner {
    /// Told when somebody else has taken it.
    pub lost: Receiver<()>,
    /// How often it was asked.
    pub asked: Arc<AtomicUsize>,
}

impl ClipboardOwner {
    pub async fn start(agent: &TestAgent, answers: Answers) -> Self {
        let x = connect(agent).await;
        let (tell, lost) = sync_channel(1);
        let program = Program::take(x, answers);
        let asked = program.asked.clone();
        thread::spawn(move || {
            program.serve();
            let _ = tell.send(());
        });
        Self { lost, asked }
    }
}

struct Program {
    x: RustConnection,
    answers: Answers,
    targets: Atom,
    kind: Atom,
    incr: Atom,
    asked: Arc<AtomicUsize>,
}

impl Program {
    fn take(x: RustConnection, answers: Answers) -> Self {
        let atom = |name: &str| {
            let cookie = x.intern_atom(false, name.as_bytes()).expect("sent");
            cookie.reply().expect("an atom").atom
        };
        let (clipboard, targets, incr) = (atom("CLIPBOARD"), atom("TARGETS"), atom("INCR"));
        let kind = match &answers {
            Answers::Never => NONE,
            Answers::With(kind, _) | Answers::InParts(kind, ..) | Answers::Refusing(kind) => {
                atom(kind)
            }
        };
        let window = x.generate_id().expect("an id");
        let root = x.setup().roots[0].root;
        let (class, nothing) = (WindowClass::INPUT_ONLY, CreateWindowAux::new());
        x.create_window(0, window, root, 0, 0, 1, 1, 0, class, 0, &nothing)
            .expect("sent");
        x.set_selection_owner(window, clipboard, CURRENT_TIME)
            .expect("sent");
        // Done once the answer to a later question is there.
        let owner = x.get_selection_owner(clipboard).expect("sent").reply();
        assert_eq!(owner.expect("an owner").owner, window);
        Self {
            x,
            answers,
            targets,
            kind,
            incr,
            asked: Arc::default(),
        }
    }

    fn serve(&self) {
        let mut parts: Option<(Window, Atom, VecDeque<Vec<u8>>)> = None;
        while let Ok(event) = self.x.wait_for_event() {
            match event {
                Event::SelectionClear(_) => return,
                Event::SelectionRequest(request) => {
                    self.asked.fetch_add(1, Ordering::Relaxed);
                    if let Some(rest) = self.answer(&request) {
                        parts = Some((request.requestor, request.property, rest));
                    }
                }
                Event::PropertyNotify(notice) if notice.state == Property::DELETE => {
                    let Some((window, property, rest)) = &mut parts else {
                        continue;
                    };
                    if (notice.window, notice.atom) == (*window, *property) {
                        let part = rest.pop_front().unwrap_or_default();
                        self.give(*window, *property, &part);
                    }
                }
                _ => {}
            }
        }
    }

    /// Returns what is to be given in parts.
    fn answer(&self, request: &SelectionRequestEvent) -> Option<VecDeque<Vec<u8>>> {
        let (window, property) = (request.requestor, request.property);
        let wanted = request.target == self.kind;
        let mut rest = None;
        let given = match &self.answers {
            Answers::Never => return None,
            _ if request.target == self.targets => {
                let kinds = [self.targets, self.kind];
                self.x
                    .change_property32(PropMode::REPLACE, window, property, 4_u32, &kinds)
                    .expect("sent");
                true
            }
            Answers::With(_, bytes) if wanted => {
                self.give(window, property, bytes);
                true
            }
            Answers::InParts(_, bytes, size, told) if wanted => {
                let events =
                    ChangeWindowAttributesAux::new().event_mask(EventMask::PROPERTY_CHANGE);
                self.x
                    .change_window_attributes(window, &events)
                    .expect("sent");
                self.x
                    .change_property32(PropMode::REPLACE, window, property, self.incr, &[*told])
                    .expect("sent");
                rest = Some(bytes.chunks(*size).map(Vec::from).collect());
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
            property: if given { property } else { NONE },
        };
        self.x
            .send_event(false, window, EventMask::NO_EVENT, answer)
            .expect("sent");
        self.x.flush().expect("sent");
        rest
    }

    fn give(&self, window: Window, property: Atom, bytes: &[u8]) {
        self.x
            .change_property8(PropMode::REPLACE, window, property, self.kind, bytes)
            .expect("sent");
        self.x.flush().expect("sent");
    }
}

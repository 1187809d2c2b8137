//! The child process: owns the clipboard with the texts from standard input, and reports changes of
//! ownership on standard output.

use std::{
    convert::Infallible,
    io::{self, Read, Write},
    path::Path,
    sync::Arc,
    thread,
};

use arboard::Clipboard;
use x11rb::{
    NONE,
    connection::Connection,
    errors::{ConnectError, ConnectionError, ReplyError},
    protocol::{
        Event,
        res::{ClientIdMask, ClientIdSpec, ConnectionExt as _},
        xfixes::{ConnectionExt as _, SelectionEvent, SelectionEventMask},
        xproto::{Atom, ConnectionExt as _, Window},
    },
    rust_connection::RustConnection,
};

use super::{event, request};
use crate::api::clipboard::MAX_TEXT;

/// Why the child failed. No variant contains any of the text.
#[derive(Debug, thiserror::Error)]
pub enum OwnerMainError {
    #[error("standard input or output: {0}")]
    Pipe(#[from] io::Error),
    #[error("invalid request")]
    InvalidRequest,
    #[error("cannot connect to the display: {0}")]
    Connect(#[from] ConnectError),
    #[error("connection to the display lost: {0}")]
    Connection(#[from] ConnectionError),
    #[error("request rejected by the display: {0}")]
    Reply(#[from] ReplyError),
    #[error("the display has no screen")]
    NoScreen,
    #[error("cannot own the clipboard")]
    Clipboard,
}

impl From<arboard::Error> for OwnerMainError {
    fn from(_: arboard::Error) -> Self {
        // The description is dropped: it may contain text.
        Self::Clipboard
    }
}

/// Serves requests until standard input ends or the display is lost.
///
/// # Errors
/// If the display is not reachable or lost, or a request is invalid.
pub fn run_owner() -> Result<(), OwnerMainError> {
    let monitor = Arc::new(OwnershipMonitor::start()?);
    let reporting = monitor.clone();
    thread::spawn(move || {
        let Err(error) = reporting.report_changes();
        // The main thread may be blocked on standard input forever.
        eprintln!("{error}");
        std::process::exit(1);
    });
    let mut clipboard = None;
    let mut input = io::stdin().lock();
    while let Some((kind, text)) = next_request(&mut input)? {
        if kind == request::RESTORE && monitor.is_owned()? {
            report(event::LOST)?;
            continue;
        }
        // arboard drops its text when it is notified of another owner, however late: a pending
        // notification would drop this text. A new instance has none pending.
        if !monitor.is_owned_by_self()? {
            clipboard = None;
        }
        let clipboard = match &mut clipboard {
            Some(clipboard) => clipboard,
            none => none.insert(Clipboard::new()?),
        };
        clipboard.set_text(text)?;
    }
    Ok(())
}

fn next_request(input: &mut impl Read) -> Result<Option<(u8, String)>, OwnerMainError> {
    let mut kind = [0];
    if input.read(&mut kind)? == 0 {
        return Ok(None);
    }
    let mut length = [0; 4];
    input.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > MAX_TEXT || ![request::OFFER, request::RESTORE].contains(&kind[0]) {
        return Err(OwnerMainError::InvalidRequest);
    }
    let mut text = vec![0; length];
    input.read_exact(&mut text)?;
    let text = String::from_utf8(text).map_err(|_| OwnerMainError::InvalidRequest)?;
    Ok(Some((kind[0], text)))
}

fn report(event: u8) -> io::Result<()> {
    let mut output = io::stdout().lock();
    output.write_all(&[event])?;
    output.flush()
}

/// Observes the clipboard's ownership over a connection separate from arboard's.
struct OwnershipMonitor {
    x: RustConnection,
    clipboard: Atom,
}

impl OwnershipMonitor {
    fn start() -> Result<Self, OwnerMainError> {
        let (x, screen) = RustConnection::connect(None)?;
        let root = x
            .setup()
            .roots
            .get(screen)
            .ok_or(OwnerMainError::NoScreen)?
            .root;
        x.xfixes_query_version(5, 0)?.reply()?;
        x.res_query_version(1, 2)?.reply()?;
        let clipboard = x.intern_atom(false, b"CLIPBOARD")?.reply()?.atom;
        let changes = SelectionEventMask::SET_SELECTION_OWNER
            | SelectionEventMask::SELECTION_WINDOW_DESTROY
            | SelectionEventMask::SELECTION_CLIENT_CLOSE;
        x.xfixes_select_selection_input(root, clipboard, changes)?
            .check()?;
        Ok(Self { x, clipboard })
    }

    fn owner(&self) -> Result<Window, OwnerMainError> {
        let owner = self.x.get_selection_owner(self.clipboard)?;
        Ok(owner.reply()?.owner)
    }

    /// Returns whether a running process owns the clipboard. The server may still report an owner
    /// that has exited.
    fn is_owned(&self) -> Result<bool, OwnerMainError> {
        let owner = self.owner()?;
        if owner == NONE {
            return Ok(false);
        }
        match self.process_of(owner)? {
            Some(pid) => Ok(Path::new("/proc").join(pid.to_string()).exists()),
            // The owner may be gone by now.
            None => Ok(self.owner()? != NONE),
        }
    }

    fn is_owned_by_self(&self) -> Result<bool, OwnerMainError> {
        match self.owner()? {
            NONE => Ok(false),
            owner => self.is_own_window(owner),
        }
    }

    /// Reports every change until the display or the parent is lost.
    fn report_changes(&self) -> Result<Infallible, OwnerMainError> {
        loop {
            let Event::XfixesSelectionNotify(notice) = self.x.wait_for_event()? else {
                continue;
            };
            let acquired = notice.subtype == SelectionEvent::SET_SELECTION_OWNER
                && self.is_own_window(notice.owner)?;
            report(if acquired {
                event::ACQUIRED
            } else {
                event::LOST
            })?;
        }
    }

    /// Returns whether the window belongs to this process, and thus to arboard's connection.
    fn is_own_window(&self, window: Window) -> Result<bool, OwnerMainError> {
        Ok(self.process_of(window)? == Some(std::process::id()))
    }

    /// Returns the process that the window belongs to.
    fn process_of(&self, window: Window) -> Result<Option<u32>, OwnerMainError> {
        let spec = ClientIdSpec {
            client: window,
            mask: ClientIdMask::LOCAL_CLIENT_PID,
        };
        let reply = match self.x.res_query_client_ids(&[spec])?.reply() {
            Ok(reply) => reply,
            // The client is gone by now.
            Err(ReplyError::X11Error(_)) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        Ok(reply.ids.iter().find_map(|id| id.value.first().copied()))
    }
}

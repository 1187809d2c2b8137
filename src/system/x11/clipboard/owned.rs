//! In the child: owns the clipboard with what standard input says, and tells on standard output whose it is.

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

/// Why there is no clipboard any more. None of this holds any of its text.
#[derive(Debug, thiserror::Error)]
pub enum OwnError {
    #[error("standard input or output: {0}")]
    Pipe(#[from] io::Error),
    #[error("the message is not one of ours")]
    Message,
    #[error("cannot connect to the display: {0}")]
    Connect(#[from] ConnectError),
    #[error("the connection to the display broke: {0}")]
    Connection(#[from] ConnectionError),
    #[error("the display refuses: {0}")]
    Reply(#[from] ReplyError),
    #[error("the display has no screen")]
    NoScreen,
    #[error("the clipboard cannot be taken")]
    Clipboard,
}

impl From<arboard::Error> for OwnError {
    fn from(_: arboard::Error) -> Self {
        // Its description is of its making: whether it holds text is not for us to know.
        Self::Clipboard
    }
}

/// Serves until standard input ends, or the display does.
///
/// # Errors
/// Where the display cannot be reached or breaks, or what comes is no message.
pub fn own() -> Result<(), OwnError> {
    let watch = Arc::new(Watch::start()?);
    let told = watch.clone();
    thread::spawn(move || {
        let Err(error) = told.tell_owners();
        // Without a display there is nothing to serve, and standard input may be silent for ever.
        eprintln!("{error}");
        std::process::exit(1);
    });
    let mut clipboard = None;
    let mut input = io::stdin().lock();
    while let Some((what, text)) = next_request(&mut input)? {
        if what == request::RESTORE && watch.is_owned()? {
            tell(event::LOST)?;
            continue;
        }
        // It forgets what it has whenever it is told that somebody else has the clipboard, however late: after this it would forget this text.
        // Only one that is begun anew has nothing to be told.
        if !watch.is_ours_now()? {
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

fn next_request(input: &mut impl Read) -> Result<Option<(u8, String)>, OwnError> {
    let mut what = [0];
    if input.read(&mut what)? == 0 {
        return Ok(None);
    }
    let mut length = [0; 4];
    input.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > MAX_TEXT || ![request::TAKE, request::RESTORE].contains(&what[0]) {
        return Err(OwnError::Message);
    }
    let mut text = vec![0; length];
    input.read_exact(&mut text)?;
    let text = String::from_utf8(text).map_err(|_| OwnError::Message)?;
    Ok(Some((what[0], text)))
}

fn tell(event: u8) -> io::Result<()> {
    let mut output = io::stdout().lock();
    output.write_all(&[event])?;
    output.flush()
}

/// A connection of its own, beside arboard's, that is told whenever the clipboard gets another owner.
struct Watch {
    x: RustConnection,
    clipboard: Atom,
}

impl Watch {
    fn start() -> Result<Self, OwnError> {
        let (x, screen) = RustConnection::connect(None)?;
        let root = x.setup().roots.get(screen).ok_or(OwnError::NoScreen)?.root;
        x.xfixes_query_version(5, 0)?.reply()?;
        x.res_query_version(1, 2)?.reply()?;
        let clipboard = x.intern_atom(false, b"CLIPBOARD")?.reply()?.atom;
        let all = SelectionEventMask::SET_SELECTION_OWNER
            | SelectionEventMask::SELECTION_WINDOW_DESTROY
            | SelectionEventMask::SELECTION_CLIENT_CLOSE;
        x.xfixes_select_selection_input(root, clipboard, all)?
            .check()?;
        Ok(Self { x, clipboard })
    }

    fn owner(&self) -> Result<Window, OwnError> {
        let asked = self.x.get_selection_owner(self.clipboard)?;
        Ok(asked.reply()?.owner)
    }

    /// The server may not know yet that the process which had it has ended: that is not having it.
    fn is_owned(&self) -> Result<bool, OwnError> {
        let owner = self.owner()?;
        if owner == NONE {
            return Ok(false);
        }
        match self.process_of(owner)? {
            Some(pid) => Ok(Path::new("/proc").join(pid.to_string()).exists()),
            // It may have gone meanwhile.
            None => Ok(self.owner()? != NONE),
        }
    }

    fn is_ours_now(&self) -> Result<bool, OwnError> {
        match self.owner()? {
            NONE => Ok(false),
            owner => self.is_ours(owner),
        }
    }

    /// Tells of every owner, until the display or whoever listens is gone.
    fn tell_owners(&self) -> Result<Infallible, OwnError> {
        loop {
            let Event::XfixesSelectionNotify(notice) = self.x.wait_for_event()? else {
                continue;
            };
            let ours = notice.subtype == SelectionEvent::SET_SELECTION_OWNER
                && self.is_ours(notice.owner)?;
            tell(if ours { event::OURS } else { event::LOST })?;
        }
    }

    /// Whether the window is one of this process. Of arboard's connection nothing else is known.
    fn is_ours(&self, window: Window) -> Result<bool, OwnError> {
        Ok(self.process_of(window)? == Some(std::process::id()))
    }

    /// The process whose window it is.
    fn process_of(&self, window: Window) -> Result<Option<u32>, OwnError> {
        let spec = ClientIdSpec {
            client: window,
            mask: ClientIdMask::LOCAL_CLIENT_PID,
        };
        let answer = match self.x.res_query_client_ids(&[spec])?.reply() {
            Ok(answer) => answer,
            // Its client has gone meanwhile.
            Err(ReplyError::X11Error(_)) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        Ok(answer.ids.iter().find_map(|id| id.value.first().copied()))
    }
}

//! Reads the clipboard's text from its owner, with a timeout and a maximum length.

use std::{
    io,
    os::fd::AsFd,
    time::{Duration, Instant},
};

use x11rb::{
    COPY_DEPTH_FROM_PARENT, COPY_FROM_PARENT, CURRENT_TIME, NONE,
    connection::Connection,
    errors::{ConnectionError, ReplyError},
    protocol::{
        Event,
        xfixes::{ConnectionExt as _, SelectionEventMask},
        xproto::{
            Atom, AtomEnum, ConnectionExt as _, CreateWindowAux, EventMask, GetPropertyReply,
            Property, Window, WindowClass,
        },
    },
};

use crate::{
    api::clipboard::MAX_TEXT,
    system::{
        sync::poll::readable,
        x11::server::{self, DisplayAccess, X11Error, XConnection},
    },
};

/// The interval at which the ownership is checked besides its events.
const OWNER_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The maximum length of a property in units of four bytes: at least one byte more than allowed.
const MAX_UNITS: u32 = (MAX_TEXT / 4 + 1) as u32;

#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error(transparent)]
    Display(#[from] X11Error),
    #[error("the clipboard owner did not respond within {} s", .0.as_secs())]
    Timeout(Duration),
    #[error("the clipboard text is larger than {MAX_TEXT} bytes")]
    TooLarge,
    #[error("the clipboard owner refused to send the text it offers")]
    Refused,
}

impl From<ConnectionError> for ReadError {
    fn from(error: ConnectionError) -> Self {
        Self::Display(error.into())
    }
}

impl From<ReplyError> for ReadError {
    fn from(error: ReplyError) -> Self {
        Self::Display(error.into())
    }
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        Self::Display(error.into())
    }
}

/// The content of the clipboard.
#[derive(PartialEq, Eq)]
pub enum ClipboardContent {
    /// No client owns the clipboard.
    Unowned,
    /// The content is not text, an image for example.
    NotText,
    Text(String),
}

x11rb::atom_manager! {
    Atoms: AtomsCookie {
        CLIPBOARD,
        TARGETS,
        INCR,
        UTF8_STRING,
        PLAIN_UTF8: b"text/plain;charset=utf-8",
        PLAIN_UTF8_UPPER: b"text/plain;charset=UTF-8",
        PLAIN: b"text/plain",
        BERTH_CLIPBOARD,
    }
}

/// Reads the clipboard's text. Blocks for some milliseconds, or for `timeout` if its owner does not
/// respond.
pub fn read(access: &DisplayAccess, timeout: Duration) -> Result<ClipboardContent, ReadError> {
    let deadline = Instant::now() + timeout;
    let x = server::connect(access)?;
    let root = x.setup().roots.first().ok_or(X11Error::NoScreen)?.root;
    let atoms = Atoms::new(&x)?.reply()?;
    observe_owners(&x, root, atoms)?;
    loop {
        if Instant::now() >= deadline {
            return Err(ReadError::Timeout(timeout));
        }
        let owner = x.get_selection_owner(atoms.CLIPBOARD)?.reply()?.owner;
        if owner == NONE {
            return Ok(ClipboardContent::Unowned);
        }
        let transfer = Transfer {
            window: create_window(&x, root)?,
            x: &x,
            atoms,
            owner,
            deadline,
        };
        match transfer.run() {
            Ok(content) => return Ok(content),
            Err(TransferError::OwnerGone) => {}
            Err(TransferError::Deadline) => return Err(ReadError::Timeout(timeout)),
            Err(TransferError::Error(error)) => return Err(error),
        }
    }
}

/// Subscribes to changes of the ownership. The window of a new owner can have the id of one that
/// has exited, which did not answer.
fn observe_owners(x: &XConnection, root: Window, atoms: Atoms) -> Result<(), ReadError> {
    x.xfixes_query_version(5, 0)?.reply()?;
    let changes = SelectionEventMask::SET_SELECTION_OWNER
        | SelectionEventMask::SELECTION_WINDOW_DESTROY
        | SelectionEventMask::SELECTION_CLIENT_CLOSE;
    x.xfixes_select_selection_input(root, atoms.CLIPBOARD, changes)?
        .check()?;
    Ok(())
}

/// Creates an invisible window that receives the owner's data.
fn create_window(x: &XConnection, root: Window) -> Result<Window, ReadError> {
    let window = x.generate_id().map_err(X11Error::from)?;
    let events = CreateWindowAux::new().event_mask(EventMask::PROPERTY_CHANGE);
    let (class, depth) = (WindowClass::INPUT_ONLY, COPY_DEPTH_FROM_PARENT);
    x.create_window(
        depth,
        window,
        root,
        0,
        0,
        1,
        1,
        0,
        class,
        COPY_FROM_PARENT,
        &events,
    )?;
    Ok(window)
}

/// Why an owner's text could not be read.
enum TransferError {
    /// The client does not own the clipboard any more. The next owner is tried.
    OwnerGone,
    Deadline,
    Error(ReadError),
}

impl<E: Into<ReadError>> From<E> for TransferError {
    fn from(error: E) -> Self {
        Self::Error(error.into())
    }
}

/// Data sent by an owner.
struct Data {
    kind: Atom,
    bytes: Vec<u8>,
}

/// A transfer from one owner. Each has its own window, so that late data of another is ignored.
struct Transfer<'a> {
    x: &'a XConnection,
    atoms: Atoms,
    window: Window,
    owner: Window,
    deadline: Instant,
}

impl Transfer<'_> {
    fn run(&self) -> Result<ClipboardContent, TransferError> {
        let offered = self.offered_kinds()?;
        let mut has_text = false;
        for kind in self.text_kinds() {
            if offered.as_ref().is_some_and(|all| !all.contains(&kind)) {
                continue;
            }
            has_text = true;
            if let Some(text) = self.request(kind)?.and_then(|data| self.decode(data)) {
                if text.len() > MAX_TEXT {
                    return Err(ReadError::TooLarge.into());
                }
                return Ok(ClipboardContent::Text(text));
            }
        }
        match offered {
            Some(_) if has_text => Err(ReadError::Refused.into()),
            _ => Ok(ClipboardContent::NotText),
        }
    }

    /// Returns the text formats in order of preference.
    fn text_kinds(&self) -> [Atom; 5] {
        let atoms = &self.atoms;
        let latin = AtomEnum::STRING.into();
        [
            atoms.UTF8_STRING,
            atoms.PLAIN_UTF8,
            atoms.PLAIN_UTF8_UPPER,
            latin,
            atoms.PLAIN,
        ]
    }

    /// Returns the formats that the owner offers. `None` if it does not list them.
    fn offered_kinds(&self) -> Result<Option<Vec<Atom>>, TransferError> {
        let data = self.request(self.atoms.TARGETS)?;
        Ok(data.map(|data| {
            let atoms = data.bytes.chunks_exact(4);
            let atom = |bytes: &[u8]| bytes.try_into().map(Atom::from_ne_bytes);
            atoms.filter_map(|bytes| atom(bytes).ok()).collect()
        }))
    }

    fn decode(&self, data: Data) -> Option<String> {
        let latin: Atom = AtomEnum::STRING.into();
        if data.kind == latin {
            return Some(data.bytes.into_iter().map(char::from).collect());
        }
        let is_text = self.text_kinds().contains(&data.kind);
        is_text.then(|| match String::from_utf8(data.bytes) {
            Ok(text) => text,
            Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
        })
    }

    /// Requests the data in one format. `None` if the owner refuses.
    fn request(&self, kind: Atom) -> Result<Option<Data>, TransferError> {
        let property = self.atoms.BERTH_CLIPBOARD;
        self.x.delete_property(self.window, property)?;
        let clipboard = self.atoms.CLIPBOARD;
        self.x
            .convert_selection(self.window, clipboard, kind, property, CURRENT_TIME)?;
        self.x.flush()?;
        let accepted = self.wait_for(|event| match event {
            Event::SelectionNotify(notice) if notice.target == kind => {
                Some(notice.property != NONE)
            }
            _ => None,
        })?;
        if !accepted {
            return Ok(None);
        }
        let property = self.take_property()?;
        if property.type_ == self.atoms.INCR {
            // The value is a lower bound of the size. Deleting the property starts the transfer.
            let min_size = property.value32().and_then(|mut sizes| sizes.next());
            if min_size.is_some_and(|size| size as usize > MAX_TEXT) {
                return Err(ReadError::TooLarge.into());
            }
            return self.receive_parts().map(Some);
        }
        Ok(Some(Data {
            kind: property.type_,
            bytes: property.value,
        }))
    }

    /// Receives data sent in parts, the last of which is empty.
    fn receive_parts(&self) -> Result<Data, TransferError> {
        let property = self.atoms.BERTH_CLIPBOARD;
        let mut bytes = Vec::new();
        loop {
            self.wait_for(|event| match event {
                Event::PropertyNotify(notice)
                    if notice.atom == property && notice.state == Property::NEW_VALUE =>
                {
                    Some(())
                }
                _ => None,
            })?;
            let part = self.take_property()?;
            if part.value.is_empty() {
                let kind = part.type_;
                return Ok(Data { kind, bytes });
            }
            bytes.extend(part.value);
            if bytes.len() > MAX_TEXT {
                return Err(ReadError::TooLarge.into());
            }
        }
    }

    /// Reads and deletes the property, so that the owner can set it again.
    fn take_property(&self) -> Result<GetPropertyReply, TransferError> {
        let property = self.atoms.BERTH_CLIPBOARD;
        let any = AtomEnum::ANY;
        let reply = self
            .x
            .get_property(true, self.window, property, any, 0, MAX_UNITS)?
            .reply()?;
        if reply.bytes_after > 0 || reply.value.len() > MAX_TEXT {
            return Err(ReadError::TooLarge.into());
        }
        Ok(reply)
    }

    /// Waits for an event that `select` returns a value for.
    fn wait_for<T>(&self, select: impl Fn(&Event) -> Option<T>) -> Result<T, TransferError> {
        loop {
            let event = self.x.poll_for_event()?;
            if let Some(Event::XfixesSelectionNotify(_)) = event {
                return Err(TransferError::OwnerGone);
            }
            if let Some(found) = event.as_ref().and_then(&select) {
                return Ok(found);
            }
            let remaining = self.deadline.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                return Err(TransferError::Deadline);
            }
            if event.is_none() && self.is_silent(remaining.min(OWNER_POLL_INTERVAL))? {
                let owner = self.x.get_selection_owner(self.atoms.CLIPBOARD)?;
                if owner.reply()?.owner != self.owner {
                    return Err(TransferError::OwnerGone);
                }
            }
        }
    }

    fn is_silent(&self, wait: Duration) -> Result<bool, TransferError> {
        let connection = [self.x.stream().as_fd()];
        Ok(readable(connection, Some(Instant::now() + wait))? == [false])
    }
}

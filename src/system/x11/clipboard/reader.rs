//! Reading the clipboard: asking its owner for text, within a time and a length.

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

/// How often it is asked whether the owner is still the one that was asked: nobody tells when it goes.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// A property of this many four-byte units is one byte too long at the least.
const MAX_UNITS: u32 = (MAX_TEXT / 4 + 1) as u32;

#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error(transparent)]
    Display(#[from] X11Error),
    #[error("the program that has the clipboard did not answer within {} s", .0.as_secs())]
    NoAnswer(Duration),
    #[error("the clipboard holds more than {MAX_TEXT} bytes of text")]
    TooLarge,
    #[error("the program that has the clipboard does not give the text it offers")]
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

/// What is on the clipboard.
#[derive(PartialEq, Eq)]
pub enum Selection {
    /// Nobody has it.
    Nobodys,
    /// Something that is no text, an image for example.
    NoText,
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

/// Reads the clipboard's text. Blocks for some milliseconds, and for `limit` where its owner does not answer.
pub fn read(screen: &DisplayAccess, limit: Duration) -> Result<Selection, ReadError> {
    let deadline = Instant::now() + limit;
    let x = server::connect(screen)?;
    let root = x.setup().roots.first().ok_or(X11Error::NoScreen)?.root;
    let atoms = Atoms::new(&x)?.reply()?;
    loop {
        let owner = x.get_selection_owner(atoms.CLIPBOARD)?.reply()?.owner;
        if owner == NONE {
            return Ok(Selection::Nobodys);
        }
        let asking = Asking {
            window: make_window(&x, root)?,
            x: &x,
            atoms,
            owner,
            deadline,
        };
        match asking.text() {
            Ok(selection) => return Ok(selection),
            Err(Miss::OwnerGone) => {}
            Err(Miss::Deadline) => return Err(ReadError::NoAnswer(limit)),
            Err(Miss::Error(error)) => return Err(error),
        }
    }
}

/// Where an owner puts what it is asked for. It is never shown.
fn make_window(x: &XConnection, root: Window) -> Result<Window, ReadError> {
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

/// Why an owner's text was not had.
enum Miss {
    /// The one that was asked does not own it any more: the next is asked.
    OwnerGone,
    Deadline,
    Error(ReadError),
}

impl<E: Into<ReadError>> From<E> for Miss {
    fn from(error: E) -> Self {
        Self::Error(error.into())
    }
}

/// What an owner has answered.
struct Answer {
    kind: Atom,
    bytes: Vec<u8>,
}

/// One owner that is asked, on a window of its own: what it says late goes nowhere.
struct Asking<'a> {
    x: &'a XConnection,
    atoms: Atoms,
    window: Window,
    owner: Window,
    deadline: Instant,
}

impl Asking<'_> {
    fn text(&self) -> Result<Selection, Miss> {
        let offered = self.offered_kinds()?;
        let mut asked = false;
        for kind in self.text_kinds() {
            if offered.as_ref().is_some_and(|all| !all.contains(&kind)) {
                continue;
            }
            asked = true;
            if let Some(text) = self.ask(kind)?.and_then(|answer| self.decode(answer)) {
                if text.len() > MAX_TEXT {
                    return Err(ReadError::TooLarge.into());
                }
                return Ok(Selection::Text(text));
            }
        }
        match offered {
            Some(_) if asked => Err(ReadError::Refused.into()),
            _ => Ok(Selection::NoText),
        }
    }

    /// In the order in which they are asked for.
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

    /// What it can give; `None` where it does not say.
    fn offered_kinds(&self) -> Result<Option<Vec<Atom>>, Miss> {
        let answer = self.ask(self.atoms.TARGETS)?;
        Ok(answer.map(|answer| {
            let atoms = answer.bytes.chunks_exact(4);
            let atom = |bytes: &[u8]| bytes.try_into().map(Atom::from_ne_bytes);
            atoms.filter_map(|bytes| atom(bytes).ok()).collect()
        }))
    }

    fn decode(&self, answer: Answer) -> Option<String> {
        let latin: Atom = AtomEnum::STRING.into();
        if answer.kind == latin {
            return Some(answer.bytes.into_iter().map(char::from).collect());
        }
        let is_text = self.text_kinds().contains(&answer.kind);
        is_text.then(|| match String::from_utf8(answer.bytes) {
            Ok(text) => text,
            Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
        })
    }

    /// Asks for one kind; `None` where it is refused.
    fn ask(&self, kind: Atom) -> Result<Option<Answer>, Miss> {
        let place = self.atoms.BERTH_CLIPBOARD;
        self.x.delete_property(self.window, place)?;
        let clipboard = self.atoms.CLIPBOARD;
        self.x
            .convert_selection(self.window, clipboard, kind, place, CURRENT_TIME)?;
        self.x.flush()?;
        let given = self.until(|event| match event {
            Event::SelectionNotify(notice) if notice.target == kind => {
                Some(notice.property != NONE)
            }
            _ => None,
        })?;
        if !given {
            return Ok(None);
        }
        let property = self.take()?;
        if property.type_ == self.atoms.INCR {
            // The least there will be; taking it was the sign to begin.
            let least = property.value32().and_then(|mut sizes| sizes.next());
            if least.is_some_and(|least| least as usize > MAX_TEXT) {
                return Err(ReadError::TooLarge.into());
            }
            return self.take_parts().map(Some);
        }
        Ok(Some(Answer {
            kind: property.type_,
            bytes: property.value,
        }))
    }

    /// What comes in parts, the last of which is empty.
    fn take_parts(&self) -> Result<Answer, Miss> {
        let place = self.atoms.BERTH_CLIPBOARD;
        let mut bytes = Vec::new();
        loop {
            self.until(|event| match event {
                Event::PropertyNotify(notice)
                    if notice.atom == place && notice.state == Property::NEW_VALUE =>
                {
                    Some(())
                }
                _ => None,
            })?;
            let part = self.take()?;
            if part.value.is_empty() {
                let kind = part.type_;
                return Ok(Answer { kind, bytes });
            }
            bytes.extend(part.value);
            if bytes.len() > MAX_TEXT {
                return Err(ReadError::TooLarge.into());
            }
        }
    }

    /// The property, which is removed: its owner may make it anew.
    fn take(&self) -> Result<GetPropertyReply, Miss> {
        let place = self.atoms.BERTH_CLIPBOARD;
        let any = AtomEnum::ANY;
        let property = self
            .x
            .get_property(true, self.window, place, any, 0, MAX_UNITS)?
            .reply()?;
        if property.bytes_after > 0 || property.value.len() > MAX_TEXT {
            return Err(ReadError::TooLarge.into());
        }
        Ok(property)
    }

    /// Waits for the event that `wanted` makes something of.
    fn until<T>(&self, wanted: impl Fn(&Event) -> Option<T>) -> Result<T, Miss> {
        loop {
            let event = self.x.poll_for_event()?;
            if let Some(found) = event.as_ref().and_then(&wanted) {
                return Ok(found);
            }
            let left = self.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Miss::Deadline);
            }
            if event.is_none() && self.is_silent(left.min(LOOK_AGAIN))? {
                let owner = self.x.get_selection_owner(self.atoms.CLIPBOARD)?;
                if owner.reply()?.owner != self.owner {
                    return Err(Miss::OwnerGone);
                }
            }
        }
    }

    fn is_silent(&self, wait: Duration) -> Result<bool, Miss> {
        let connection = [self.x.stream().as_fd()];
        Ok(readable(connection, Some(Instant::now() + wait))? == [false])
    }
}

//! Waiting until something is put on the clipboard.

use std::{
    os::fd::AsFd,
    time::{Duration, Instant},
};

use x11rb::{
    connection::Connection,
    protocol::{
        Event,
        xfixes::{ConnectionExt as _, SelectionEventMask},
        xproto::ConnectionExt as _,
    },
};

use crate::system::{
    sync::poll::readable,
    sync::waker::Waker,
    x11::server::{self, DisplayAccess, X11Error, XConnection},
};

/// A connection that is told of what is put there, from its opening on; also of the same once more.
pub struct Changes {
    x: XConnection,
    waker: Waker,
}

impl Changes {
    /// Blocks for some milliseconds.
    pub fn open(screen: &DisplayAccess) -> Result<Self, X11Error> {
        let x = server::connect(screen)?;
        let root = x.setup().roots.first().ok_or(X11Error::NoScreen)?.root;
        x.xfixes_query_version(5, 0)?.reply()?;
        let clipboard = x.intern_atom(false, b"CLIPBOARD")?.reply()?.atom;
        let taken = SelectionEventMask::SET_SELECTION_OWNER;
        x.xfixes_select_selection_input(root, clipboard, taken)?
            .check()?;
        let waker = Waker::new()?;
        Ok(Self { x, waker })
    }

    /// Ends the wait from another thread.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Blocks until something is put there, for `limit` at most, or until it is called; says whether something was.
    pub fn wait(&self, limit: Duration) -> Result<bool, X11Error> {
        let until = Instant::now() + limit;
        loop {
            while let Some(event) = self.x.poll_for_event()? {
                if let Event::XfixesSelectionNotify(_) = event {
                    return Ok(true);
                }
            }
            let fds = [self.x.stream().as_fd(), self.waker.as_fd()];
            if !matches!(readable(fds, Some(until))?, [true, false]) {
                return Ok(false);
            }
        }
    }
}

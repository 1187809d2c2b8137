//! Waits until something is put on the clipboard.

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
    sync::{poll::readable, waker::Waker},
    x11::server::{self, DisplayAccess, X11Error, XConnection},
};

/// A connection that receives an event whenever a client takes ownership of the clipboard, also for
/// the same text again.
pub struct SelectionWatch {
    x: XConnection,
    waker: Waker,
}

impl SelectionWatch {
    /// Subscribes to the events. Blocks for some milliseconds.
    pub fn open(access: &DisplayAccess) -> Result<Self, X11Error> {
        let x = server::connect(access)?;
        let root = x.setup().roots.first().ok_or(X11Error::NoScreen)?.root;
        x.xfixes_query_version(5, 0)?.reply()?;
        let clipboard = x.intern_atom(false, b"CLIPBOARD")?.reply()?.atom;
        let new_owner = SelectionEventMask::SET_SELECTION_OWNER;
        x.xfixes_select_selection_input(root, clipboard, new_owner)?
            .check()?;
        let waker = Waker::new()?;
        Ok(Self { x, waker })
    }

    /// Returns the waker that interrupts [`Self::wait`] from another thread.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Blocks until something is put on the clipboard, for at most `timeout`. Returns whether that
    /// happened.
    pub fn wait(&self, timeout: Duration) -> Result<bool, X11Error> {
        let deadline = Instant::now() + timeout;
        loop {
            while let Some(event) = self.x.poll_for_event()? {
                if let Event::XfixesSelectionNotify(_) = event {
                    return Ok(true);
                }
            }
            let fds = [self.x.stream().as_fd(), self.waker.as_fd()];
            if !matches!(readable(fds, Some(deadline))?, [true, false]) {
                return Ok(false);
            }
        }
    }
}

//! The keyboard of an X server: key events, and bindings for keys that the keyboard lacks.
//!
//! A binding may only change after the focused program has processed the key events before it: a
//! program looks up a keycode's meaning when it processes the event. Programs are asked with
//! `_NET_WM_PING`, which they answer in order.

use std::{
    os::fd::AsFd,
    time::{Duration, Instant},
};

use enigo::{Direction, Keyboard};
use x11rb::protocol::xproto::{
    Atom, AtomEnum, AutoRepeatMode, ChangeKeyboardControlAux, ClientMessageEvent,
    ConnectionExt as _, EventMask, Window,
};

use super::{
    PlayError,
    keymap::Keymap,
    x_input::{XInput, connect_enigo},
};
use crate::{
    api::keys::Key,
    system::{
        sync::poll::readable,
        x11::server::{DisplayAccess, X11Error},
    },
};

/// The time the focused program may take to process the keys it was sent.
const KEYS_PROCESSED_TIMEOUT: Duration = Duration::from_secs(10);
/// The delay for a program that does not answer pings.
const NO_PING_DELAY: Duration = Duration::from_millis(40);
/// The time after its last response for which a server counts as alive.
const LIVENESS_TIMEOUT: Duration = Duration::from_millis(10);
/// Mapping events after which enigo is reconnected: it buffers them forever.
const MAX_UNREAD_MAPPING_EVENTS: usize = 1000;

impl XInput {
    /// Presses or releases a key through enigo, after all other events. Checks the server's
    /// liveness first, as enigo would wait for it forever.
    pub(super) fn keycode(&mut self, keycode: u8, down: bool) -> Result<(), PlayError> {
        self.sync_events()?;
        if self
            .last_response
            .is_none_or(|time| time.elapsed() > LIVENESS_TIMEOUT)
        {
            self.sync()?;
        }
        let direction = if down {
            Direction::Press
        } else {
            Direction::Release
        };
        // The keycode is always valid, so an error means that the connection failed.
        self.enigo
            .raw(keycode.into(), direction)
            .map_err(|error| PlayError::ScreenLost(error.to_string()))
    }

    /// Turns the server's auto-repeat of held keys on or off.
    pub(super) fn set_auto_repeat(&mut self, on: bool) -> Result<(), X11Error> {
        let mode = if on {
            AutoRepeatMode::ON
        } else {
            AutoRepeatMode::OFF
        };
        let control = ChangeKeyboardControlAux::new().auto_repeat_mode(mode);
        Ok(self.x.change_keyboard_control(&control)?.check()?)
    }

    /// Returns the current keymap.
    pub(super) fn keymap(&mut self) -> Result<&mut Keymap, X11Error> {
        if self.keymap_stale {
            self.keymap_stale = false;
            self.keymap.read(&self.x)?;
        }
        Ok(&mut self.keymap)
    }

    /// Binds the keys that the keyboard lacks: all, or the first ones that it has room for.
    pub(super) fn bind_missing(
        &mut self,
        keys: impl Iterator<Item = Key> + Clone,
        is_held: impl Fn(u8) -> bool,
    ) -> Result<(), PlayError> {
        let missing = self.keymap()?.missing(keys.clone());
        if missing.len() <= self.keymap.room() {
            return self.bind(&missing);
        }
        // Earlier key events must not be interpreted with the new bindings.
        self.wait_until_keys_processed()?;
        self.keymap.restore(&self.x, is_held)?;
        let mut missing = self.keymap.missing(keys);
        missing.truncate(self.keymap.room());
        if missing.is_empty() {
            return Err(PlayError::NoSpareKeycode);
        }
        self.bind(&missing)
    }

    /// Binds keys and waits until the focused program has processed the change. It may receive the
    /// change over another connection than the key events that follow.
    fn bind(&mut self, keys: &[Key]) -> Result<(), PlayError> {
        if keys.is_empty() {
            return Ok(());
        }
        self.keymap.bind(&self.x, keys)?;
        self.wait_until_keys_processed()
    }

    /// Removes all bindings of keys that are not held.
    pub(super) fn restore_keymap(&mut self, is_held: impl Fn(u8) -> bool) -> Result<(), PlayError> {
        if self.keymap.bound().is_empty() {
            return Ok(());
        }
        let processed = self.wait_until_keys_processed();
        self.keymap.restore(&self.x, is_held)?;
        processed
    }

    /// Reconnects enigo once it has buffered many events. It needs a spare keycode to connect.
    pub(super) fn renew_enigo(&mut self, access: &DisplayAccess) -> Result<(), PlayError> {
        if self.unread_mapping_events > MAX_UNREAD_MAPPING_EVENTS && self.keymap.room() > 0 {
            self.enigo = connect_enigo(access)?;
            self.unread_mapping_events = 0;
        }
        Ok(())
    }

    /// Waits until the focused program has processed all key events it was sent.
    #[expect(clippy::disallowed_methods, reason = "runs on the input thread")]
    fn wait_until_keys_processed(&mut self) -> Result<(), PlayError> {
        let focus = self.x.get_input_focus().map_err(X11Error::from)?;
        let window = focus.reply().map_err(X11Error::from)?.focus;
        if !self.answers_pings(window)? {
            std::thread::sleep(NO_PING_DELAY);
            return Ok(());
        }
        self.sent_ping = self.sent_ping.wrapping_add(1).max(1);
        let protocols = self.atoms.WM_PROTOCOLS;
        let data = [self.atoms._NET_WM_PING, self.sent_ping, window, 0, 0];
        let ping = ClientMessageEvent::new(32, window, protocols, data);
        let sent = self.x.send_event(false, window, EventMask::NO_EVENT, ping);
        if sent.map_err(X11Error::from)?.check().is_err() {
            // The window is gone. If the server is too, the next step fails.
            return Ok(());
        }
        let was_focusable = self.focus.contains(window);
        let deadline = Instant::now() + KEYS_PROCESSED_TIMEOUT;
        while self.answered_ping != self.sent_ping {
            self.drain_events()?;
            if was_focusable && !self.focus.contains(window) {
                return Ok(());
            }
            if deadline <= Instant::now() {
                return Err(PlayError::Unresponsive(KEYS_PROCESSED_TIMEOUT));
            }
            if self.answered_ping != self.sent_ping {
                readable([self.as_fd()], Some(deadline)).map_err(X11Error::from)?;
            }
        }
        Ok(())
    }

    fn answers_pings(&self, window: Window) -> Result<bool, X11Error> {
        let (property, kind): (Atom, Atom) = (self.atoms.WM_PROTOCOLS, AtomEnum::ATOM.into());
        let reply = self.x.get_property(false, window, property, kind, 0, 64)?;
        // The focus may be no window, or one that is gone by now.
        let Ok(reply) = reply.reply() else {
            return Ok(false);
        };
        let mut protocols = reply.value32().into_iter().flatten();
        Ok(protocols.any(|protocol| protocol == self.atoms._NET_WM_PING))
    }
}

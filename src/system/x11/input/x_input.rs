//! The connections to one X server that input is sent over, and the state known of it.
//!
//! Pointer events and typed text are sent with XTEST over our own connection, which has timeouts.
//! Other key events go through enigo, which has a connection without timeouts; see
//! [`super::x_keyboard`].

use std::{
    mem,
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

use enigo::{Enigo, Settings};
use x11rb::{
    atom_manager,
    connection::Connection,
    protocol::{
        Event,
        randr::{self, ConnectionExt as _},
        xfixes::ConnectionExt as _,
        xproto::{
            BUTTON_PRESS_EVENT, BUTTON_RELEASE_EVENT, ChangeWindowAttributesAux,
            ConnectionExt as _, EventMask, KEY_PRESS_EVENT, KEY_RELEASE_EVENT, KeyButMask,
            MOTION_NOTIFY_EVENT, Mapping, Window,
        },
        xtest::ConnectionExt as _,
    },
    wrapper::ConnectionExt as _,
};

use super::{
    PlayError, Point, ScreenState, Size,
    focus::FocusManager,
    held::HeldInput,
    keymap::{BoundKeys, Keymap},
    step::Notch,
};
use crate::{
    api::computer::MouseButton,
    system::x11::server::{self, DisplayAccess, X11Error, XConnection},
};

/// The minimum interval between two button presses. Chromium merges presses of the same
/// millisecond.
const MIN_PRESS_INTERVAL: Duration = Duration::from_millis(2);
/// Events that may be sent before one waits for the server to process them. Bounds the delay of
/// everything that comes after them.
const MAX_UNCONFIRMED_EVENTS: u64 = 256;

atom_manager! {
    pub(super) Atoms: AtomsCookie {
        WM_PROTOCOLS,
        _NET_WM_PING,
        _NET_WM_STATE,
        _NET_WM_STATE_MODAL,
        _NET_WM_WINDOW_TYPE,
        _NET_WM_WINDOW_TYPE_TOOLTIP,
        _NET_WM_WINDOW_TYPE_NOTIFICATION,
        _NET_WM_WINDOW_TYPE_DND,
        _NET_WM_WINDOW_TYPE_POPUP_MENU,
        _NET_WM_WINDOW_TYPE_DROPDOWN_MENU,
        _NET_WM_WINDOW_TYPE_COMBO,
    }
}

/// Input to one X server.
pub(super) struct XInput {
    pub(super) x: XConnection,
    pub(super) enigo: Enigo,
    root: Window,
    size: Size,
    pub(super) atoms: Atoms,
    pub(super) focus: FocusManager,
    pub(super) keymap: Keymap,
    /// Another client has changed the keyboard mapping since it was read.
    pub(super) keymap_stale: bool,
    /// Mapping events since enigo was connected.
    pub(super) unread_mapping_events: usize,
    /// The number of events sent over our own connection.
    sent_events: u64,
    /// The number of these that the server has processed for certain.
    confirmed_events: u64,
    /// Whether there is a button press among the unconfirmed events.
    press_unconfirmed: bool,
    /// When the last button press was confirmed.
    pressed_at: Option<Instant>,
    /// When the server last responded. `None` if its liveness must be checked.
    pub(super) last_response: Option<Instant>,
    /// The number of the last ping sent to a window, and of the last one answered.
    pub(super) sent_ping: u32,
    pub(super) answered_ping: u32,
    cursor_hidden: bool,
}

impl XInput {
    /// Connects to the server. Blocks until it responds.
    ///
    /// `bound` is set if an earlier connection was closed with these keys bound. Everything it left
    /// behind is then undone: held input is released and the keyboard restored.
    pub(super) fn open(
        access: &DisplayAccess,
        bound: Option<&BoundKeys>,
    ) -> Result<Self, PlayError> {
        let x = server::connect(access)?;
        let pressed = pressed_keycodes(&x)?;
        // Before enigo, which fails if the keyboard has no spare keycode.
        let keymap = Keymap::recover(&x, bound.cloned().unwrap_or_default(), |keycode| {
            pressed.contains(&keycode)
        })?;
        let enigo = connect_enigo(access)?;
        let mut screen = Self::subscribe(x, enigo, keymap)?;
        if bound.is_some() {
            screen.release_everything()?;
            screen.set_auto_repeat(true)?;
            screen.keymap.restore(&screen.x, |_| false)?;
        }
        Ok(screen)
    }

    fn subscribe(x: XConnection, enigo: Enigo, keymap: Keymap) -> Result<Self, X11Error> {
        let root = x.setup().roots.first().ok_or(X11Error::NoScreen)?.root;
        x.xfixes_query_version(4, 0)?.reply()?;
        x.randr_select_input(root, randr::NotifyMask::SCREEN_CHANGE)?
            .check()?;
        let events = ChangeWindowAttributesAux::new().event_mask(EventMask::SUBSTRUCTURE_NOTIFY);
        x.change_window_attributes(root, &events)?.check()?;
        let atoms = Atoms::new(&x)?.reply()?;
        // After the subscription, so that no change is missed.
        let geometry = x.get_geometry(root)?.reply()?;
        let focus = FocusManager::new(&x, root, &atoms)?;
        Ok(Self {
            x,
            enigo,
            root,
            size: Size {
                width: geometry.width.into(),
                height: geometry.height.into(),
            },
            atoms,
            focus,
            keymap,
            keymap_stale: false,
            unread_mapping_events: 0,
            sent_events: 0,
            confirmed_events: 0,
            press_unconfirmed: false,
            pressed_at: None,
            last_response: None,
            sent_ping: 0,
            answered_ping: 0,
            cursor_hidden: false,
        })
    }

    /// Returns the keys that are bound to spare keycodes at the moment.
    pub(super) fn bound_keys(&self) -> &BoundKeys {
        self.keymap.bound()
    }

    /// Releases every key and button that the server reports as pressed, by whichever client.
    fn release_everything(&mut self) -> Result<(), PlayError> {
        for keycode in pressed_keycodes(&self.x)? {
            self.keycode(keycode, false)?;
        }
        let pointer = self.x.query_pointer(self.root).map_err(X11Error::from)?;
        let mask = pointer.reply().map_err(X11Error::from)?.mask;
        for (button, bit) in [
            (MouseButton::Left, KeyButMask::BUTTON1),
            (MouseButton::Middle, KeyButMask::BUTTON2),
            (MouseButton::Right, KeyButMask::BUTTON3),
        ] {
            if mask.contains(bit) {
                self.button(button, false)?;
            }
        }
        // The server does not report these. Releasing one that is up has no effect.
        self.button(MouseButton::Back, false)?;
        Ok(self.button(MouseButton::Forward, false)?)
    }

    /// Processes the events received so far. Returns whether there were any.
    pub(super) fn drain_events(&mut self) -> Result<bool, X11Error> {
        let mut any = false;
        while let Some(event) = self.x.poll_for_event()? {
            any = true;
            self.handle_event(event)?;
        }
        Ok(any)
    }

    fn handle_event(&mut self, event: Event) -> Result<(), X11Error> {
        match event {
            Event::RandrScreenChangeNotify(change) => {
                self.size = Size {
                    width: change.width.into(),
                    height: change.height.into(),
                };
            }
            Event::MappingNotify(change) => {
                self.keymap_stale |= change.request != Mapping::POINTER;
                self.unread_mapping_events += 1;
            }
            Event::ClientMessage(message)
                if message.type_ == self.atoms.WM_PROTOCOLS && message.window == self.root =>
            {
                let data = message.data.as_data32();
                if data[0] == self.atoms._NET_WM_PING {
                    self.answered_ping = data[1];
                }
            }
            event => self
                .focus
                .handle_event(&self.x, self.root, &self.atoms, &event)?,
        }
        Ok(())
    }

    pub(super) fn state(&mut self) -> Result<ScreenState, X11Error> {
        let pointer = self.x.query_pointer(self.root)?.reply()?;
        self.events_confirmed();
        // Events of earlier changes of the screen have arrived before this reply.
        self.drain_events()?;
        Ok(ScreenState {
            size: self.size,
            pointer: Point {
                x: pointer.root_x.into(),
                y: pointer.root_y.into(),
            },
        })
    }

    pub(super) fn size(&self) -> Size {
        self.size
    }

    pub(super) fn move_pointer(&mut self, to: Point) -> Result<(), X11Error> {
        const ABSOLUTE: u8 = 0;
        self.send_event(MOTION_NOTIFY_EVENT, ABSOLUTE, to)
    }

    pub(super) fn button(&mut self, button: MouseButton, down: bool) -> Result<(), X11Error> {
        let number = match button {
            MouseButton::Left => 1,
            MouseButton::Middle => 2,
            MouseButton::Right => 3,
            MouseButton::Back => 8,
            MouseButton::Forward => 9,
        };
        if !down {
            return self.release_button(number);
        }
        self.focus
            .focus_under_pointer(&self.x, self.root, &self.atoms)?;
        self.wait_for_press_interval()?;
        self.press_button(number)?;
        // After sending, which may have confirmed the events before it.
        self.press_unconfirmed = true;
        Ok(())
    }

    /// Waits until the last press is [`MIN_PRESS_INTERVAL`] ago, by the server's clock as well.
    #[expect(clippy::disallowed_methods, reason = "runs on the input thread")]
    fn wait_for_press_interval(&mut self) -> Result<(), X11Error> {
        let is_recent = |pressed_at: Instant| pressed_at.elapsed() < MIN_PRESS_INTERVAL;
        if self.press_unconfirmed || self.pressed_at.is_some_and(is_recent) {
            self.sync_events()?;
            let elapsed = self.pressed_at.map(|time| time.elapsed());
            std::thread::sleep(MIN_PRESS_INTERVAL.saturating_sub(elapsed.unwrap_or_default()));
        }
        Ok(())
    }

    pub(super) fn wheel(&mut self, notch: Notch) -> Result<(), X11Error> {
        let number = match notch {
            Notch::Up => 4,
            Notch::Down => 5,
            Notch::Left => 6,
            Notch::Right => 7,
        };
        self.press_button(number)?;
        self.release_button(number)
    }

    fn press_button(&mut self, button: u8) -> Result<(), X11Error> {
        self.send_event(BUTTON_PRESS_EVENT, button, Point::default())
    }

    fn release_button(&mut self, button: u8) -> Result<(), X11Error> {
        self.send_event(BUTTON_RELEASE_EVENT, button, Point::default())
    }

    /// Presses or releases a key without waiting for the server. Through enigo that would take two
    /// round trips, which a text cannot afford.
    pub(super) fn send_keycode(&mut self, keycode: u8, down: bool) -> Result<(), X11Error> {
        let kind = if down {
            KEY_PRESS_EVENT
        } else {
            KEY_RELEASE_EVENT
        };
        self.send_event(kind, keycode, Point::default())
    }

    /// Sends an event without waiting for it: many events cost little more than one.
    fn send_event(&mut self, kind: u8, detail: u8, to: Point) -> Result<(), X11Error> {
        const NO_DELAY: u32 = 0;
        const CORE_DEVICE: u8 = 0;
        if self.sent_events - self.confirmed_events >= MAX_UNCONFIRMED_EVENTS {
            self.sync_events()?;
        }
        let coordinate = |value: i32| value.clamp(0, i16::MAX.into()) as i16;
        let (x, y) = (coordinate(to.x), coordinate(to.y));
        let current_screen = x11rb::NONE;
        self.x
            .xtest_fake_input(kind, detail, NO_DELAY, current_screen, x, y, CORE_DEVICE)?
            .ignore_error();
        self.sent_events += 1;
        Ok(())
    }

    /// Returns the number of events sent without waiting for each.
    pub(super) fn sent_events(&self) -> u64 {
        self.sent_events
    }

    /// Returns how many of these the server has processed for certain.
    pub(super) fn confirmed_events(&self) -> u64 {
        self.confirmed_events
    }

    /// Waits until the server has processed all events.
    pub(super) fn sync_events(&mut self) -> Result<(), X11Error> {
        if self.confirmed_events < self.sent_events {
            self.sync()?;
        }
        self.events_confirmed();
        Ok(())
    }

    /// Records that the server has processed all events: it has replied to a later request.
    fn events_confirmed(&mut self) {
        self.confirmed_events = self.sent_events;
        if mem::take(&mut self.press_unconfirmed) {
            self.pressed_at = Some(Instant::now());
        }
    }

    /// Waits until the server has processed all requests.
    pub(super) fn sync(&mut self) -> Result<(), X11Error> {
        self.x.sync()?;
        self.last_response = Some(Instant::now());
        Ok(())
    }

    /// Forces a liveness check before the next key event.
    pub(super) fn reset_liveness(&mut self) {
        self.last_response = None;
    }

    pub(super) fn release(&mut self, input: HeldInput) -> Result<(), PlayError> {
        match input {
            HeldInput::Button(button) => Ok(self.button(button, false)?),
            HeldInput::Keycode(keycode) => self.keycode(keycode, false),
        }
    }

    pub(super) fn hide_cursor(&mut self, hidden: bool) -> Result<(), X11Error> {
        // The server counts these requests, so each must change the state.
        if hidden != self.cursor_hidden {
            if hidden {
                self.x.xfixes_hide_cursor(self.root)?.check()?;
            } else {
                self.x.xfixes_show_cursor(self.root)?.check()?;
            }
            self.cursor_hidden = hidden;
        }
        Ok(())
    }

    pub(super) fn is_caps_lock_on(&mut self) -> Result<bool, X11Error> {
        let pointer = self.x.query_pointer(self.root)?.reply()?;
        Ok(pointer.mask.contains(KeyButMask::LOCK))
    }
}

impl AsFd for XInput {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.x.stream().as_fd()
    }
}

/// Connects enigo. It can only use a cookie from the environment, so our user is admitted without
/// one while it connects.
pub(super) fn connect_enigo(access: &DisplayAccess) -> Result<Enigo, PlayError> {
    let uid = nix::unistd::geteuid().as_raw();
    server::admit_user(access, uid)?;
    let settings = Settings {
        x11_display: Some(format!(":{}", access.number)),
        release_keys_when_dropped: false,
        ..Settings::default()
    };
    let enigo = Enigo::new(&settings);
    server::revoke_user(access, uid)?;
    enigo.map_err(|error| PlayError::ScreenLost(error.to_string()))
}

fn pressed_keycodes(x: &XConnection) -> Result<Vec<u8>, X11Error> {
    let bits = x.query_keymap()?.reply()?.keys;
    let is_pressed = |keycode: &u8| bits[usize::from(keycode / 8)] >> (keycode % 8) & 1 == 1;
    Ok((0..=u8::MAX).filter(is_pressed).collect())
}

impl From<X11Error> for PlayError {
    fn from(error: X11Error) -> Self {
        Self::ScreenLost(error.to_string())
    }
}

//! The connections to one X server, and what is known of it.

use std::{
    mem,
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

use enigo::{Direction, Enigo, Keyboard, Settings};
use x11rb::{
    atom_manager,
    connection::Connection,
    protocol::{
        Event,
        randr::{self, ConnectionExt as _},
        xfixes::ConnectionExt as _,
        xproto::{
            Atom, AtomEnum, AutoRepeatMode, BUTTON_PRESS_EVENT, BUTTON_RELEASE_EVENT,
            ChangeKeyboardControlAux, ChangeWindowAttributesAux, ClientMessageEvent,
            ConnectionExt as _, EventMask, KeyButMask, MOTION_NOTIFY_EVENT, Mapping, Window,
        },
        xtest::ConnectionExt as _,
    },
    wrapper::ConnectionExt as _,
};

use super::{
    PlayError, Point, Size, View,
    focus::Focus,
    held::Pressed,
    keymap::{Bound, Keymap},
    step::Notch,
};
use crate::{
    api::{computer::MouseButton, keys::Key},
    system::{
        sync::poll::readable,
        x11::server::{self, DisplayAccess, X11Error, XConnection},
    },
};

/// For whoever has the focus to take the keys it was sent.
const TAKEN_LIMIT: Duration = Duration::from_secs(10);
/// The same for one that cannot be asked.
const TAKEN_PAUSE: Duration = Duration::from_millis(40);
/// Chromium takes two presses of the same millisecond for one.
const BETWEEN_PRESSES: Duration = Duration::from_millis(2);
/// A server that has answered so lately is taken to live.
const LIVELY: Duration = Duration::from_millis(10);
/// Events of the pointer that are waited for together: whatever cannot wait comes after these.
const MAX_UNDER_WAY: u64 = 256;
/// The library below keeps what the server tells of each change of the keyboard, and never looks at it. After so many it gets another connection.
const MAX_UNREAD: usize = 1000;

atom_manager! {
    pub Atoms: AtomsCookie {
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

pub struct Screen {
    x: XConnection,
    enigo: Enigo,
    root: Window,
    size: Size,
    atoms: Atoms,
    focus: Focus,
    keymap: Keymap,
    /// Somebody has changed it since it was read.
    keymap_is_old: bool,
    /// What the library below has been told meanwhile.
    unread: usize,
    /// Events of the pointer that were sent.
    sent: u64,
    /// How many of these the server has heeded for sure.
    confirmed: u64,
    /// Whether a press is among the others.
    is_pressing: bool,
    /// By when the last press was heeded.
    pressed: Option<Instant>,
    /// When the server last answered, unless that is doubted.
    heard: Option<Instant>,
    pings: u32,
    /// The last that was answered.
    answered: u32,
    hidden: bool,
}

impl Screen {
    /// Blocks until the server answers. Where we have been there before and left these keys on the keyboard, everything is as if we had not:
    /// nothing is down, and the keyboard is as it was found.
    pub fn open(access: &DisplayAccess, left: Option<&Bound>) -> Result<Self, PlayError> {
        let x = server::connect(access)?;
        let down = keys_down(&x)?;
        // Before the library below, which takes no keyboard without any room.
        let keymap = Keymap::recover(&x, left.cloned().unwrap_or_default(), |keycode| {
            down.contains(&keycode)
        })?;
        let enigo = enter(access)?;
        let mut screen = Self::prepare(x, enigo, keymap)?;
        if left.is_some() {
            screen.release_all()?;
            screen.repeat_keys(true)?;
            screen.keymap.restore(&screen.x, |_| false)?;
        }
        Ok(screen)
    }

    fn prepare(x: XConnection, enigo: Enigo, keymap: Keymap) -> Result<Self, X11Error> {
        let root = x.setup().roots.first().ok_or(X11Error::NoScreen)?.root;
        x.xfixes_query_version(4, 0)?.reply()?;
        x.randr_select_input(root, randr::NotifyMask::SCREEN_CHANGE)?
            .check()?;
        let told = ChangeWindowAttributesAux::new().event_mask(EventMask::SUBSTRUCTURE_NOTIFY);
        x.change_window_attributes(root, &told)?.check()?;
        let atoms = Atoms::new(&x)?.reply()?;
        // After the wish to be told: no change is missed.
        let geometry = x.get_geometry(root)?.reply()?;
        let focus = Focus::new(&x, root, &atoms)?;
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
            keymap_is_old: false,
            unread: 0,
            sent: 0,
            confirmed: 0,
            is_pressing: false,
            pressed: None,
            heard: None,
            pings: 0,
            answered: 0,
            hidden: false,
        })
    }

    /// What we have put on the keyboard and not taken away yet.
    pub fn bound(&self) -> &Bound {
        self.keymap.bound()
    }

    /// Whatever the server says is down, whoever pressed it.
    fn release_all(&mut self) -> Result<(), PlayError> {
        for keycode in keys_down(&self.x)? {
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
        // Of these the server says nothing; one that is up stays up.
        self.button(MouseButton::Back, false)?;
        Ok(self.button(MouseButton::Forward, false)?)
    }

    /// Heeds what has come; says whether there was something.
    pub fn heed_events(&mut self) -> Result<bool, X11Error> {
        let mut any = false;
        while let Some(event) = self.x.poll_for_event()? {
            any = true;
            self.heed(event)?;
        }
        Ok(any)
    }

    fn heed(&mut self, event: Event) -> Result<(), X11Error> {
        match event {
            Event::RandrScreenChangeNotify(change) => {
                self.size = Size {
                    width: change.width.into(),
                    height: change.height.into(),
                };
            }
            Event::MappingNotify(change) => {
                self.keymap_is_old |= change.request != Mapping::POINTER;
                self.unread += 1;
            }
            Event::ClientMessage(message)
                if message.type_ == self.atoms.WM_PROTOCOLS && message.window == self.root =>
            {
                let data = message.data.as_data32();
                if data[0] == self.atoms._NET_WM_PING {
                    self.answered = data[1];
                }
            }
            event => self.focus.heed(&self.x, self.root, &self.atoms, &event)?,
        }
        Ok(())
    }

    pub fn view(&mut self) -> Result<View, X11Error> {
        let pointer = self.x.query_pointer(self.root)?.reply()?;
        // What has changed the screen came before this answer.
        self.heed_events()?;
        Ok(View {
            size: self.size,
            pointer: Point {
                x: pointer.root_x.into(),
                y: pointer.root_y.into(),
            },
        })
    }

    pub fn size(&self) -> Size {
        self.size
    }

    pub fn go(&mut self, to: Point) -> Result<(), X11Error> {
        const TO_A_PLACE: u8 = 0;
        self.point(MOTION_NOTIFY_EVENT, TO_A_PLACE, to)
    }

    pub fn button(&mut self, button: MouseButton, down: bool) -> Result<(), X11Error> {
        let number = match button {
            MouseButton::Left => 1,
            MouseButton::Middle => 2,
            MouseButton::Right => 3,
            MouseButton::Back => 8,
            MouseButton::Forward => 9,
        };
        if down {
            self.focus.under_pointer(&self.x, self.root, &self.atoms)?;
            self.keep_distance()?;
            self.press(number)?;
            // Not before: what was under way may have been waited for just now.
            self.is_pressing = true;
            Ok(())
        } else {
            self.let_go(number)
        }
    }

    /// Waits until the last press is long enough ago, by the server's clock too.
    fn keep_distance(&mut self) -> Result<(), X11Error> {
        let is_early = |pressed: Instant| pressed.elapsed() < BETWEEN_PRESSES;
        if self.is_pressing || self.pressed.is_some_and(is_early) {
            self.await_pointer()?;
            let since = self.pressed.map(|time| time.elapsed());
            std::thread::sleep(BETWEEN_PRESSES.saturating_sub(since.unwrap_or_default()));
        }
        Ok(())
    }

    pub fn wheel(&mut self, notch: Notch) -> Result<(), X11Error> {
        let number = match notch {
            Notch::Up => 4,
            Notch::Down => 5,
            Notch::Left => 6,
            Notch::Right => 7,
        };
        self.press(number)?;
        self.let_go(number)
    }

    fn press(&mut self, button: u8) -> Result<(), X11Error> {
        self.point(BUTTON_PRESS_EVENT, button, Point::default())
    }

    fn let_go(&mut self, button: u8) -> Result<(), X11Error> {
        self.point(BUTTON_RELEASE_EVENT, button, Point::default())
    }

    /// Without waiting for each: many in a row cost little more than one.
    fn point(&mut self, kind: u8, detail: u8, to: Point) -> Result<(), X11Error> {
        const NO_DELAY: u32 = 0;
        const CORE_DEVICE: u8 = 0;
        if self.sent - self.confirmed >= MAX_UNDER_WAY {
            self.await_pointer()?;
        }
        let coordinate = |at: i32| at.clamp(0, i16::MAX.into()) as i16;
        let (x, y) = (coordinate(to.x), coordinate(to.y));
        let on_this_screen = x11rb::NONE;
        let sent =
            self.x
                .xtest_fake_input(kind, detail, NO_DELAY, on_this_screen, x, y, CORE_DEVICE)?;
        sent.ignore_error();
        self.sent += 1;
        Ok(())
    }

    /// How many events of the pointer were sent to the server.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// How many of these it has heeded for sure.
    pub fn confirmed(&self) -> u64 {
        self.confirmed
    }

    /// Waits until it has heeded all of them.
    pub fn await_pointer(&mut self) -> Result<(), X11Error> {
        if self.confirmed < self.sent {
            self.hear()?;
            self.confirmed = self.sent;
        }
        if mem::take(&mut self.is_pressing) {
            self.pressed = Some(Instant::now());
        }
        Ok(())
    }

    fn hear(&mut self) -> Result<(), X11Error> {
        self.x.sync()?;
        self.heard = Some(Instant::now());
        Ok(())
    }

    /// Whatever it has answered before: it is asked again before a key is pressed.
    pub fn doubt(&mut self) {
        self.heard = None;
    }

    /// It goes over the library's connection, after what goes over ours. There, a server that does not answer is waited for without end.
    pub fn keycode(&mut self, keycode: u8, down: bool) -> Result<(), PlayError> {
        self.await_pointer()?;
        if self.heard.is_none_or(|heard| heard.elapsed() > LIVELY) {
            self.hear()?;
        }
        self.enigo
            .raw(keycode.into(), direction(down))
            .map_err(went_away)
    }

    pub fn release(&mut self, what: Pressed) -> Result<(), PlayError> {
        match what {
            Pressed::Button(button) => Ok(self.button(button, false)?),
            Pressed::Keycode(keycode) => self.keycode(keycode, false),
        }
    }

    pub fn hide_cursor(&mut self, hidden: bool) -> Result<(), X11Error> {
        // The server counts.
        if hidden != self.hidden {
            if hidden {
                self.x.xfixes_hide_cursor(self.root)?.check()?;
            } else {
                self.x.xfixes_show_cursor(self.root)?.check()?;
            }
            self.hidden = hidden;
        }
        Ok(())
    }

    /// Whether the server presses a key that stays down again and again.
    pub fn repeat_keys(&mut self, on: bool) -> Result<(), X11Error> {
        let mode = if on {
            AutoRepeatMode::ON
        } else {
            AutoRepeatMode::OFF
        };
        let control = ChangeKeyboardControlAux::new().auto_repeat_mode(mode);
        Ok(self.x.change_keyboard_control(&control)?.check()?)
    }

    pub fn caps_lock_is_on(&mut self) -> Result<bool, X11Error> {
        let pointer = self.x.query_pointer(self.root)?.reply()?;
        Ok(pointer.mask.contains(KeyButMask::LOCK))
    }

    /// The keyboard as it is now.
    pub fn keymap(&mut self) -> Result<&mut Keymap, X11Error> {
        if self.keymap_is_old {
            self.keymap_is_old = false;
            self.keymap.read(&self.x)?;
        }
        Ok(&mut self.keymap)
    }

    /// Puts the keys on the keyboard that it does not have, as many of the first of them as there is room for.
    pub fn make_room(
        &mut self,
        wanted: impl Iterator<Item = Key> + Clone,
        is_held: impl Fn(u8) -> bool,
    ) -> Result<(), PlayError> {
        let missing = self.keymap()?.missing(wanted.clone());
        if missing.len() <= self.keymap.room() {
            return self.bind(&missing);
        }
        // What is put on a keycode anew must not be taken for what was there.
        self.await_taken()?;
        self.keymap.restore(&self.x, is_held)?;
        let mut missing = self.keymap.missing(wanted);
        missing.truncate(self.keymap.room());
        if missing.is_empty() {
            return Err(PlayError::NoKey);
        }
        self.bind(&missing)
    }

    /// A program may hear of the change over another connection than of the keys, so these are not to come before it has.
    fn bind(&mut self, keys: &[Key]) -> Result<(), PlayError> {
        if keys.is_empty() {
            return Ok(());
        }
        self.keymap.bind(&self.x, keys)?;
        self.await_taken()
    }

    /// Leaves the keyboard as it was found.
    pub fn restore_keymap(&mut self, is_held: impl Fn(u8) -> bool) -> Result<(), PlayError> {
        if self.keymap.bound().is_empty() {
            return Ok(());
        }
        let taken = self.await_taken();
        self.keymap.restore(&self.x, is_held)?;
        taken
    }

    /// Connects the library below anew where it has been told much, unless there is no room on the keyboard for it.
    pub fn renew(&mut self, access: &DisplayAccess) -> Result<(), PlayError> {
        if self.unread > MAX_UNREAD && self.keymap.room() > 0 {
            self.enigo = enter(access)?;
            self.unread = 0;
        }
        Ok(())
    }

    /// Waits until the program that has the focus has taken all keys it was sent: it answers in order.
    fn await_taken(&mut self) -> Result<(), PlayError> {
        let focus = self.x.get_input_focus().map_err(X11Error::from)?;
        let window = focus.reply().map_err(X11Error::from)?.focus;
        if !self.answers_pings(window)? {
            std::thread::sleep(TAKEN_PAUSE);
            return Ok(());
        }
        self.pings = self.pings.wrapping_add(1).max(1);
        let protocols = self.atoms.WM_PROTOCOLS;
        let data = [self.atoms._NET_WM_PING, self.pings, window, 0, 0];
        let ping = ClientMessageEvent::new(32, window, protocols, data);
        let sent = self.x.send_event(false, window, EventMask::NO_EVENT, ping);
        if sent.map_err(X11Error::from)?.check().is_err() {
            // It has gone, or everything has, which the next step meets.
            return Ok(());
        }
        let was_known = self.focus.knows(window);
        let until = Instant::now() + TAKEN_LIMIT;
        while self.answered != self.pings {
            self.heed_events()?;
            if was_known && !self.focus.knows(window) {
                return Ok(());
            }
            if until <= Instant::now() {
                return Err(PlayError::NotTaken(TAKEN_LIMIT));
            }
            if self.answered != self.pings {
                readable([self.as_fd()], Some(until)).map_err(X11Error::from)?;
            }
        }
        Ok(())
    }

    fn answers_pings(&self, window: Window) -> Result<bool, X11Error> {
        let (property, kind): (Atom, Atom) = (self.atoms.WM_PROTOCOLS, AtomEnum::ATOM.into());
        let reply = self.x.get_property(false, window, property, kind, 0, 64)?;
        // It may be no window, or one that has just gone.
        let Ok(reply) = reply.reply() else {
            return Ok(false);
        };
        let mut protocols = reply.value32().into_iter().flatten();
        Ok(protocols.any(|protocol| protocol == self.atoms._NET_WM_PING))
    }
}

impl AsFd for Screen {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.x.stream().as_fd()
    }
}

/// Connects the library below. It knows of no cookie but those of the environment: it is let in without one, and nobody after it.
fn enter(access: &DisplayAccess) -> Result<Enigo, PlayError> {
    let own = nix::unistd::geteuid().as_raw();
    server::admit_user(access, own)?;
    let settings = Settings {
        x11_display: Some(format!(":{}", access.number)),
        release_keys_when_dropped: false,
        ..Settings::default()
    };
    let enigo = Enigo::new(&settings);
    server::revoke_user(access, own)?;
    enigo.map_err(|error| PlayError::Screen(error.to_string()))
}

fn keys_down(x: &XConnection) -> Result<Vec<u8>, X11Error> {
    let keys = x.query_keymap()?.reply()?.keys;
    let is_down = |keycode: &u8| keys[usize::from(keycode / 8)] >> (keycode % 8) & 1 == 1;
    Ok((0..=u8::MAX).filter(is_down).collect())
}

fn direction(down: bool) -> Direction {
    if down {
        Direction::Press
    } else {
        Direction::Release
    }
}

/// The library below says no more than that it failed; what it refuses by itself it is never given.
fn went_away(error: enigo::InputError) -> PlayError {
    PlayError::Screen(error.to_string())
}

impl From<X11Error> for PlayError {
    fn from(error: X11Error) -> Self {
        Self::Screen(error.to_string())
    }
}

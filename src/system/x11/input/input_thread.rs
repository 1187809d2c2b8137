//! The thread that owns the connection to the X server. It plays one batch after the other and
//! serves urgent requests between two steps.

use std::{
    collections::HashMap,
    fmt::Display,
    sync::mpsc::TryRecvError,
    time::{Duration, Instant},
};

use super::{
    Inbox, InputError, Job, PlayError, ScreenState, Scroll, Size, Step, UrgentRequest,
    held::{HeldInput, HeldInputs, Holder, SessionId},
    keymap::{BoundKeys, KeyPosition},
    playback::Playback,
    x_input::XInput,
};
use crate::{
    api::keys::Key,
    system::x11::server::{DisplayAccess, X11Error},
};

/// Urgent requests served between two steps, so that a batch progresses however many there are.
const MAX_URGENT_PER_STEP: usize = 64;
/// The delay before another attempt to connect to a server that is starting.
const RECONNECT_DELAY: Duration = Duration::from_millis(500);
/// The interval at which events are drained during a batch. Delays the focus of new windows.
const EVENT_INTERVAL: Duration = Duration::from_millis(1);

type OnCursor = Box<dyn Fn(bool) + Send>;

pub(super) fn run(inbox: Inbox, on_cursor: OnCursor) {
    let mut thread = InputThread {
        inbox,
        on_cursor,
        attended: None,
        connect_at: None,
        connection: None,
        drain_events_at: Instant::now(),
        previous: None,
        closed_connections: 0,
        cursor_hidden: false,
        held: HeldInputs::default(),
        implicit_shifts: HashMap::new(),
        playback: None,
    };
    while let Some(next) = thread.run_step() {
        let deadline = match next {
            NextStep::Now => continue,
            NextStep::At(time) => Some(time),
            NextStep::OnRequest => None,
        };
        let screen = thread.connection.as_ref().map(|(_, screen)| screen);
        thread.inbox.wait(screen, deadline);
    }
}

/// When the thread has to do something again.
pub(super) enum NextStep {
    Now,
    At(Instant),
    OnRequest,
}

pub(super) struct InputThread {
    inbox: Inbox,
    on_cursor: OnCursor,
    /// The screen whose keyboard focus is managed.
    attended: Option<DisplayAccess>,
    connect_at: Option<Instant>,
    pub(super) connection: Option<(DisplayAccess, XInput)>,
    /// The latest time to drain the screen's events.
    drain_events_at: Instant,
    /// The last screen that was connected, and the keys bound on its keyboard. A new connection to
    /// it cleans up.
    previous: Option<(DisplayAccess, BoundKeys)>,
    /// The number of connections closed so far. A batch fails if its connection is closed.
    pub(super) closed_connections: u64,
    /// Whether the pointer is hidden, on whichever screen.
    cursor_hidden: bool,
    pub(super) held: HeldInputs,
    /// For each held keycode that needed Shift, the keycode of the Shift pressed along with it.
    implicit_shifts: HashMap<u8, u8>,
    pub(super) playback: Option<Playback>,
}

impl InputThread {
    /// Does what is due. Returns `None` once all handles are dropped.
    fn run_step(&mut self) -> Option<NextStep> {
        let more_urgent = self.serve_urgent()?;
        let next = match self.playback.take() {
            Some(playback) => self.advance(playback),
            None => self.next_job()?,
        };
        self.connect_attended();
        let drained = self.drain_events(&next);
        Some(match (drained, next, self.connect_at) {
            (Err(error), ..) => {
                self.connection_lost(&error);
                NextStep::Now
            }
            (Ok(any), ..) if any || more_urgent => NextStep::Now,
            (Ok(_), NextStep::OnRequest, Some(time)) => NextStep::At(time),
            (Ok(_), NextStep::At(time), Some(other)) => NextStep::At(time.min(other)),
            (Ok(_), next, _) => next,
        })
    }

    /// Processes the screen's events. This must happen right before the thread sleeps, as replies
    /// may have buffered events; during a batch it happens at [`EVENT_INTERVAL`].
    fn drain_events(&mut self, next: &NextStep) -> Result<bool, X11Error> {
        let now = Instant::now();
        match &mut self.connection {
            Some((_, screen)) if !matches!(next, NextStep::Now) || self.drain_events_at <= now => {
                self.drain_events_at = now + EVENT_INTERVAL;
                screen.drain_events()
            }
            _ => Ok(false),
        }
    }

    /// Serves urgent requests and returns whether there may be more. Returns `None` once all
    /// handles are dropped.
    fn serve_urgent(&mut self) -> Option<bool> {
        for _ in 0..MAX_URGENT_PER_STEP {
            match self.inbox.urgent.try_recv() {
                Ok(UrgentRequest::Attend(access)) => {
                    self.connect_at = access.is_some().then(Instant::now);
                    self.attended = access;
                }
                Ok(UrgentRequest::View(access, reply)) => {
                    if !reply.is_closed() {
                        let _ = reply.send(self.view(&access));
                    }
                }
                Ok(UrgentRequest::Act(access, session, step)) => self.act(&access, session, step),
                Ok(UrgentRequest::EndSession(session)) => {
                    self.release_all(Holder::Session(session));
                }
                Err(TryRecvError::Empty) => return Some(false),
                Err(TryRecvError::Disconnected) => return None,
            }
        }
        Some(true)
    }

    /// Connects to the attended screen if that is due.
    fn connect_attended(&mut self) {
        if self.connect_at.is_none_or(|time| time > Instant::now()) {
            return;
        }
        self.connect_at = None;
        if let Some(access) = self.attended.clone()
            && let Err(error) = self.connect(&access)
        {
            tracing::debug!(%error, "cannot connect to the screen yet");
            self.connect_at = Some(Instant::now() + RECONNECT_DELAY);
        }
    }

    /// Returns the connection to this screen. Closes the one to another screen.
    fn connect(&mut self, access: &DisplayAccess) -> Result<&mut XInput, PlayError> {
        if self
            .connection
            .as_ref()
            .is_none_or(|(connected, _)| connected != access)
        {
            self.disconnect();
            let previous = self.previous.as_ref();
            let previous = previous.filter(|(previous, _)| previous == access);
            let mut screen = XInput::open(access, previous.map(|(_, bound)| bound))?;
            if self.cursor_hidden {
                screen.hide_cursor(true)?;
            }
            self.previous = None;
            self.connection = Some((access.clone(), screen));
        }
        self.screen()
    }

    pub(super) fn screen(&mut self) -> Result<&mut XInput, PlayError> {
        match &mut self.connection {
            Some((_, screen)) => Ok(screen),
            None => Err(PlayError::ScreenLost("connection closed".to_owned())),
        }
    }

    pub(super) fn view(&mut self, access: &DisplayAccess) -> Result<ScreenState, InputError> {
        let state = self.connect(access);
        let state = state.and_then(|screen| Ok(screen.state()?));
        // A client that saw an effect of the batch here must not learn later that it failed.
        self.confirm_playback();
        self.require_reachable(state)
    }

    /// Returns the screen's size according to the events received so far. A client that has
    /// resized the screen got its reply after that event. There is no round trip, so the server's
    /// liveness is unknown afterwards.
    pub(super) fn size(&mut self, access: &DisplayAccess) -> Result<Size, InputError> {
        let size = self.connect(access).and_then(|screen| {
            screen.reset_liveness();
            screen.drain_events()?;
            Ok(screen.size())
        });
        self.require_reachable(size)
    }

    fn require_reachable<T>(&mut self, result: Result<T, PlayError>) -> Result<T, InputError> {
        self.check_connection(result)
            .map_err(|error| InputError::Screen(error.to_string()))
    }

    /// Passes a result on, and closes the connection if the screen has failed.
    pub(super) fn check_connection<T>(
        &mut self,
        result: Result<T, PlayError>,
    ) -> Result<T, PlayError> {
        if let Err(error @ PlayError::ScreenLost(_)) = &result {
            self.connection_lost(error);
        }
        result
    }

    /// Closes a failed connection. The server may still run and respond later: the next connection
    /// to it cleans up what this one leaves behind.
    fn connection_lost(&mut self, error: &dyn Display) {
        let Some((access, _)) = &self.connection else {
            return;
        };
        tracing::debug!(%error, "connection to the screen lost");
        if self.attended.as_ref() == Some(access) {
            self.connect_at = Some(Instant::now());
        }
        self.disconnect();
    }

    fn disconnect(&mut self) {
        if let Some((access, screen)) = self.connection.take() {
            self.previous = Some((access, screen.bound_keys().clone()));
            self.closed_connections += 1;
            self.held.clear();
            self.implicit_shifts.clear();
        }
    }

    pub(super) fn last_scroll(&self) -> Option<Scroll> {
        *self.inbox.scroll.lock()
    }

    /// Starts the next batch. Returns `None` once all handles are dropped.
    fn next_job(&mut self) -> Option<NextStep> {
        let job: Job = match self.inbox.jobs.try_recv() {
            Ok(job) => job,
            Err(TryRecvError::Empty) => return Some(NextStep::OnRequest),
            Err(TryRecvError::Disconnected) => return None,
        };
        if !job.batch.reply.is_closed() {
            self.start(job);
        }
        Some(NextStep::Now)
    }

    /// Performs a step of a session.
    fn act(&mut self, access: &DisplayAccess, session: SessionId, step: Step) {
        let size = self.connect(access).map(|screen| screen.size());
        let result = size.and_then(|size| {
            let step = match step {
                Step::Move(to) => Step::Move(to.clamped(size)),
                step => step,
            };
            self.perform(Holder::Session(session), step)?;
            Ok(self.screen()?.sync_events()?)
        });
        if let Err(error) = self.check_connection(result) {
            tracing::debug!(%error, "live input lost");
        }
    }

    /// Performs a step that takes no time. Ignores `Wait` and `Type`.
    pub(super) fn perform(&mut self, holder: Holder, step: Step) -> Result<(), PlayError> {
        match step {
            Step::Move(to) => Ok(self.screen()?.move_pointer(to)?),
            Step::Wheel(notch) => Ok(self.screen()?.wheel(notch)?),
            Step::Button { button, down } => {
                self.record(holder, HeldInput::Button(button), down);
                Ok(self.screen()?.button(button, down)?)
            }
            Step::Key { key, down } => self.key(holder, key, down),
            Step::Cursor { hidden } => {
                self.screen()?.hide_cursor(hidden)?;
                self.cursor_hidden = hidden;
                (self.on_cursor)(hidden);
                Ok(())
            }
            Step::Scrolled { at, time } => {
                self.screen()?.sync_events()?;
                *self.inbox.scroll.lock() = Some(Scroll {
                    at,
                    until: Instant::now() + time,
                });
                Ok(())
            }
            Step::Wait(_) | Step::Type { .. } => Ok(()),
        }
    }

    /// Records a press or release. Must be called before it is sent, so that the input is released
    /// even if sending fails: releasing one that is up is harmless.
    fn record(&mut self, holder: Holder, input: HeldInput, down: bool) {
        if down {
            self.held.press(holder, input);
        } else {
            self.held.release(input);
        }
    }

    /// Presses or releases a key. Also presses Shift if the key needs it and it is not held.
    fn key(&mut self, holder: Holder, key: Key, down: bool) -> Result<(), PlayError> {
        self.bind_keys(std::iter::once(key))?;
        let keymap = self.screen()?.keymap()?;
        let position = keymap.position(key).ok_or(PlayError::NoSpareKeycode)?;
        let keycode = position.keycode;
        if down {
            if let Some(shift) = self.shift_for(position)? {
                self.implicit_shifts.insert(keycode, shift);
                self.keycode(holder, shift, true)?;
            }
            self.keycode(holder, keycode, true)
        } else {
            self.keycode(holder, keycode, false)?;
            match self.implicit_shifts.remove(&keycode) {
                Some(shift) => self.keycode(holder, shift, false),
                None => Ok(()),
            }
        }
    }

    pub(super) fn tap(&mut self, holder: Holder, key: Key) -> Result<(), PlayError> {
        self.key(holder, key, true)?;
        self.key(holder, key, false)
    }

    /// Presses and releases a key without waiting for the server.
    pub(super) fn type_key(&mut self, key: Key) -> Result<(), PlayError> {
        let keymap = self.screen()?.keymap()?;
        let position = keymap.position(key).ok_or(PlayError::NoSpareKeycode)?;
        let shift = self.shift_for(position)?;
        let keycodes = shift.into_iter().chain([position.keycode]);
        for keycode in keycodes.clone() {
            self.record(Holder::Batch, HeldInput::Keycode(keycode), true);
            self.screen()?.send_keycode(keycode, true)?;
        }
        for keycode in keycodes.rev() {
            self.record(Holder::Batch, HeldInput::Keycode(keycode), false);
            self.screen()?.send_keycode(keycode, false)?;
        }
        Ok(())
    }

    /// Returns the keycode of Shift if the key needs it and it is not held.
    fn shift_for(&mut self, position: KeyPosition) -> Result<Option<u8>, PlayError> {
        let shift = self.screen()?.keymap()?.position(Key::SHIFT);
        let shift = shift.map(|shift| shift.keycode);
        let is_held = |shift: &u8| self.held.contains(HeldInput::Keycode(*shift));
        Ok(shift.filter(|shift| position.shifted && !is_held(shift)))
    }

    fn keycode(&mut self, holder: Holder, keycode: u8, down: bool) -> Result<(), PlayError> {
        self.record(holder, HeldInput::Keycode(keycode), down);
        self.screen()?.keycode(keycode, down)
    }

    /// Binds the first of these keys that the keyboard lacks, as far as there is room.
    pub(super) fn bind_keys(
        &mut self,
        keys: impl Iterator<Item = Key> + Clone,
    ) -> Result<(), PlayError> {
        let held = &self.held;
        match &mut self.connection {
            Some((_, screen)) => {
                screen.bind_missing(keys, |keycode| held.contains(HeldInput::Keycode(keycode)))
            }
            None => Err(PlayError::ScreenLost("connection closed".to_owned())),
        }
    }

    /// Releases everything that only this holder holds.
    pub(super) fn release_all(&mut self, holder: Holder) {
        let released = self.release(holder);
        // If the screen has failed, the next connection to it releases everything.
        if let Err(error) = self.check_connection(released) {
            tracing::warn!(%error, "cannot release all held input");
        }
    }

    fn release(&mut self, holder: Holder) -> Result<(), PlayError> {
        if let Some((_, screen)) = &mut self.connection {
            for input in self.held.held_only_by(holder) {
                screen.release(input)?;
            }
        }
        self.held.remove(holder);
        let held = &self.held;
        self.implicit_shifts
            .retain(|keycode, _| held.contains(HeldInput::Keycode(*keycode)));
        self.settle()
    }

    /// Waits until all events are processed, and unbinds keys that are not held.
    pub(super) fn settle(&mut self) -> Result<(), PlayError> {
        let held = &self.held;
        match &mut self.connection {
            Some((access, screen)) => {
                screen.sync_events()?;
                screen.restore_keymap(|keycode| held.contains(HeldInput::Keycode(keycode)))?;
                screen.renew_enigo(access)
            }
            None => Ok(()),
        }
    }
}

//! The task that plays batches on the front page.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::{
    sync::{mpsc, watch},
    time::{sleep, timeout},
};

use super::{PageError, input_state::InputState, keyboard, viewport_size};
use crate::{
    agent::chromium::{Chromium, front::FrontPage},
    api::{
        computer::{KeyboardText, MouseButton},
        keys::Key,
    },
    shutdown::Shutdown,
    system::{
        cdp::{
            connection::{CdpError, PendingReply},
            tab::{MouseEvent, TabSession},
        },
        x11::input::{
            Batch, Notch, PlayError, Point, Progress, ScreenState, Size, StartedBatch, Step,
            TimeBudget,
        },
    },
};

/// The time a batch may take in addition to its planned waits: each step waits for the page.
pub(in crate::agent::computer) const BATCH_GRACE_PERIOD: Duration = Duration::from_secs(300);
/// The time the page may take to process the release of everything that is held.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);
/// Pointer moves that a page may lag behind.
const MAX_UNCONFIRMED_MOVES: usize = 32;
/// The pixels of one notch of a mouse wheel, as in a browser with a screen.
const PIXELS_PER_NOTCH: f64 = 120.0;

/// Plays one batch after the other.
pub(super) struct PagePlayer {
    chromium: Chromium,
    shutdown: Shutdown,
    page: Option<FrontPage>,
    pointer: watch::Sender<Point>,
    state: InputState,
    /// Events that the page has not confirmed yet.
    unconfirmed: VecDeque<PendingReply>,
    /// The number of events of the batch that were sent, and that the page has confirmed.
    sent_events: u64,
    confirmed_events: u64,
}

impl PagePlayer {
    pub(super) fn new(
        chromium: Chromium,
        shutdown: Shutdown,
        pointer: watch::Sender<Point>,
    ) -> Self {
        Self {
            chromium,
            shutdown,
            page: None,
            pointer,
            state: InputState::default(),
            unconfirmed: VecDeque::new(),
            sent_events: 0,
            confirmed_events: 0,
        }
    }

    /// Runs until shutdown. `busy` is set while a batch is played.
    pub(super) async fn run(
        mut self,
        mut batches: mpsc::Receiver<Batch<PageError>>,
        busy: Arc<AtomicBool>,
    ) {
        let shutdown = self.shutdown.clone();
        loop {
            let batch = tokio::select! {
                biased;
                () = shutdown.requested() => return,
                batch = batches.recv() => batch,
            };
            let Some(batch) = batch else { return };
            busy.store(true, Ordering::Relaxed);
            self.serve(batch).await;
            busy.store(false, Ordering::Relaxed);
        }
    }

    async fn serve(&mut self, batch: Batch<PageError>) {
        // The caller has gone while the batch was queued.
        if batch.reply.is_closed() {
            return;
        }
        let state = self.attach_to_front().await;
        let screen = state.map(|ScreenState { size, pointer }| (size, Some(pointer)));
        let Some(StartedBatch { actions, mut reply }) = batch.start(screen) else {
            return;
        };
        let budget = TimeBudget::new(&actions, BATCH_GRACE_PERIOD);
        let mut progress = Progress::new(actions.len());
        let mut action_started_at = Instant::now();
        let shutdown = self.shutdown.clone();
        let playing = timeout(
            budget.total(),
            self.play(actions, &mut progress, &mut action_started_at),
        );
        let lost = |reason: &str| Some(PlayError::ScreenLost(reason.to_owned()));
        let error = tokio::select! {
            biased;
            () = reply.closed() => lost("request cancelled"),
            () = shutdown.requested() => lost("agent is shutting down"),
            played = playing => match played {
                Ok(result) => result.err(),
                Err(_) => Some(PlayError::Overrun(budget.grace_period)),
            },
        };
        let elapsed = action_started_at.elapsed();
        if error.is_some() {
            self.count_confirmed();
        }
        progress.confirm(self.confirmed_events);
        let result = match error {
            Some(error) => {
                self.release_all().await;
                progress.failed(error, elapsed)
            }
            None => progress.finished(elapsed),
        };
        let _ = reply.send(Ok(Some(result)));
    }

    /// Attaches to the front page unless it is attached already, and returns its state.
    async fn attach_to_front(&mut self) -> Result<ScreenState, PageError> {
        let size = match &self.page {
            Some(page) if self.chromium.is_in_front(page).await? => {
                // Fails if its connection has ended.
                viewport_size(page).await.ok()
            }
            _ => None,
        };
        let size = match size {
            Some(size) => size,
            None => self.switch_to_front().await?,
        };
        // The page may be smaller than the last one.
        let pointer = self.pointer.borrow().clamped(size);
        self.pointer.send_replace(pointer);
        Ok(ScreenState { size, pointer })
    }

    async fn switch_to_front(&mut self) -> Result<Size, PageError> {
        self.release_all().await;
        (self.page, self.state) = (None, InputState::default());
        let page = self.chromium.front_page().await?;
        let size = viewport_size(&page).await?;
        page.session.emulate_focus().await?;
        self.page = Some(page);
        Ok(size)
    }

    async fn play(
        &mut self,
        actions: Vec<Vec<Step>>,
        progress: &mut Progress,
        action_started_at: &mut Instant,
    ) -> Result<(), PlayError> {
        (self.sent_events, self.confirmed_events) = (0, 0);
        for steps in actions {
            *action_started_at = Instant::now();
            for step in steps {
                self.play_step(step).await?;
            }
            progress.action_played(action_started_at.elapsed(), self.sent_events);
        }
        *action_started_at = Instant::now();
        self.settle().await
    }

    async fn play_step(&mut self, step: Step) -> Result<(), PlayError> {
        match step {
            Step::Wait(time) => {
                sleep(time).await;
                return Ok(());
            }
            // Confirmed in bulk.
            Step::Move(to) => return self.move_pointer(to).await,
            // Confirmed character by character.
            Step::Type { text, delay } => return self.type_text(&text, delay).await,
            // Rejected before planning: a page has no pointer to hide.
            Step::Cursor { .. } => return Ok(()),
            // The page has confirmed every notch.
            Step::Scrolled { .. } => return Ok(()),
            Step::Button { button, down } => self.button(button, down).await?,
            Step::Wheel(notch) => self.wheel(notch).await?,
            Step::Key { key, down } => {
                let caps_lock = self.state.caps_lock;
                if down {
                    self.press(key, caps_lock).await?;
                } else {
                    self.release(key, caps_lock).await?;
                }
            }
        }
        self.settle().await
    }

    async fn move_pointer(&mut self, to: Point) -> Result<(), PlayError> {
        let unchanged = self.pointer.send_replace(to) == to;
        if unchanged && self.state.position_sent {
            return Ok(());
        }
        self.state.position_sent = true;
        let held = self.state.buttons.clone();
        self.send_mouse(MouseEvent::Moved, &held).await?;
        // A page processes one move per frame. Waiting for each would slow moves down.
        if self.unconfirmed.len() < MAX_UNCONFIRMED_MOVES {
            return Ok(());
        }
        self.settle().await
    }

    async fn wheel(&mut self, notch: Notch) -> Result<(), PlayError> {
        let (across, down) = match notch {
            Notch::Up => (0.0, -PIXELS_PER_NOTCH),
            Notch::Down => (0.0, PIXELS_PER_NOTCH),
            Notch::Left => (-PIXELS_PER_NOTCH, 0.0),
            Notch::Right => (PIXELS_PER_NOTCH, 0.0),
        };
        let held = self.state.buttons.clone();
        self.send_mouse(MouseEvent::Wheel { across, down }, &held)
            .await
    }

    async fn type_text(&mut self, text: &KeyboardText, delay: Duration) -> Result<(), PlayError> {
        let mut first = true;
        for key in text.keys() {
            if !std::mem::take(&mut first) && !delay.is_zero() {
                sleep(delay).await;
            }
            // Texts are typed as given even if Caps Lock is on.
            self.press(key, false).await?;
            self.release(key, false).await?;
            self.settle().await?;
        }
        Ok(())
    }

    /// Sends a mouse event. `held` are the buttons held after it.
    async fn send_mouse(
        &mut self,
        event: MouseEvent,
        held: &[MouseButton],
    ) -> Result<(), PlayError> {
        let position = *self.pointer.borrow();
        let modifiers = keyboard::modifiers(&self.state.keys);
        let session = self.session()?;
        let sent = session
            .mouse(event, (position.x, position.y), held, modifiers)
            .await;
        self.record_sent(sent.map_err(to_play_error)?);
        Ok(())
    }

    fn record_sent(&mut self, sent: PendingReply) {
        self.unconfirmed.push_back(sent);
        self.sent_events += 1;
    }

    /// Presses or releases a button. Does nothing if the button already is in that state.
    async fn button(&mut self, button: MouseButton, down: bool) -> Result<(), PlayError> {
        if self.state.buttons.contains(&button) == down {
            return Ok(());
        }
        if down {
            self.state.buttons.push(button);
            let clicks = self.state.record_press(button, *self.pointer.borrow());
            let held = self.state.buttons.clone();
            return self
                .send_mouse(MouseEvent::Pressed { button, clicks }, &held)
                .await;
        }
        let held = self.state.buttons.iter().copied();
        let held: Vec<_> = held.filter(|held| *held != button).collect();
        let clicks = self.state.release_count(button);
        self.send_mouse(MouseEvent::Released { button, clicks }, &held)
            .await?;
        self.state.buttons = held;
        Ok(())
    }

    async fn press(&mut self, key: Key, caps_lock: bool) -> Result<(), PlayError> {
        if self.state.keys.contains(&key) {
            return Ok(());
        }
        if keyboard::needs_shift(key) && !keyboard::modifiers(&self.state.keys).shift {
            self.state.with_shift.push(key);
            self.send_key(Key::SHIFT, true, caps_lock).await?;
        }
        self.send_key(key, true, caps_lock).await
    }

    async fn release(&mut self, key: Key, caps_lock: bool) -> Result<(), PlayError> {
        if !self.state.keys.contains(&key) {
            return Ok(());
        }
        self.send_key(key, false, caps_lock).await?;
        let before = self.state.with_shift.len();
        self.state.with_shift.retain(|held| *held != key);
        if self.state.with_shift.len() < before {
            self.send_key(Key::SHIFT, false, caps_lock).await?;
        }
        Ok(())
    }

    /// Sends a key event. The key counts as held from before it is pressed until after it is
    /// released, so that it is released even if sending fails.
    async fn send_key(&mut self, key: Key, down: bool, caps_lock: bool) -> Result<(), PlayError> {
        let state = &mut self.state;
        if down {
            state.keys.push(key);
            state.caps_lock ^= key == Key::CAPS_LOCK;
        }
        let held = state.keys.iter().copied();
        let held: Vec<Key> = held.filter(|held| down || *held != key).collect();
        let modifiers = keyboard::modifiers(&held);
        let event = keyboard::event(key, down, modifiers, caps_lock);
        let sent = self.session()?.key(event, modifiers).await;
        self.record_sent(sent.map_err(to_play_error)?);
        self.state.keys = held;
        Ok(())
    }

    /// Waits until the page has confirmed all events.
    async fn settle(&mut self) -> Result<(), PlayError> {
        while let Some(sent) = self.unconfirmed.front_mut() {
            sent.reply().await.map_err(to_play_error)?;
            self.unconfirmed.pop_front();
            self.confirmed_events += 1;
        }
        Ok(())
    }

    /// Counts the events that the page has confirmed, without waiting.
    fn count_confirmed(&mut self) {
        let confirmed = self
            .unconfirmed
            .iter_mut()
            .map_while(|sent| sent.is_done().then_some(1_u64));
        self.confirmed_events += confirmed.sum::<u64>();
    }

    fn session(&self) -> Result<&TabSession, PlayError> {
        let page = self.page.as_ref();
        let no_page = || PlayError::ScreenLost("no page is attached".to_owned());
        Ok(&page.ok_or_else(no_page)?.session)
    }

    /// Releases everything that is held, in reverse order.
    async fn release_all(&mut self) {
        self.unconfirmed.clear();
        if self.page.is_none() {
            return;
        }
        let releasing = async {
            while let Some(key) = self.state.keys.last().copied() {
                self.send_key(key, false, self.state.caps_lock).await?;
            }
            while let Some(button) = self.state.buttons.last().copied() {
                self.button(button, false).await?;
            }
            self.settle().await
        };
        let released = match timeout(RELEASE_TIMEOUT, releasing).await {
            Ok(released) => released,
            Err(_) => Err(PlayError::Unresponsive(RELEASE_TIMEOUT)),
        };
        self.state.with_shift.clear();
        if let Err(error) = released {
            tracing::warn!(%error, "cannot release all held input");
            // The next batch attaches anew.
            (self.page, self.state) = (None, InputState::default());
            self.unconfirmed.clear();
        }
    }
}

fn to_play_error(error: CdpError) -> PlayError {
    match error {
        CdpError::Timeout { after, .. } => PlayError::Unresponsive(after),
        CdpError::Connect(_)
        | CdpError::Closed
        | CdpError::Failed { .. }
        | CdpError::InvalidReply { .. } => PlayError::ScreenLost(error.to_string()),
    }
}

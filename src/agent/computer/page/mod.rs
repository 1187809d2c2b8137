//! Mouse and keyboard of a browser without a screen: what they do reaches the page in front over DevTools.
//!
//! One task does it, one batch after the other. Places are those of the page: (0, 0) is the upper left corner of what it shows.

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

use crate::{
    agent::chromium::{
        Chromium,
        front::{FrontError, FrontPage},
    },
    api::{computer::MouseButton, keys::Key},
    shutdown::Shutdown,
    system::{
        cdp::connection::{CdpError, Sent},
        cdp::tab::{MouseEvent, TabSession},
        x11::input::{
            Batch, Notch, PlayError, PlayResult, Point, Progress, ScreenState, Size, StartedBatch,
            Step, TimeBudget,
        },
    },
};

mod keyboard;

/// Batches that may wait for their turn.
const QUEUE: usize = 32;
/// Beyond what the waits of a batch come to, for its steps: each waits until the page has taken it.
pub const SLACK: Duration = Duration::from_secs(300);
/// For all that is held to be released.
const RELEASE_LIMIT: Duration = Duration::from_secs(5);
/// Moves that a page may be behind.
const MAX_SENT: usize = 32;
/// One notch of a wheel, in pixels, as Chromium has it on a screen.
const NOTCH: f64 = 120.0;
/// Presses of one button at one place within this time are clicks of a kind: double, triple.
const CLICK_AGAIN: Duration = Duration::from_millis(500);
const CLICK_REACH: i32 = 2;
const MOST_CLICKS: u32 = 3;

#[derive(Debug, thiserror::Error)]
pub enum PageError {
    #[error("as much input is waiting as may wait")]
    Full,
    #[error(transparent)]
    Front(#[from] FrontError),
    #[error("the input has ended")]
    Ended,
}

impl From<CdpError> for PageError {
    fn from(error: CdpError) -> Self {
        Self::Front(error.into())
    }
}

/// The handle.
#[derive(Clone)]
pub struct PageInput {
    chromium: Chromium,
    batches: mpsc::Sender<Batch<PageError>>,
    busy: Arc<AtomicBool>,
    pointer: watch::Receiver<Point>,
}

impl PageInput {
    pub fn start(chromium: Chromium, shutdown: &Shutdown) -> Self {
        let (batches, queue) = mpsc::channel(QUEUE);
        let (pointer, pointer_receiver) = watch::channel(Point { x: 0, y: 0 });
        let busy = Arc::new(AtomicBool::new(false));
        let player = Player {
            chromium: chromium.clone(),
            shutdown: shutdown.clone(),
            page: None,
            pointer,
            hands: Hands::default(),
            sent: VecDeque::new(),
            given: 0,
            taken: 0,
        };
        shutdown.spawn(player.run(queue, busy.clone()));
        Self {
            chromium,
            batches,
            busy,
            pointer: pointer_receiver,
        }
    }

    /// Where the pointer was brought last.
    pub fn position(&self) -> Point {
        *self.pointer.borrow()
    }

    /// Whether a batch would have to wait.
    pub fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Relaxed) || self.batches.capacity() < QUEUE
    }

    /// What there is at this moment, whatever is being played.
    pub async fn view(&self) -> Result<ScreenState, PageError> {
        let page = self.chromium.front_page().await?;
        let size = size_of(&page).await?;
        Ok(ScreenState {
            size,
            pointer: self.position().clamped(size),
        })
    }

    /// Plans once it is its turn, and plays what was planned. Where the plan is refused, nothing is done. Who stops waiting for this
    /// ends it; what it holds is then released.
    pub async fn play<E: Send + 'static>(
        &self,
        plan: impl FnOnce(Size, Option<Point>) -> Result<Vec<Vec<Step>>, E> + Send + 'static,
    ) -> Result<Result<PlayResult, E>, PageError> {
        let (batch, outcome) = Batch::new(plan);
        let sent = self.batches.try_send(batch);
        sent.map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => PageError::Full,
            mpsc::error::TrySendError::Closed(_) => PageError::Ended,
        })?;
        outcome.wait().await.unwrap_or(Err(PageError::Ended))
    }
}

async fn size_of(page: &FrontPage) -> Result<Size, PageError> {
    let (width, height) = page.session.size().await?;
    let side = |side: u32| side.min(u16::MAX.into());
    Ok(Size {
        width: side(width),
        height: side(height),
    })
}

/// What is held, and what else the next event depends on.
#[derive(Default)]
struct Hands {
    buttons: Vec<MouseButton>,
    keys: Vec<Key>,
    /// Keys that are held with a Shift of their own, which goes with them.
    with_shift: Vec<Key>,
    caps_lock: bool,
    last_click: Option<Click>,
    /// Whether this page knows where the pointer is.
    seen: bool,
}

#[derive(Clone, Copy)]
struct Click {
    button: MouseButton,
    at: Point,
    when: Instant,
    /// How many it is by now.
    count: u32,
}

/// The task.
struct Player {
    chromium: Chromium,
    shutdown: Shutdown,
    page: Option<FrontPage>,
    pointer: watch::Sender<Point>,
    hands: Hands,
    /// What the page has not taken yet.
    sent: VecDeque<Sent>,
    /// How many events of the batch it was given, and how many of them it has taken.
    given: u64,
    taken: u64,
}

impl Player {
    async fn run(mut self, mut batches: mpsc::Receiver<Batch<PageError>>, busy: Arc<AtomicBool>) {
        let shutdown = self.shutdown.clone();
        loop {
            let batch = tokio::select! {
                biased;
                () = shutdown.stopped() => return,
                batch = batches.recv() => batch,
            };
            let Some(batch) = batch else { return };
            busy.store(true, Ordering::Relaxed);
            self.serve(batch).await;
            busy.store(false, Ordering::Relaxed);
        }
    }

    async fn serve(&mut self, batch: Batch<PageError>) {
        // Whoever has left while it waited wants nothing done.
        if batch.reply.is_closed() {
            return;
        }
        let view = self.look().await;
        let found = view.map(|ScreenState { size, pointer }| (size, Some(pointer)));
        let Some(StartedBatch { actions, mut reply }) = batch.start(found) else {
            return;
        };
        let budget = TimeBudget::new(&actions, SLACK);
        let (mut progress, mut began) = (Progress::new(actions.len()), Instant::now());
        let shutdown = self.shutdown.clone();
        let playing = timeout(
            budget.total(),
            self.play(actions, &mut progress, &mut began),
        );
        let error = tokio::select! {
            biased;
            () = reply.closed() => Some(PlayError::ScreenLost("nobody waits for it".to_owned())),
            () = shutdown.stopped() => Some(PlayError::ScreenLost("the agent is being stopped".to_owned())),
            played = playing => match played {
                Ok(played) => played.err(),
                Err(_) => Some(PlayError::Overrun(budget.grace_period)),
            },
        };
        let longer = began.elapsed();
        if error.is_some() {
            self.take_what_is_done();
        }
        progress.confirm(self.taken);
        let played = match error {
            Some(error) => {
                self.release_all().await;
                progress.failed(error, longer)
            }
            None => progress.finished(longer),
        };
        let _ = reply.send(Ok(Some(played)));
    }

    /// Turns to the page in front.
    async fn look(&mut self) -> Result<ScreenState, PageError> {
        let size = match &self.page {
            Some(page) if self.chromium.is_in_front(page).await? => {
                // Its connection may have ended meanwhile.
                size_of(page).await.ok()
            }
            _ => None,
        };
        let size = match size {
            Some(size) => size,
            None => self.turn_to_front().await?,
        };
        // A place that was on the page may not be so any more.
        let pointer = self.pointer.borrow().clamped(size);
        self.pointer.send_replace(pointer);
        Ok(ScreenState { size, pointer })
    }

    async fn turn_to_front(&mut self) -> Result<Size, PageError> {
        self.release_all().await;
        (self.page, self.hands) = (None, Hands::default());
        let page = self.chromium.front_page().await?;
        let size = size_of(&page).await?;
        page.session.focus().await?;
        self.page = Some(page);
        Ok(size)
    }

    async fn play(
        &mut self,
        actions: Vec<Vec<Step>>,
        progress: &mut Progress,
        began: &mut Instant,
    ) -> Result<(), PlayError> {
        (self.given, self.taken) = (0, 0);
        for steps in actions {
            *began = Instant::now();
            for step in steps {
                self.step(step).await?;
            }
            progress.action_played(began.elapsed(), self.given);
        }
        *began = Instant::now();
        self.settle().await
    }

    async fn step(&mut self, step: Step) -> Result<(), PlayError> {
        match step {
            Step::Wait(time) => {
                sleep(time).await;
                Ok(())
            }
            Step::Move(to) => {
                let is_there = self.pointer.send_replace(to) == to;
                if is_there && self.hands.seen {
                    return Ok(());
                }
                self.hands.seen = true;
                let held = self.hands.buttons.clone();
                self.mouse(MouseEvent::Moved, &held).await?;
                // A page takes one for each frame it draws: on a screen nobody would wait for that either.
                if self.sent.len() < MAX_SENT {
                    return Ok(());
                }
                self.settle().await
            }
            Step::Button { button, down } => {
                self.button(button, down).await?;
                self.settle().await
            }
            Step::Wheel(notch) => {
                let (across, down) = match notch {
                    Notch::Up => (0.0, -NOTCH),
                    Notch::Down => (0.0, NOTCH),
                    Notch::Left => (-NOTCH, 0.0),
                    Notch::Right => (NOTCH, 0.0),
                };
                let held = self.hands.buttons.clone();
                self.mouse(MouseEvent::Wheel { across, down }, &held)
                    .await?;
                self.settle().await
            }
            Step::Key { key, down } => {
                let caps_lock = self.hands.caps_lock;
                if down {
                    self.press(key, caps_lock).await?;
                } else {
                    self.release(key, caps_lock).await?;
                }
                self.settle().await
            }
            Step::Type { text, delay } => {
                let mut first = true;
                for key in text.keys() {
                    if !std::mem::take(&mut first) && !delay.is_zero() {
                        sleep(delay).await;
                    }
                    // What is typed is what was given, also where Caps Lock is on.
                    self.press(key, false).await?;
                    self.release(key, false).await?;
                    self.settle().await?;
                }
                Ok(())
            }
            // It was refused before.
            Step::Cursor { .. } => Ok(()),
        }
    }

    /// With these buttons held afterwards.
    async fn mouse(&mut self, event: MouseEvent, held: &[MouseButton]) -> Result<(), PlayError> {
        let at = *self.pointer.borrow();
        let modifiers = keyboard::modifiers(&self.hands.keys);
        let session = self.session()?;
        let sent = session.mouse(event, (at.x, at.y), held, modifiers).await;
        self.give(sent.map_err(failed)?);
        Ok(())
    }

    fn give(&mut self, sent: Sent) {
        self.sent.push_back(sent);
        self.given += 1;
    }

    /// What is held already cannot be pressed, nor what is not be released.
    async fn button(&mut self, button: MouseButton, down: bool) -> Result<(), PlayError> {
        if self.hands.buttons.contains(&button) == down {
            return Ok(());
        }
        if down {
            self.hands.buttons.push(button);
            let clicks = self.count_click(button);
            let held = self.hands.buttons.clone();
            return self
                .mouse(MouseEvent::Pressed { button, clicks }, &held)
                .await;
        }
        let held = self.hands.buttons.iter().copied();
        let held: Vec<_> = held.filter(|held| *held != button).collect();
        let same = self.hands.last_click.filter(|click| click.button == button);
        let clicks = same.map_or(1, |click| click.count);
        self.mouse(MouseEvent::Released { button, clicks }, &held)
            .await?;
        self.hands.buttons = held;
        Ok(())
    }

    fn count_click(&mut self, button: MouseButton) -> u32 {
        let (at, when) = (*self.pointer.borrow(), Instant::now());
        let again = self.hands.last_click.filter(|last| {
            last.button == button
                && when - last.when <= CLICK_AGAIN
                && (last.at.x - at.x).abs() <= CLICK_REACH
                && (last.at.y - at.y).abs() <= CLICK_REACH
        });
        let count = again.map_or(1, |last| last.count % MOST_CLICKS + 1);
        self.hands.last_click = Some(Click {
            button,
            at,
            when,
            count,
        });
        count
    }

    async fn press(&mut self, key: Key, caps_lock: bool) -> Result<(), PlayError> {
        if self.hands.keys.contains(&key) {
            return Ok(());
        }
        if keyboard::takes_shift(key) && !keyboard::modifiers(&self.hands.keys).shift {
            self.hands.with_shift.push(key);
            self.key(Key::SHIFT, true, caps_lock).await?;
        }
        self.key(key, true, caps_lock).await
    }

    async fn release(&mut self, key: Key, caps_lock: bool) -> Result<(), PlayError> {
        if !self.hands.keys.contains(&key) {
            return Ok(());
        }
        self.key(key, false, caps_lock).await?;
        let before = self.hands.with_shift.len();
        self.hands.with_shift.retain(|held| *held != key);
        if self.hands.with_shift.len() < before {
            self.key(Key::SHIFT, false, caps_lock).await?;
        }
        Ok(())
    }

    /// What it writes depends on `caps_lock`. A key counts as held from before it is pressed until after it is released, so that it is released
    /// whatever happens.
    async fn key(&mut self, key: Key, down: bool, caps_lock: bool) -> Result<(), PlayError> {
        let hands = &mut self.hands;
        if down {
            hands.keys.push(key);
            hands.caps_lock ^= key == Key::CAPS_LOCK;
        }
        let held = hands.keys.iter().copied();
        let held: Vec<Key> = held.filter(|held| down || *held != key).collect();
        let modifiers = keyboard::modifiers(&held);
        let event = keyboard::event(key, down, modifiers, caps_lock);
        let sent = self.session()?.key(event, modifiers).await;
        self.give(sent.map_err(failed)?);
        self.hands.keys = held;
        Ok(())
    }

    /// Waits until the page has taken all that was sent to it.
    async fn settle(&mut self) -> Result<(), PlayError> {
        while let Some(sent) = self.sent.front_mut() {
            sent.answer().await.map_err(failed)?;
            self.sent.pop_front();
            self.taken += 1;
        }
        Ok(())
    }

    /// Counts what nobody has waited for yet, as far as the page has taken it.
    fn take_what_is_done(&mut self) {
        let done = self
            .sent
            .iter_mut()
            .map_while(|sent| sent.is_done().then_some(1_u64));
        self.taken += done.sum::<u64>();
    }

    fn session(&self) -> Result<&TabSession, PlayError> {
        let page = self.page.as_ref();
        let none = || PlayError::ScreenLost("there is no page".to_owned());
        Ok(&page.ok_or_else(none)?.session)
    }

    /// Leaves nothing down, the last first.
    async fn release_all(&mut self) {
        self.sent.clear();
        if self.page.is_none() {
            return;
        }
        let releasing = async {
            while let Some(key) = self.hands.keys.last().copied() {
                self.key(key, false, self.hands.caps_lock).await?;
            }
            while let Some(button) = self.hands.buttons.last().copied() {
                self.button(button, false).await?;
            }
            self.settle().await
        };
        let released = match timeout(RELEASE_LIMIT, releasing).await {
            Ok(released) => released,
            Err(_) => Err(PlayError::Unresponsive(RELEASE_LIMIT)),
        };
        self.hands.with_shift.clear();
        if let Err(error) = released {
            tracing::warn!(%error, "not all that was held could be released");
            // What comes next begins anew.
            (self.page, self.hands) = (None, Hands::default());
            self.sent.clear();
        }
    }
}

fn failed(error: CdpError) -> PlayError {
    match error {
        CdpError::Deadline { after, .. } => PlayError::Unresponsive(after),
        CdpError::Connect(_)
        | CdpError::Closed
        | CdpError::Refused { .. }
        | CdpError::Answer { .. } => PlayError::ScreenLost(error.to_string()),
    }
}

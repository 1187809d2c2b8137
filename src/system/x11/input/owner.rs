//! The thread that owns the connections: it plays one batch after the other, and between two steps does what cannot wait.

use std::{
    collections::HashMap,
    fmt::Display,
    sync::mpsc::TryRecvError,
    time::{Duration, Instant},
};

use tokio::sync::oneshot;

use super::{
    Budget, Inbox, InputError, Job, PlayError, SLACK, Size, Step, Urgent, View,
    batch::{Answer, Begun},
    held::{Held, Holder, Pressed, SessionId},
    keymap::{Bound, Place},
    progress::Progress,
    screen::Screen,
};
use crate::{
    api::keys::Key,
    system::x11::server::{DisplayAccess, X11Error},
};

/// What cannot wait, between two steps: however much of it there is, a batch goes on.
const URGENT_AT_ONCE: usize = 64;
/// A server that is being started may not answer yet.
const CONNECT_AGAIN: Duration = Duration::from_millis(500);
/// Windows that open in the middle of a batch get the keyboard so much later.
const HEED_AGAIN: Duration = Duration::from_millis(1);

pub type OnCursor = Box<dyn Fn(bool) + Send>;

pub fn run(inbox: Inbox, on_cursor: OnCursor) {
    let mut owner = Owner {
        inbox,
        on_cursor,
        attended: None,
        connect_at: None,
        screen: None,
        heed_at: Instant::now(),
        left: None,
        connections: 0,
        hidden: false,
        held: Held::default(),
        shifts: HashMap::new(),
        playing: None,
    };
    while let Some(next) = owner.turn() {
        let time = match next {
            Next::Now => continue,
            Next::At(time) => Some(time),
            Next::WhenTold => None,
        };
        let screen = owner.screen.as_ref().map(|(_, screen)| screen);
        owner.inbox.wait(screen, time);
    }
}

enum Next {
    Now,
    At(Instant),
    WhenTold,
}

struct Owner {
    inbox: Inbox,
    on_cursor: OnCursor,
    /// The screen whose focus is kept right.
    attended: Option<DisplayAccess>,
    connect_at: Option<Instant>,
    screen: Option<(DisplayAccess, Screen)>,
    /// When the screen is listened to again, at the latest.
    heed_at: Instant,
    /// The screen that was connected last, and which keys on its keyboard are ours still. It may be there again.
    left: Option<(DisplayAccess, Bound)>,
    /// Counts the connections that have ended: what was begun over one is not gone on with over the next.
    connections: u64,
    /// Whether the pointer is to be hidden, whichever screen it is.
    hidden: bool,
    held: Held,
    /// Keys that are held with a Shift of their own, which goes with them.
    shifts: HashMap<u8, u8>,
    playing: Option<Playing>,
}

/// A batch whose turn it is.
struct Playing {
    reply: oneshot::Sender<Answer<InputError>>,
    connection: u64,
    actions: std::vec::IntoIter<Vec<Step>>,
    steps: std::vec::IntoIter<Step>,
    began: Instant,
    progress: Progress,
    typing: Option<Typing>,
    wait_until: Option<Instant>,
    give_up: Instant,
    /// How much longer than planned it has taken by then.
    beyond: Duration,
}

/// A text that is being typed.
struct Typing {
    keys: Vec<Key>,
    at: usize,
    delay: Duration,
    /// Whether Caps Lock was on, and is to be on afterwards.
    caps_lock: bool,
}

impl Owner {
    /// Does what there is to do; `None` where nobody will ever tell it anything again.
    fn turn(&mut self) -> Option<Next> {
        let more = self.serve_urgent()?;
        let next = match self.playing.take() {
            Some(playing) => self.proceed(playing),
            None => self.next_job()?,
        };
        self.attend();
        let heeded = self.heed_events(&next);
        Some(match (heeded, next, self.connect_at) {
            (Err(error), ..) => {
                self.lost(&error);
                Next::Now
            }
            (Ok(any), ..) if any || more => Next::Now,
            (Ok(_), Next::WhenTold, Some(time)) => Next::At(time),
            (Ok(_), Next::At(time), Some(other)) => Next::At(time.min(other)),
            (Ok(_), next, _) => next,
        })
    }

    /// The last thing before it sleeps: whatever was read along with an answer is heeded now. In the middle of a batch from time to time.
    fn heed_events(&mut self, next: &Next) -> Result<bool, X11Error> {
        let now = Instant::now();
        match &mut self.screen {
            Some((_, screen)) if !matches!(next, Next::Now) || self.heed_at <= now => {
                self.heed_at = now + HEED_AGAIN;
                screen.heed_events()
            }
            _ => Ok(false),
        }
    }

    /// Says whether there may be more of it; `None` where nobody will ever tell it anything again.
    fn serve_urgent(&mut self) -> Option<bool> {
        for _ in 0..URGENT_AT_ONCE {
            match self.inbox.urgent.try_recv() {
                Ok(Urgent::Attend(access)) => {
                    self.connect_at = access.is_some().then(Instant::now);
                    self.attended = access;
                }
                Ok(Urgent::View(access, reply)) => {
                    if !reply.is_closed() {
                        let _ = reply.send(self.view(&access));
                    }
                }
                Ok(Urgent::Act(access, session, step)) => self.act(&access, session, step),
                Ok(Urgent::End(session)) => self.release_all(Holder::Session(session)),
                Err(TryRecvError::Empty) => return Some(false),
                Err(TryRecvError::Disconnected) => return None,
            }
        }
        Some(true)
    }

    fn attend(&mut self) {
        if self.connect_at.is_none_or(|time| time > Instant::now()) {
            return;
        }
        self.connect_at = None;
        if let Some(access) = self.attended.clone()
            && let Err(error) = self.screen(&access)
        {
            tracing::debug!(%error, "the screen cannot be reached yet");
            self.connect_at = Some(Instant::now() + CONNECT_AGAIN);
        }
    }

    /// The screen of that access; another one is left.
    fn screen(&mut self, access: &DisplayAccess) -> Result<&mut Screen, PlayError> {
        if self
            .screen
            .as_ref()
            .is_none_or(|(known, _)| known != access)
        {
            self.leave();
            let left = self.left.as_ref().filter(|(left, _)| left == access);
            let mut screen = Screen::open(access, left.map(|(_, bound)| bound))?;
            if self.hidden {
                screen.hide_cursor(true)?;
            }
            self.left = None;
            self.screen = Some((access.clone(), screen));
        }
        self.current()
    }

    fn view(&mut self, access: &DisplayAccess) -> Result<View, InputError> {
        let looked = self.screen(access);
        let looked = looked.and_then(|screen| Ok(screen.view()?));
        self.reached(looked)
    }

    /// As the screen has told it by now: whoever has changed it was answered after that. Nothing is asked, so that nobody knows whether it lives.
    fn size(&mut self, access: &DisplayAccess) -> Result<Size, InputError> {
        let told = self.screen(access).and_then(|screen| {
            screen.doubt();
            screen.heed_events()?;
            Ok(screen.size())
        });
        self.reached(told)
    }

    /// Before anything is done.
    fn reached<T>(&mut self, told: Result<T, PlayError>) -> Result<T, InputError> {
        self.heeded(told)
            .map_err(|error| InputError::Screen(error.to_string()))
    }

    /// Where the screen itself has failed, the connection is not gone on with.
    fn heeded<T>(&mut self, done: Result<T, PlayError>) -> Result<T, PlayError> {
        if let Err(error @ PlayError::Screen(_)) = &done {
            self.lost(error);
        }
        done
    }

    /// The connection is of no use any more. The server may live on, and answer again later: the next connection to it finds what was
    /// left there.
    fn lost(&mut self, error: &dyn Display) {
        let Some((access, _)) = &self.screen else {
            return;
        };
        tracing::debug!(%error, "the connection to the screen has ended");
        if self.attended.as_ref() == Some(access) {
            self.connect_at = Some(Instant::now());
        }
        self.leave();
    }

    fn leave(&mut self) {
        if let Some((access, screen)) = self.screen.take() {
            self.left = Some((access, screen.bound().clone()));
            self.connections += 1;
            self.held.clear();
            self.shifts.clear();
        }
    }

    fn next_job(&mut self) -> Option<Next> {
        let job = match self.inbox.jobs.try_recv() {
            Ok(job) => job,
            Err(TryRecvError::Empty) => return Some(Next::WhenTold),
            Err(TryRecvError::Disconnected) => return None,
        };
        if !job.batch.reply.is_closed() {
            self.begin(job);
        }
        Some(Next::Now)
    }

    fn begin(&mut self, job: Job) {
        let found = if job.wants_pointer {
            let view = self.view(&job.access);
            view.map(|View { size, pointer }| (size, Some(pointer)))
        } else {
            self.size(&job.access).map(|size| (size, None))
        };
        let Some(Begun { actions, reply }) = job.batch.begin(found) else {
            return;
        };
        let budget = Budget::of(&actions, SLACK);
        let now = Instant::now();
        let progress = Progress::of(actions.len());
        let mut actions = actions.into_iter();
        self.playing = Some(Playing {
            reply,
            connection: self.connections,
            progress,
            steps: actions.next().unwrap_or_default().into_iter(),
            actions,
            began: now,
            typing: None,
            wait_until: None,
            give_up: now + budget.total(),
            beyond: budget.beyond,
        });
    }

    /// One step further.
    fn proceed(&mut self, mut playing: Playing) -> Next {
        if playing.reply.is_closed() {
            self.abandon(&mut playing);
            return Next::Now;
        }
        if playing.connection != self.connections {
            return self.fail(playing, PlayError::Screen("it was left".to_owned()));
        }
        let now = Instant::now();
        if now > playing.give_up {
            let beyond = playing.beyond;
            return self.fail(playing, PlayError::TooLong(beyond));
        }
        if let Some(time) = playing.wait_until.filter(|time| *time > now) {
            self.playing = Some(playing);
            return Next::At(time);
        }
        playing.wait_until = None;
        let done = if playing.typing.is_some() {
            self.type_on(&mut playing)
        } else if let Some(step) = playing.steps.next() {
            self.play(&mut playing, step)
        } else {
            self.action_done(&mut playing);
            match playing.actions.next() {
                Some(steps) => playing.steps = steps.into_iter(),
                None => return self.finish(playing),
            }
            Ok(())
        };
        // While the screen is still there to tell.
        self.confirm(&mut playing);
        match self.heeded(done) {
            Ok(()) => {
                self.playing = Some(playing);
                Next::Now
            }
            Err(error) => self.fail(playing, error),
        }
    }

    fn finish(&mut self, mut playing: Playing) -> Next {
        let settled = self.settle();
        self.confirm(&mut playing);
        if let Err(error) = self.heeded(settled) {
            return self.fail(playing, error);
        }
        let played = playing.progress.finished(playing.began.elapsed());
        let _ = playing.reply.send(Ok(Some(played)));
        Next::Now
    }

    fn fail(&mut self, mut playing: Playing, error: PlayError) -> Next {
        // Where the screen is still there, what was sent before is not to be taken for what failed.
        let awaited = self.await_pointer();
        self.confirm(&mut playing);
        let _ = self.heeded(awaited);
        let longer = playing.began.elapsed();
        self.abandon(&mut playing);
        let played = playing.progress.failed(error, longer);
        let _ = playing.reply.send(Ok(Some(played)));
        Next::Now
    }

    fn action_done(&self, playing: &mut Playing) {
        // A batch without its screen does not come this far.
        let sent = self.screen.as_ref().map_or(0, |(_, screen)| screen.sent());
        playing.progress.done(playing.began.elapsed(), sent);
        playing.began = Instant::now();
    }

    /// Notes what the screen has confirmed, unless it is another one by now.
    fn confirm(&self, playing: &mut Playing) {
        if let Some((_, screen)) = &self.screen
            && playing.connection == self.connections
        {
            playing.progress.confirm(screen.confirmed());
        }
    }

    /// Nothing where there is no screen any more.
    fn await_pointer(&mut self) -> Result<(), PlayError> {
        match &mut self.screen {
            Some((_, screen)) => Ok(screen.await_pointer()?),
            None => Ok(()),
        }
    }

    /// Leaves everything up, whoever of the batches has pressed it.
    fn abandon(&mut self, playing: &mut Playing) {
        if let Some(typing) = playing.typing.take() {
            let ended = self.end_typing(&typing);
            let _ = self.heeded(ended);
        }
        self.release_all(Holder::Batch);
    }

    fn release_all(&mut self, holder: Holder) {
        let released = self.release(holder);
        // Where the screen has failed, the next connection releases what is down.
        if let Err(error) = self.heeded(released) {
            tracing::warn!(%error, "not all that was held could be released");
        }
    }

    fn release(&mut self, holder: Holder) -> Result<(), PlayError> {
        if let Some((_, screen)) = &mut self.screen {
            for what in self.held.only_of(holder) {
                screen.release(what)?;
            }
        }
        self.held.forget(holder);
        let held = &self.held;
        self.shifts
            .retain(|keycode, _| held.holds(Pressed::Keycode(*keycode)));
        self.settle()
    }

    /// Waits for the pointer, and takes keys off the keyboard that were put there for a batch or a viewer, once none of them needs them.
    fn settle(&mut self) -> Result<(), PlayError> {
        let held = &self.held;
        match &mut self.screen {
            Some((access, screen)) => {
                screen.await_pointer()?;
                screen.restore_keymap(|keycode| held.holds(Pressed::Keycode(keycode)))?;
                screen.renew(access)
            }
            None => Ok(()),
        }
    }

    fn play(&mut self, playing: &mut Playing, step: Step) -> Result<(), PlayError> {
        match step {
            Step::Wait(time) => {
                self.current()?.await_pointer()?;
                playing.wait_until = Some(Instant::now() + time);
            }
            Step::Type { text, delay } => {
                let keys: Vec<Key> = text.keys().collect();
                let caps_lock = self.current()?.caps_lock_is_on()?;
                if caps_lock {
                    self.tap(Holder::Batch, Key::CAPS_LOCK)?;
                }
                // One that is down for longer than it should be would be typed twice.
                self.current()?.repeat_keys(false)?;
                playing.typing = Some(Typing {
                    keys,
                    at: 0,
                    delay,
                    caps_lock,
                });
            }
            step => self.immediate(Holder::Batch, step)?,
        }
        Ok(())
    }

    /// What takes no time.
    fn immediate(&mut self, holder: Holder, step: Step) -> Result<(), PlayError> {
        match step {
            Step::Move(to) => Ok(self.current()?.go(to)?),
            Step::Wheel(notch) => Ok(self.current()?.wheel(notch)?),
            Step::Button { button, down } => {
                let what = Pressed::Button(button);
                self.note(holder, what, down);
                Ok(self.current()?.button(button, down)?)
            }
            Step::Key { key, down } => self.key(holder, key, down),
            Step::Cursor { hidden } => {
                self.current()?.hide_cursor(hidden)?;
                self.hidden = hidden;
                (self.on_cursor)(hidden);
                Ok(())
            }
            Step::Wait(_) | Step::Type { .. } => Ok(()),
        }
    }

    /// Before it is pressed, so that it is released whatever happens; what is up already can be released again.
    fn note(&mut self, holder: Holder, what: Pressed, down: bool) {
        if down {
            self.held.pressed(holder, what);
        } else {
            self.held.released(what);
        }
    }

    fn current(&mut self) -> Result<&mut Screen, PlayError> {
        match &mut self.screen {
            Some((_, screen)) => Ok(screen),
            None => Err(PlayError::Screen("the connection has ended".to_owned())),
        }
    }

    /// Presses or releases a key, with a Shift where it takes one and nobody holds that.
    fn key(&mut self, holder: Holder, key: Key, down: bool) -> Result<(), PlayError> {
        self.make_room(std::iter::once(key))?;
        let keymap = self.current()?.keymap()?;
        let Place { keycode, shifted } = keymap.place(key).ok_or(PlayError::NoKey)?;
        let shift = keymap.place(Key::SHIFT).map(|shift| shift.keycode);
        if down {
            let shift = shift.filter(|shift| shifted && !self.held.holds(Pressed::Keycode(*shift)));
            if let Some(shift) = shift {
                self.shifts.insert(keycode, shift);
                self.keycode(holder, shift, true)?;
            }
            self.keycode(holder, keycode, true)
        } else {
            self.keycode(holder, keycode, false)?;
            match self.shifts.remove(&keycode) {
                Some(shift) => self.keycode(holder, shift, false),
                None => Ok(()),
            }
        }
    }

    fn tap(&mut self, holder: Holder, key: Key) -> Result<(), PlayError> {
        self.key(holder, key, true)?;
        self.key(holder, key, false)
    }

    fn keycode(&mut self, holder: Holder, keycode: u8, down: bool) -> Result<(), PlayError> {
        self.note(holder, Pressed::Keycode(keycode), down);
        self.current()?.keycode(keycode, down)
    }

    fn make_room(&mut self, wanted: impl Iterator<Item = Key> + Clone) -> Result<(), PlayError> {
        let held = &self.held;
        match &mut self.screen {
            Some((_, screen)) => {
                screen.make_room(wanted, |keycode| held.holds(Pressed::Keycode(keycode)))
            }
            None => Err(PlayError::Screen("the connection has ended".to_owned())),
        }
    }

    /// Leaves the keyboard in the state it was in before.
    fn end_typing(&mut self, typing: &Typing) -> Result<(), PlayError> {
        self.current()?.repeat_keys(true)?;
        if typing.caps_lock {
            self.tap(Holder::Batch, Key::CAPS_LOCK)?;
        }
        Ok(())
    }

    /// Types the next character.
    fn type_on(&mut self, playing: &mut Playing) -> Result<(), PlayError> {
        let Some(typing) = &mut playing.typing else {
            return Ok(());
        };
        let Some(key) = typing.keys.get(typing.at).copied() else {
            return match playing.typing.take() {
                Some(typing) => self.end_typing(&typing),
                None => Ok(()),
            };
        };
        if self.current()?.keymap()?.place(key).is_none() {
            self.make_room(typing.keys[typing.at..].iter().copied())?;
        }
        self.tap(Holder::Batch, key)?;
        typing.at += 1;
        if !typing.delay.is_zero() && typing.at < typing.keys.len() {
            playing.wait_until = Some(Instant::now() + typing.delay);
        }
        Ok(())
    }

    fn act(&mut self, access: &DisplayAccess, session: SessionId, step: Step) {
        let size = self.screen(access).map(|screen| screen.size());
        let done = size.and_then(|size| {
            let step = match step {
                Step::Move(to) => Step::Move(to.clamped(size)),
                step => step,
            };
            self.immediate(Holder::Session(session), step)?;
            Ok(self.current()?.await_pointer()?)
        });
        if let Err(error) = self.heeded(done) {
            tracing::debug!(%error, "a viewer's input was lost");
        }
    }
}

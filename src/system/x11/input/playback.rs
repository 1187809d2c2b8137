//! Plays one batch on the input thread, step by step.

use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::{
    BATCH_GRACE_PERIOD, InputError, Job, PlayError, ScreenState, Step, TimeBudget,
    batch::{BatchReply, StartedBatch},
    held::Holder,
    input_thread::{InputThread, NextStep},
    progress::Progress,
};
use crate::api::keys::Key;

/// The batch in progress.
pub(super) struct Playback {
    reply: oneshot::Sender<BatchReply<InputError>>,
    /// The value of `closed_connections` when it was started.
    connection: u64,
    actions: std::vec::IntoIter<Vec<Step>>,
    /// The remaining steps of the current action.
    steps: std::vec::IntoIter<Step>,
    /// When the current action was started.
    action_started_at: Instant,
    progress: Progress,
    typing: Option<Typing>,
    wait_until: Option<Instant>,
    deadline: Instant,
    /// The time by which the deadline exceeds the planned duration.
    grace_period: Duration,
}

/// A text that is being typed.
struct Typing {
    keys: Vec<Key>,
    next: usize,
    delay: Duration,
    /// Whether Caps Lock was on and must be restored afterwards.
    caps_lock: bool,
}

impl InputThread {
    /// Plans a batch and makes it the current one.
    pub(super) fn start(&mut self, job: Job) {
        let screen = if job.needs_pointer {
            let state = self.view(&job.access);
            state.map(|ScreenState { size, pointer }| (size, Some(pointer)))
        } else {
            self.size(&job.access).map(|size| (size, None))
        };
        let Some(StartedBatch { actions, reply }) = job.batch.start(screen) else {
            return;
        };
        let budget = TimeBudget::new(&actions, BATCH_GRACE_PERIOD);
        let now = Instant::now();
        let progress = Progress::new(actions.len());
        let mut actions = actions.into_iter();
        self.playback = Some(Playback {
            reply,
            connection: self.closed_connections,
            progress,
            steps: actions.next().unwrap_or_default().into_iter(),
            actions,
            action_started_at: now,
            typing: None,
            wait_until: None,
            deadline: now + budget.total(),
            grace_period: budget.grace_period,
        });
    }

    /// Plays the next step of a batch.
    pub(super) fn advance(&mut self, mut playback: Playback) -> NextStep {
        if playback.reply.is_closed() {
            self.abort(&mut playback);
            return NextStep::Now;
        }
        if playback.connection != self.closed_connections {
            let error = PlayError::ScreenLost("connection closed".to_owned());
            return self.fail(playback, error);
        }
        let now = Instant::now();
        if now > playback.deadline {
            let error = PlayError::Overrun(playback.grace_period);
            return self.fail(playback, error);
        }
        let wait_until = playback
            .wait_until
            .or_else(|| self.held_back_until(&playback));
        if let Some(time) = wait_until.filter(|time| *time > now) {
            self.playback = Some(playback);
            return NextStep::At(time);
        }
        playback.wait_until = None;
        let result = if playback.typing.is_some() {
            self.type_next(&mut playback)
        } else if let Some(step) = playback.steps.next() {
            self.play_step(&mut playback, step)
        } else {
            self.action_played(&mut playback);
            match playback.actions.next() {
                Some(steps) => playback.steps = steps.into_iter(),
                None => return self.finish(playback),
            }
            Ok(())
        };
        // Before a failed connection is closed, which would lose the count.
        self.confirm(&mut playback);
        match self.check_connection(result) {
            Ok(()) => {
                self.playback = Some(playback);
                NextStep::Now
            }
            Err(error) => self.fail(playback, error),
        }
    }

    /// Returns the earliest time of the next step if it is input that must not overtake a scroll.
    fn held_back_until(&self, playback: &Playback) -> Option<Instant> {
        let scroll = self.last_scroll()?;
        let next = match &playback.typing {
            Some(_) => None,
            None => playback.steps.as_slice().first(),
        };
        match next? {
            Step::Wheel(_) | Step::Scrolled { .. } | Step::Wait(_) | Step::Cursor { .. } => None,
            Step::Move(to) if *to == scroll.at => None,
            Step::Move(_) | Step::Button { .. } | Step::Key { .. } | Step::Type { .. } => {
                Some(scroll.until)
            }
        }
    }

    fn finish(&mut self, mut playback: Playback) -> NextStep {
        let settled = self.settle();
        self.confirm(&mut playback);
        if let Err(error) = self.check_connection(settled) {
            return self.fail(playback, error);
        }
        let elapsed = playback.action_started_at.elapsed();
        let result = playback.progress.finished(elapsed);
        let _ = playback.reply.send(Ok(Some(result)));
        NextStep::Now
    }

    fn fail(&mut self, mut playback: Playback, error: PlayError) -> NextStep {
        // If the screen still responds, the actions before the failed one can be confirmed.
        let synced = self.sync_events();
        self.confirm(&mut playback);
        let _ = self.check_connection(synced);
        let elapsed = playback.action_started_at.elapsed();
        self.abort(&mut playback);
        let result = playback.progress.failed(error, elapsed);
        let _ = playback.reply.send(Ok(Some(result)));
        NextStep::Now
    }

    /// Releases everything that the batch holds.
    fn abort(&mut self, playback: &mut Playback) {
        if let Some(typing) = playback.typing.take() {
            let ended = self.end_typing(&typing);
            let _ = self.check_connection(ended);
        }
        self.release_all(Holder::Batch);
    }

    fn action_played(&self, playback: &mut Playback) {
        // There is always a connection here: without one, the batch has failed before.
        let connection = self.connection.as_ref();
        let sent = connection.map_or(0, |(_, screen)| screen.sent_events());
        playback
            .progress
            .action_played(playback.action_started_at.elapsed(), sent);
        playback.action_started_at = Instant::now();
    }

    /// Records the confirmed events of the current batch, if there is one.
    pub(super) fn confirm_playback(&mut self) {
        if let Some(mut playback) = self.playback.take() {
            self.confirm(&mut playback);
            self.playback = Some(playback);
        }
    }

    /// Records the events confirmed by the screen, unless it is another connection by now.
    fn confirm(&self, playback: &mut Playback) {
        if let Some((_, screen)) = &self.connection
            && playback.connection == self.closed_connections
        {
            playback.progress.confirm(screen.confirmed_events());
        }
    }

    /// Waits until all events are processed. Does nothing without a connection.
    fn sync_events(&mut self) -> Result<(), PlayError> {
        match &mut self.connection {
            Some((_, screen)) => Ok(screen.sync_events()?),
            None => Ok(()),
        }
    }

    fn play_step(&mut self, playback: &mut Playback, step: Step) -> Result<(), PlayError> {
        match step {
            Step::Wait(time) => {
                self.screen()?.sync_events()?;
                playback.wait_until = Some(Instant::now() + time);
            }
            Step::Type { text, delay } => {
                let keys: Vec<Key> = text.keys().collect();
                let caps_lock = self.screen()?.is_caps_lock_on()?;
                if caps_lock {
                    self.tap(Holder::Batch, Key::CAPS_LOCK)?;
                }
                // With auto-repeat, a key whose release is delayed would be typed twice.
                self.screen()?.set_auto_repeat(false)?;
                playback.typing = Some(Typing {
                    keys,
                    next: 0,
                    delay,
                    caps_lock,
                });
            }
            step => self.perform(Holder::Batch, step)?,
        }
        Ok(())
    }

    /// Types the next character.
    fn type_next(&mut self, playback: &mut Playback) -> Result<(), PlayError> {
        let Some(typing) = &mut playback.typing else {
            return Ok(());
        };
        let Some(key) = typing.keys.get(typing.next).copied() else {
            return match playback.typing.take() {
                Some(typing) => self.end_typing(&typing),
                None => Ok(()),
            };
        };
        if self.screen()?.keymap()?.position(key).is_none() {
            self.bind_keys(typing.keys[typing.next..].iter().copied())?;
        }
        self.type_key(key)?;
        typing.next += 1;
        if !typing.delay.is_zero() && typing.next < typing.keys.len() {
            self.screen()?.sync_events()?;
            playback.wait_until = Some(Instant::now() + typing.delay);
        }
        Ok(())
    }

    /// Restores auto-repeat and Caps Lock.
    fn end_typing(&mut self, typing: &Typing) -> Result<(), PlayError> {
        self.screen()?.set_auto_repeat(true)?;
        if typing.caps_lock {
            self.tap(Holder::Batch, Key::CAPS_LOCK)?;
        }
        Ok(())
    }
}

//! Captures the screen for one viewer.
//!
//! Each source has its own thread and its own connection to the X server, so that no viewer waits
//! for another. The thread ends when its [`FrameSource`] is dropped or the screen is lost.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::sync::mpsc;

use super::{
    frame::{self, Frame},
    frame_pacer::{FramePacer, NextFrame},
};
use crate::{
    agent::cursor::CursorShown,
    api::live::AgentMessage,
    system::{
        media::jpeg::JpegQuality,
        sync::waker::Waker,
        x11::{
            screen::{DamageRegion, ScreenError, WaitResult, WatchedScreen},
            server::DisplayAccess,
        },
    },
};

/// The interval at which the pointer's position is polled: the X server sends no events for it.
const POINTER_POLL_INTERVAL: Duration = Duration::from_millis(80);
/// Images of one frame that are encoded before the first one is sent.
const EVENT_QUEUE_CAPACITY: usize = 2;

/// An item for a viewer.
pub enum FrameEvent {
    /// An encoded part of a frame, or the pointer's image.
    Image(Vec<u8>),
    Message(AgentMessage),
}

/// The handle of a capture thread. Dropping it stops the thread.
pub(super) struct FrameSource {
    events: mpsc::Receiver<FrameEvent>,
    acks: Arc<FrameAcks>,
}

impl FrameSource {
    pub(super) fn start(
        access: DisplayAccess,
        cursor: CursorShown,
        acks: Arc<FrameAcks>,
    ) -> Result<Self, io::Error> {
        let (sender, events) = mpsc::channel(EVENT_QUEUE_CAPACITY);
        let thread_acks = acks.clone();
        std::thread::Builder::new()
            .name("live-view".into())
            .spawn(move || {
                let frames = FrameLoop::open(&access, cursor, &thread_acks, &sender);
                if let Err(error) = frames.and_then(FrameLoop::run) {
                    tracing::debug!(%error, "live view lost its screen");
                }
            })?;
        Ok(Self { events, acks })
    }

    /// Returns the next event, or `None` once the screen is lost.
    pub(super) async fn next(&mut self) -> Option<FrameEvent> {
        self.events.recv().await
    }
}

impl Drop for FrameSource {
    fn drop(&mut self) {
        self.events.close();
        self.acks.wake();
    }
}

/// Passes the page's acknowledgements of drawn frames to the capture thread.
#[derive(Default)]
pub(super) struct FrameAcks {
    /// The last frame's number. It outlives the source: the next one counts on from it, so that a
    /// late acknowledgement never matches another source's frame.
    sequence: AtomicU32,
    pending: Mutex<PendingAck>,
    changed: Condvar,
}

#[derive(Default)]
struct PendingAck {
    sequence: Option<u32>,
    woken: bool,
    waker: Option<Waker>,
}

impl FrameAcks {
    pub(super) fn acknowledge(&self, sequence: u32) {
        self.lock().sequence = Some(sequence);
        self.changed.notify_all();
    }

    /// Wakes the capture thread, whatever it waits for.
    fn wake(&self) {
        let mut pending = self.lock();
        pending.woken = true;
        if let Some(waker) = pending.waker.take() {
            waker.wake();
        }
        self.changed.notify_all();
    }

    /// Starts over for a new capture thread, which `waker` wakes from waits for its screen.
    fn attach(&self, waker: Waker) {
        let mut pending = self.lock();
        *pending = PendingAck {
            waker: Some(waker),
            ..PendingAck::default()
        };
    }

    /// Takes the latest acknowledgement, if there is a new one.
    fn take(&self) -> Option<u32> {
        self.lock().sequence.take()
    }

    /// Blocks until an acknowledgement or [`Self::wake`], at most until `deadline`.
    fn wait(&self, deadline: Instant) {
        let is_idle = |pending: &mut PendingAck| pending.sequence.is_none() && !pending.woken;
        self.changed
            .wait_while_until(&mut self.lock(), is_idle, deadline);
    }

    fn lock(&self) -> MutexGuard<'_, PendingAck> {
        self.pending.lock()
    }
}

/// The capture thread's state.
struct FrameLoop<'a> {
    screen: WatchedScreen,
    cursor: CursorShown,
    acks: &'a FrameAcks,
    events: &'a mpsc::Sender<FrameEvent>,
    pacer: FramePacer,
    /// The screen has changed since the image was last updated.
    changed: bool,
    /// Areas that were sent below full quality.
    coarse: DamageRegion,
    pointer: Option<AgentMessage>,
    next_pointer_poll: Instant,
}

/// The viewer has disconnected.
struct Disconnected;

impl<'a> FrameLoop<'a> {
    fn open(
        access: &DisplayAccess,
        cursor: CursorShown,
        acks: &'a FrameAcks,
        events: &'a mpsc::Sender<FrameEvent>,
    ) -> Result<Self, ScreenError> {
        let screen = WatchedScreen::open(access)?;
        acks.attach(screen.waker());
        let now = Instant::now();
        Ok(Self {
            screen,
            cursor,
            acks,
            events,
            pacer: FramePacer::new(now, acks.sequence.load(Relaxed)),
            changed: true,
            coarse: DamageRegion::default(),
            pointer: None,
            next_pointer_poll: now,
        })
    }

    fn run(mut self) -> Result<(), ScreenError> {
        while !self.events.is_closed() {
            let now = Instant::now();
            if let Some(sequence) = self.acks.take() {
                self.pacer.acknowledge(now, sequence);
            }
            if now >= self.next_pointer_poll {
                self.next_pointer_poll = now + POINTER_POLL_INTERVAL;
                if self.send_pointer()?.is_err() {
                    break;
                }
            }
            let sent = match self.pacer.next_frame(now, self.changed) {
                NextFrame::Changes(quality) => self.send_changes(quality)?,
                NextFrame::Refinement => self.refine(),
                NextFrame::Wait(until) => {
                    self.wait(until)?;
                    Ok(())
                }
            };
            if sent.is_err() {
                break;
            }
        }
        Ok(())
    }

    fn wait(&mut self, until: Option<Instant>) -> Result<(), ScreenError> {
        let poll = self.next_pointer_poll;
        let until = until.map_or(poll, |at| at.min(poll));
        if self.changed || self.pacer.is_in_flight() {
            self.acks.wait(until);
        } else {
            self.changed = self.screen.wait(until)? == WaitResult::Changed;
        }
        Ok(())
    }

    fn send_changes(
        &mut self,
        quality: JpegQuality,
    ) -> Result<Result<(), Disconnected>, ScreenError> {
        let changes = self.screen.update(false)?;
        self.changed = false;
        let damage: DamageRegion = changes.into_iter().collect();
        if quality != JpegQuality::High {
            self.coarse.merge(&damage);
        }
        Ok(self.send_frame(&damage, quality))
    }

    fn refine(&mut self) -> Result<(), Disconnected> {
        let coarse = std::mem::take(&mut self.coarse);
        self.send_frame(&coarse, JpegQuality::High)
    }

    fn send_frame(
        &mut self,
        damage: &DamageRegion,
        quality: JpegQuality,
    ) -> Result<(), Disconnected> {
        let image = self.screen.image();
        let rects = damage.clipped(image.size);
        if rects.is_empty() {
            self.pacer
                .frame_skipped(Instant::now(), !self.coarse.is_empty());
            return Ok(());
        }
        let sequence = self.pacer.start_frame(Instant::now());
        self.acks.sequence.store(sequence, Relaxed);
        let frame = Frame {
            image,
            sequence,
            quality,
        };
        let mut messages = frame.messages(&rects);
        let (mut encoding, mut bytes) = (Duration::ZERO, 0);
        loop {
            let started_at = Instant::now();
            let Some(message) = messages.next() else {
                break;
            };
            encoding += started_at.elapsed();
            bytes += message.len();
            send(self.events, FrameEvent::Image(message))?;
        }
        metrics::histogram!("berth_live_frame_seconds").record(encoding);
        metrics::counter!("berth_live_bytes_total").increment(bytes as u64);
        self.pacer
            .frame_sent(Instant::now(), !self.coarse.is_empty());
        Ok(())
    }

    /// Sends the pointer's position and image where they have changed.
    fn send_pointer(&mut self) -> Result<Result<(), Disconnected>, ScreenError> {
        let pointer = self.screen.pointer()?;
        let size = self.screen.image().size;
        if let Some(image) = &pointer.image {
            let message = frame::pointer_message(image, size);
            if send(self.events, FrameEvent::Image(message)).is_err() {
                return Ok(Err(Disconnected));
            }
        }
        let message = AgentMessage::Pointer {
            x: pointer.x,
            y: pointer.y,
            shown: self.cursor.get(),
        };
        if self.pointer.as_ref() == Some(&message) {
            return Ok(Ok(()));
        }
        self.pointer = Some(message.clone());
        Ok(send(self.events, FrameEvent::Message(message)))
    }
}

fn send(events: &mpsc::Sender<FrameEvent>, event: FrameEvent) -> Result<(), Disconnected> {
    events.blocking_send(event).map_err(|_| Disconnected)
}

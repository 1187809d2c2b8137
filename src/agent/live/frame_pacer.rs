//! Decides when a viewer gets its next frame, and at which quality.
//!
//! At most one frame is in flight: the next one is captured only after the page has acknowledged
//! the last. A slow connection therefore never falls behind, and frames are never queued.
//!
//! ```text
//!          start_frame            frame_sent             acknowledge
//!  idle ───────────────► encoding ──────────► in flight ─────────────► idle
//! ```

use std::time::{Duration, Instant};

use crate::system::media::jpeg::JpegQuality;

/// The minimum interval between frames: 22 per second. More would hardly be visible and would
/// take CPU time from the browser.
const FRAME_INTERVAL: Duration = Duration::from_millis(45);
/// Upper bound of the rest after a frame. The rest equals the encoding time, so that a viewer uses
/// at most half a core; the bound keeps the view moving when encoding is slow because the CPU is
/// busy.
const MAX_REST_DELAY: Duration = Duration::from_millis(200);
/// A round trip above which the quality is lowered.
const SLOW_ROUND_TRIP: Duration = Duration::from_millis(300);
/// A round trip below which the connection has room for a higher quality.
const FAST_ROUND_TRIP: Duration = Duration::from_millis(120);
/// Consecutive fast round trips before the quality is raised, so that it does not oscillate.
const FAST_FRAMES_TO_RAISE: u32 = 8;
/// The time the screen must be unchanged before low-quality areas are sent again at full quality.
const REFINE_DELAY: Duration = Duration::from_millis(500);

/// The next step for the frame loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextFrame {
    /// Send the changed areas.
    Changes(JpegQuality),
    /// Send the areas again that were sent below full quality: the screen is still.
    Refinement,
    /// Wait until then, or until the screen changes or a frame is acknowledged.
    Wait(Option<Instant>),
}

#[derive(Debug)]
pub(super) struct FramePacer {
    sequence: u32,
    /// When the current frame was started or, once it is sent, when that was.
    in_flight_since: Option<Instant>,
    not_before: Instant,
    quality: JpegQuality,
    fast_frames: u32,
    /// Since when the low-quality areas are unchanged.
    coarse_since: Option<Instant>,
}

impl FramePacer {
    /// Numbers frames from `sequence` + 1.
    pub(super) fn new(now: Instant, sequence: u32) -> Self {
        Self {
            sequence,
            in_flight_since: None,
            not_before: now,
            quality: JpegQuality::High,
            fast_frames: 0,
            coarse_since: None,
        }
    }

    pub(super) fn next_frame(&self, now: Instant, changed: bool) -> NextFrame {
        if self.in_flight_since.is_some() {
            return NextFrame::Wait(None);
        }
        let refine_at = self.coarse_since.map(|since| since + REFINE_DELAY);
        match (changed, refine_at) {
            (true, _) if now < self.not_before => NextFrame::Wait(Some(self.not_before)),
            (true, _) => NextFrame::Changes(self.quality),
            (false, Some(at)) if now < at => NextFrame::Wait(Some(at)),
            (false, Some(_)) => NextFrame::Refinement,
            (false, None) => NextFrame::Wait(None),
        }
    }

    /// Starts a frame and returns its sequence number.
    pub(super) fn start_frame(&mut self, now: Instant) -> u32 {
        self.sequence = self.sequence.wrapping_add(1);
        self.in_flight_since = Some(now);
        self.sequence
    }

    /// Records that the current frame was sent. `coarse` is whether the page now shows areas
    /// below full quality.
    pub(super) fn frame_sent(&mut self, now: Instant, coarse: bool) {
        if let Some(started_at) = self.in_flight_since.replace(now) {
            let encoding = now.saturating_duration_since(started_at);
            self.not_before = (started_at + FRAME_INTERVAL).max(now + encoding.min(MAX_REST_DELAY));
        }
        self.coarse_since = coarse.then_some(now);
    }

    /// Records that there was nothing to send.
    pub(super) fn frame_skipped(&mut self, now: Instant, coarse: bool) {
        self.coarse_since = coarse.then_some(now);
    }

    pub(super) fn is_in_flight(&self) -> bool {
        self.in_flight_since.is_some()
    }

    /// Records that the page has drawn a frame and adapts the quality to the round trip. Returns
    /// whether that frame was the one in flight.
    pub(super) fn acknowledge(&mut self, now: Instant, sequence: u32) -> bool {
        if sequence != self.sequence {
            return false;
        }
        let Some(sent_at) = self.in_flight_since.take() else {
            return false;
        };
        let round_trip = now.saturating_duration_since(sent_at);
        self.fast_frames = if round_trip < FAST_ROUND_TRIP {
            self.fast_frames + 1
        } else {
            0
        };
        if round_trip > SLOW_ROUND_TRIP {
            self.quality = self.quality.lower();
        } else if self.fast_frames >= FAST_FRAMES_TO_RAISE {
            self.quality = self.quality.higher();
            self.fast_frames = 0;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    struct Page {
        pacer: FramePacer,
        now: Instant,
    }

    impl Page {
        fn new() -> Self {
            let now = Instant::now();
            let pacer = FramePacer::new(now, 0);
            Self { pacer, now }
        }

        /// Sends a frame that is acknowledged after `round_trip`.
        fn frame(&mut self, round_trip: Duration) -> JpegQuality {
            let NextFrame::Changes(quality) = self.pacer.next_frame(self.now, true) else {
                panic!("no frame is due");
            };
            let sequence = self.pacer.start_frame(self.now);
            self.pacer
                .frame_sent(self.now, quality != JpegQuality::High);
            self.now += round_trip;
            assert!(self.pacer.acknowledge(self.now, sequence));
            self.now += FRAME_INTERVAL;
            quality
        }
    }

    #[test]
    fn next_frame_waits_for_the_acknowledgement_and_the_interval() {
        let mut page = Page::new();
        let start = page.now;
        assert_eq!(page.pacer.next_frame(start, false), NextFrame::Wait(None));
        let high = NextFrame::Changes(JpegQuality::High);
        assert_eq!(page.pacer.next_frame(start, true), high);
        let sequence = page.pacer.start_frame(start);
        page.pacer.frame_sent(start, false);
        let late = start + 100 * FRAME_INTERVAL;
        assert_eq!(page.pacer.next_frame(late, true), NextFrame::Wait(None));
        assert!(
            !page.pacer.acknowledge(start, sequence + 1),
            "another frame"
        );
        assert!(page.pacer.acknowledge(start + MS, sequence));
        assert!(
            !page.pacer.acknowledge(start + MS, sequence),
            "acknowledged before"
        );
        let due = start + FRAME_INTERVAL;
        let wait = NextFrame::Wait(Some(due));
        assert_eq!(page.pacer.next_frame(start + MS, true), wait);
        assert_eq!(page.pacer.next_frame(due, true), high);
    }

    #[test]
    fn slow_encoding_lowers_the_frame_rate() {
        let mut page = Page::new();
        let sequence = page.pacer.start_frame(page.now);
        let sent_at = page.now + 2 * FRAME_INTERVAL;
        page.pacer.frame_sent(sent_at, false);
        assert!(page.pacer.acknowledge(sent_at, sequence));
        let due = page.now + 4 * FRAME_INTERVAL;
        let wait = NextFrame::Wait(Some(due));
        assert_eq!(page.pacer.next_frame(sent_at, true), wait);

        let sequence = page.pacer.start_frame(due);
        let sent_at = due + 10 * MAX_REST_DELAY;
        page.pacer.frame_sent(sent_at, false);
        assert!(page.pacer.acknowledge(sent_at, sequence));
        let due = sent_at + MAX_REST_DELAY;
        let wait = NextFrame::Wait(Some(due));
        assert_eq!(page.pacer.next_frame(sent_at, true), wait);
    }

    #[test]
    fn acknowledgement_of_an_unsent_frame_is_ignored() {
        let mut page = Page::new();
        assert!(!page.pacer.acknowledge(page.now, 0));
        assert!(!page.pacer.acknowledge(page.now, 1));
    }

    #[test]
    fn quality_drops_on_a_slow_connection_and_recovers_on_a_fast_one() {
        let mut page = Page::new();
        let slow = SLOW_ROUND_TRIP + MS;
        assert_eq!(page.frame(slow), JpegQuality::High);
        assert_eq!(page.frame(slow), JpegQuality::Medium);
        assert_eq!(page.frame(slow), JpegQuality::Low);
        assert_eq!(page.frame(slow), JpegQuality::Low);
        for _ in 0..FAST_FRAMES_TO_RAISE {
            assert_eq!(page.frame(MS), JpegQuality::Low);
        }
        assert_eq!(page.frame(FAST_ROUND_TRIP + MS), JpegQuality::Medium);
    }

    #[test]
    fn low_quality_areas_are_refined_once_the_screen_is_still() {
        let mut page = Page::new();
        page.frame(SLOW_ROUND_TRIP + MS);
        let sequence = page.pacer.start_frame(page.now);
        page.pacer.frame_sent(page.now, true);
        assert!(page.pacer.acknowledge(page.now, sequence));
        let still = page.now + REFINE_DELAY;
        let wait = NextFrame::Wait(Some(still));
        assert_eq!(page.pacer.next_frame(page.now, false), wait);
        assert_eq!(page.pacer.next_frame(still, false), NextFrame::Refinement);
        // Changes take precedence.
        let changes = NextFrame::Changes(JpegQuality::Medium);
        assert_eq!(page.pacer.next_frame(still, true), changes);
        let sequence = page.pacer.start_frame(still);
        page.pacer.frame_sent(still, false);
        assert!(page.pacer.acknowledge(still, sequence));
        assert_eq!(page.pacer.next_frame(still, false), NextFrame::Wait(None));
    }
}

//! When a viewer gets its next frame, and how fine.
//!
//! One frame is under way at a time: the next is made once the page has drawn the last, of what the screen is by then. So nobody
//! falls behind, however slow the line, and nothing is ever queued.

use std::time::{Duration, Instant};

use crate::system::media::jpeg::Fineness;

/// 22 frames a second at most: more would hardly be seen, and cost the browser its processor.
const INTERVAL: Duration = Duration::from_millis(45);
/// After a frame nothing is made for as long as it took to make, so that half of a core is the most; but for no longer than this:
/// where making takes long because others want the processor, the picture is not to stand still.
const LONGEST_REST: Duration = Duration::from_millis(200);
/// A frame that takes longer until it is drawn is too much for the line.
const SLOW: Duration = Duration::from_millis(300);
/// One that takes less leaves room for a finer one.
const FAST: Duration = Duration::from_millis(120);
/// So many in a row, so that it does not change with every frame.
const FAST_IN_A_ROW: u32 = 8;
/// Once nothing has changed for so long, what was sent coarse is sent fine.
const STILL: Duration = Duration::from_millis(500);

/// What is to be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Send what has changed.
    Changes(Fineness),
    /// Nothing has changed for a while: send what was sent coarse once more.
    Refinement,
    /// Look again then, or once something changes or is drawn.
    Wait(Option<Instant>),
}

#[derive(Debug)]
pub struct Pace {
    sequence: u32,
    under_way: Option<Instant>,
    not_before: Instant,
    fineness: Fineness,
    fast: u32,
    /// Since when nothing has changed of what was sent coarse.
    coarse_since: Option<Instant>,
}

impl Pace {
    /// Frames are counted on from `sequence`.
    pub fn new(now: Instant, sequence: u32) -> Self {
        Self {
            sequence,
            under_way: None,
            not_before: now,
            fineness: Fineness::Fine,
            fast: 0,
            coarse_since: None,
        }
    }

    pub fn turn(&self, now: Instant, changed: bool) -> Turn {
        if self.under_way.is_some() {
            return Turn::Wait(None);
        }
        let refined_at = self.coarse_since.map(|since| since + STILL);
        match (changed, refined_at) {
            (true, _) if now < self.not_before => Turn::Wait(Some(self.not_before)),
            (true, _) => Turn::Changes(self.fineness),
            (false, Some(at)) if now < at => Turn::Wait(Some(at)),
            (false, Some(_)) => Turn::Refinement,
            (false, None) => Turn::Wait(None),
        }
    }

    /// A frame is being made; its number.
    pub fn begin(&mut self, now: Instant) -> u32 {
        self.sequence = self.sequence.wrapping_add(1);
        self.under_way = Some(now);
        self.sequence
    }

    /// It is sent; whether the page has now what is to be sent fine later.
    pub fn sent(&mut self, now: Instant, coarse: bool) {
        if let Some(began) = self.under_way.replace(now) {
            let made = now.saturating_duration_since(began);
            self.not_before = (began + INTERVAL).max(now + made.min(LONGEST_REST));
        }
        self.coarse_since = coarse.then_some(now);
    }

    /// There was nothing to send.
    pub fn nothing(&mut self, now: Instant, coarse: bool) {
        self.coarse_since = coarse.then_some(now);
    }

    pub fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// The page has drawn a frame. Says whether it is the one that is under way.
    pub fn seen(&mut self, now: Instant, sequence: u32) -> bool {
        if sequence != self.sequence {
            return false;
        }
        let Some(sent) = self.under_way.take() else {
            return false;
        };
        let took = now.saturating_duration_since(sent);
        self.fast = if took < FAST { self.fast + 1 } else { 0 };
        if took > SLOW {
            self.fineness = self.fineness.coarser();
        } else if self.fast >= FAST_IN_A_ROW {
            self.fineness = self.fineness.finer();
            self.fast = 0;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    struct Page {
        pace: Pace,
        now: Instant,
    }

    impl Page {
        fn new() -> Self {
            let now = Instant::now();
            let pace = Pace::new(now, 0);
            Self { pace, now }
        }

        /// Sends a frame that is drawn after so long.
        fn frame(&mut self, took: Duration) -> Fineness {
            let Turn::Changes(fineness) = self.pace.turn(self.now, true) else {
                panic!("not yet");
            };
            let sequence = self.pace.begin(self.now);
            self.pace.sent(self.now, fineness != Fineness::Fine);
            self.now += took;
            assert!(self.pace.seen(self.now, sequence));
            self.now += INTERVAL;
            fineness
        }
    }

    #[test]
    fn the_next_frame_waits_for_the_last_and_for_its_time() {
        let mut page = Page::new();
        let start = page.now;
        assert_eq!(page.pace.turn(start, false), Turn::Wait(None));
        assert_eq!(page.pace.turn(start, true), Turn::Changes(Fineness::Fine));
        let sequence = page.pace.begin(start);
        page.pace.sent(start, false);
        let late = start + 100 * INTERVAL;
        assert_eq!(page.pace.turn(late, true), Turn::Wait(None));
        assert!(!page.pace.seen(start, sequence + 1), "another one");
        assert!(page.pace.seen(start + MS, sequence));
        assert!(!page.pace.seen(start + MS, sequence), "once");
        let due = start + INTERVAL;
        assert_eq!(page.pace.turn(start + MS, true), Turn::Wait(Some(due)));
        assert_eq!(page.pace.turn(due, true), Turn::Changes(Fineness::Fine));
    }

    #[test]
    fn frames_that_take_long_to_make_are_rare() {
        let mut page = Page::new();
        let sequence = page.pace.begin(page.now);
        let made = page.now + 2 * INTERVAL;
        page.pace.sent(made, false);
        assert!(page.pace.seen(made, sequence));
        let due = page.now + 4 * INTERVAL;
        assert_eq!(page.pace.turn(made, true), Turn::Wait(Some(due)));

        let sequence = page.pace.begin(due);
        let made = due + 10 * LONGEST_REST;
        page.pace.sent(made, false);
        assert!(page.pace.seen(made, sequence));
        let due = made + LONGEST_REST;
        assert_eq!(page.pace.turn(made, true), Turn::Wait(Some(due)));
    }

    #[test]
    fn a_page_cannot_tell_of_a_frame_that_was_never_sent() {
        let mut page = Page::new();
        assert!(!page.pace.seen(page.now, 0));
        assert!(!page.pace.seen(page.now, 1));
    }

    #[test]
    fn a_slow_line_gets_coarser_frames_and_a_fast_one_finer_again() {
        let mut page = Page::new();
        assert_eq!(page.frame(SLOW + MS), Fineness::Fine);
        assert_eq!(page.frame(SLOW + MS), Fineness::Medium);
        assert_eq!(page.frame(SLOW + MS), Fineness::Coarse);
        assert_eq!(page.frame(SLOW + MS), Fineness::Coarse);
        for _ in 0..FAST_IN_A_ROW {
            assert_eq!(page.frame(MS), Fineness::Coarse);
        }
        assert_eq!(page.frame(FAST + MS), Fineness::Medium);
    }

    #[test]
    fn what_was_sent_coarse_is_sent_fine_once_all_is_still() {
        let mut page = Page::new();
        page.frame(SLOW + MS);
        let sequence = page.pace.begin(page.now);
        page.pace.sent(page.now, true);
        assert!(page.pace.seen(page.now, sequence));
        let still = page.now + STILL;
        assert_eq!(page.pace.turn(page.now, false), Turn::Wait(Some(still)));
        assert_eq!(page.pace.turn(still, false), Turn::Refinement);
        // What changes comes first.
        assert_eq!(page.pace.turn(still, true), Turn::Changes(Fineness::Medium));
        let sequence = page.pace.begin(still);
        page.pace.sent(still, false);
        assert!(page.pace.seen(still, sequence));
        assert_eq!(page.pace.turn(still, false), Turn::Wait(None));
    }
}

//! The progress of a batch.

use std::time::Duration;

use super::{PlayError, PlayResult};

/// The actions of a batch that were played. Most events are sent without waiting for each, so the
/// last actions may not be confirmed yet.
#[derive(Debug)]
pub struct Progress {
    played: Vec<PlayedAction>,
    /// The number of events that are known to be processed.
    confirmed_events: u64,
}

#[derive(Debug)]
struct PlayedAction {
    duration: Duration,
    /// The number of events sent by its end.
    sent_events: u64,
}

impl Progress {
    /// Returns the progress of a batch of that many actions.
    pub fn new(actions: usize) -> Self {
        Self {
            played: Vec::with_capacity(actions),
            confirmed_events: 0,
        }
    }

    /// Records a played action.
    pub fn action_played(&mut self, duration: Duration, sent_events: u64) {
        self.played.push(PlayedAction {
            duration,
            sent_events,
        });
    }

    pub fn confirm(&mut self, events: u64) {
        self.confirmed_events = events;
    }

    /// Returns the result of a complete batch. `extra` is the time its confirmation took, which
    /// counts as the last action's.
    pub fn finished(mut self, extra: Duration) -> PlayResult {
        if let Some(last) = self.played.last_mut() {
            last.duration += extra;
        }
        self.into_result(None)
    }

    /// Returns the result of a batch that failed `elapsed` after its last recorded action. The
    /// first unconfirmed action counts as the failed one.
    pub fn failed(mut self, error: PlayError, elapsed: Duration) -> PlayResult {
        let is_confirmed = |action: &&PlayedAction| action.sent_events <= self.confirmed_events;
        let confirmed = self.played.iter().take_while(is_confirmed).count();
        let unconfirmed: Duration = self
            .played
            .drain(confirmed..)
            .map(|action| action.duration)
            .sum();
        self.into_result(Some((error, unconfirmed + elapsed)))
    }

    fn into_result(self, failure: Option<(PlayError, Duration)>) -> PlayResult {
        let durations = self.played.into_iter().map(|action| action.duration);
        PlayResult {
            durations: durations.collect(),
            failure,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn unconfirmed_actions_are_not_reported_as_done() {
        let mut progress = Progress::new(4);
        for sent in [1, 256, 256, 300] {
            progress.action_played(MS, sent);
        }
        progress.confirm(256);
        let result = progress.failed(PlayError::NoSpareKeycode, MS);
        assert_eq!(result.durations, [MS; 3]);
        assert!(matches!(
            result.failure,
            Some((PlayError::NoSpareKeycode, elapsed)) if elapsed == 2 * MS
        ));
    }

    #[test]
    fn last_action_includes_the_confirmation() {
        let mut progress = Progress::new(2);
        progress.action_played(MS, 1);
        progress.action_played(MS, 2);
        let result = progress.finished(3 * MS);
        assert_eq!(result.durations, [MS, 4 * MS]);
        assert!(result.failure.is_none());
    }
}

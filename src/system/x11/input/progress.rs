//! How far a batch has come.

use std::time::Duration;

use super::{PlayError, Played};

/// What was done of it. Events of the pointer are sent without a wait for each, so that the last of it may not be sure yet.
#[derive(Debug)]
pub struct Progress {
    done: Vec<Done>,
    /// So many events are known to have been taken.
    confirmed: u64,
}

#[derive(Debug)]
struct Done {
    took: Duration,
    /// So many events had been sent by its end.
    sent: u64,
}

impl Progress {
    pub fn of(actions: usize) -> Self {
        Self {
            done: Vec::with_capacity(actions),
            confirmed: 0,
        }
    }

    /// One action more.
    pub fn done(&mut self, took: Duration, sent: u64) {
        self.done.push(Done { took, sent });
    }

    pub fn confirm(&mut self, events: u64) {
        self.confirmed = events;
    }

    /// All of it was done, and that was sure so much later.
    pub fn finished(mut self, longer: Duration) -> Played {
        if let Some(last) = self.done.last_mut() {
            last.took += longer;
        }
        self.played(None)
    }

    /// The first that is not sure to have been done is the one that has failed, `longer` after the last was noted.
    pub fn failed(mut self, error: PlayError, longer: Duration) -> Played {
        let is_sure = |done: &&Done| done.sent <= self.confirmed;
        let sure = self.done.iter().take_while(is_sure).count();
        let unsure: Duration = self.done.drain(sure..).map(|done| done.took).sum();
        self.played(Some((error, unsure + longer)))
    }

    fn played(self, failure: Option<(PlayError, Duration)>) -> Played {
        Played {
            took: self.done.into_iter().map(|done| done.took).collect(),
            failure,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn what_was_not_confirmed_is_not_told_as_done() {
        let mut progress = Progress::of(4);
        for sent in [1, 256, 256, 300] {
            progress.done(MS, sent);
        }
        progress.confirm(256);
        let played = progress.failed(PlayError::NoKey, MS);
        assert_eq!(played.took, [MS; 3]);
        assert!(matches!(played.failure, Some((PlayError::NoKey, took)) if took == 2 * MS));
    }

    #[test]
    fn the_last_action_takes_until_all_is_sure() {
        let mut progress = Progress::of(2);
        progress.done(MS, 1);
        progress.done(MS, 2);
        let played = progress.finished(3 * MS);
        assert_eq!(played.took, [MS, 4 * MS]);
        assert!(played.failure.is_none());
    }
}

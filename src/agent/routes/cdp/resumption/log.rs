//! The messages that the client has not acknowledged.

use std::collections::VecDeque;

use bytes::Bytes;
use metrics::counter;
use serde::{Deserialize, Serialize};

use crate::system::process::handover::PassedBytes;

/// The bytes beyond which no further message is taken from Chromium's queue until the client
/// acknowledges some.
const MAX_BYTES: usize = 16 << 20;
/// The same for their number.
const MAX_MESSAGES: usize = 16_384;

/// A queue of numbered messages. The first one has the number 1.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Log {
    /// The number of the last acknowledged message.
    acknowledged: u64,
    /// The number of the last message that was sent.
    sent: u64,
    /// The messages after the last acknowledged one.
    messages: VecDeque<PassedBytes>,
    bytes: usize,
}

/// The client acknowledges a message that was not sent.
#[derive(Debug, PartialEq)]
pub(super) struct NotSent;

impl Log {
    pub(super) fn has_room(&self) -> bool {
        self.bytes < MAX_BYTES && self.messages.len() < MAX_MESSAGES
    }

    /// Adds a message, of any length.
    pub(super) fn push(&mut self, message: Bytes) {
        self.bytes += message.len();
        self.messages.push_back(message.into());
    }

    /// Returns the message with the number after `number`.
    pub(super) fn after(&self, number: u64) -> Option<&Bytes> {
        let index = number.checked_sub(self.acknowledged)?;
        let message = self.messages.get(usize::try_from(index).ok()?);
        message.map(|message| &message.0)
    }

    /// Returns the message with the number after `number`, which is sent now.
    pub(super) fn send_after(&mut self, number: u64) -> Option<Bytes> {
        let message = self.after(number).cloned()?;
        self.sent = self.sent.max(number + 1);
        counter!("berth_cdp_messages_total", "to" => "client").increment(1);
        counter!("berth_cdp_bytes_total", "to" => "client").increment(message.len() as u64);
        Some(message)
    }

    /// Whether the client may have received the message with this number, and all after it are
    /// here.
    pub(super) fn can_resume_after(&self, number: u64) -> bool {
        (self.acknowledged..=self.sent).contains(&number)
    }

    /// Removes the messages up to a number. One that was acknowledged before has no effect.
    pub(super) fn acknowledge(&mut self, number: u64) -> Result<(), NotSent> {
        if number > self.sent {
            return Err(NotSent);
        }
        while self.acknowledged < number {
            let message = self.messages.pop_front().unwrap_or_default();
            self.bytes -= message.0.len();
            self.acknowledged += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(messages: &[&'static str]) -> Log {
        let mut log = Log::default();
        for message in messages {
            log.push(Bytes::from_static(message.as_bytes()));
        }
        log
    }

    #[test]
    fn messages_are_kept_until_they_are_acknowledged() {
        let mut log = log(&["a", "b", "c"]);
        assert_eq!(log.after(0).unwrap(), "a");
        assert_eq!(log.after(2).unwrap(), "c");
        assert_eq!(log.after(3), None);
        assert_eq!(log.acknowledge(1), Err(NotSent));
        assert!(!log.can_resume_after(1));
        for number in 0..3 {
            assert_eq!(log.send_after(number).as_ref(), log.after(number));
        }
        log.acknowledge(2).unwrap();
        log.acknowledge(1).unwrap();
        assert_eq!((log.after(0), log.after(1)), (None, None));
        assert_eq!(log.after(2).unwrap(), "c");
        for (number, expected) in [(1, false), (2, true), (3, true), (4, false)] {
            assert_eq!(log.can_resume_after(number), expected, "{number}");
        }
        assert_eq!(log.acknowledge(4), Err(NotSent));
        log.acknowledge(3).unwrap();
        assert_eq!(log.bytes, 0);
    }

    #[test]
    fn full_log_has_room_again_after_an_acknowledgement() {
        let mut log = Log::default();
        log.push(vec![0; MAX_BYTES].into());
        assert!(!log.has_room());
        log.send_after(0).unwrap();
        log.acknowledge(1).unwrap();
        assert!(log.has_room());
        for _ in 0..MAX_MESSAGES {
            log.push(Bytes::new());
        }
        assert!(!log.has_room());
    }
}

//! Hints from one control process to the others about what it has changed.
//!
//! A hint only makes another process look at the database earlier. It may be late, repeated or
//! lost: what it is about is also looked at every few seconds.

use std::fmt;

use tokio::sync::mpsc;

use super::Store;
use crate::api::ids::{BrowserId, FlowId, PoolId};

/// The most hints that wait to be sent. Further ones are dropped.
pub(super) const QUEUE: usize = 1024;

/// A change by a process.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Hint {
    /// A key or a project, which may have lost its access.
    Access,
    /// A host, which may be ready for a session.
    Hosts,
    /// A browser, which has ended.
    Browser(BrowserId),
    /// A pool, which may have an available browser or another first waiter.
    Pool(PoolId),
    /// A login flow, which has another state.
    AuthFlow(FlowId),
}

/// A message of another process, or about its loss.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    Hint(Hint),
    /// The connection was interrupted, so that anything may have changed.
    Missed,
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Hint::Access => f.write_str("access"),
            Hint::Hosts => f.write_str("hosts"),
            Hint::Browser(id) => write!(f, "browser {id}"),
            Hint::Pool(id) => write!(f, "pool {id}"),
            Hint::AuthFlow(id) => write!(f, "auth_flow {id}"),
        }
    }
}

impl Hint {
    /// Reads a hint. Returns `None` if it is unknown, such as that of a newer program.
    pub(super) fn parse(text: &str) -> Option<Hint> {
        match text.split_once(' ') {
            None if text == "access" => Some(Hint::Access),
            None if text == "hosts" => Some(Hint::Hosts),
            Some(("browser", id)) => id.parse().ok().map(Hint::Browser),
            Some(("pool", id)) => id.parse().ok().map(Hint::Pool),
            Some(("auth_flow", id)) => id.parse().ok().map(Hint::AuthFlow),
            _ => None,
        }
    }
}

/// Sends hints from the places that change something.
pub(super) type HintSender = mpsc::Sender<Hint>;

impl Store {
    /// Notifies the other processes of a change that is committed, if there may be any.
    pub fn hint(&self, hint: Hint) {
        if let Some(sender) = &self.hints
            && sender.try_send(hint).is_err()
        {
            tracing::debug!("dropped a hint to other control processes");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hint_is_read_as_it_was_written() {
        for hint in [
            Hint::Access,
            Hint::Hosts,
            Hint::Browser(BrowserId::generate()),
            Hint::Pool(PoolId::generate()),
            Hint::AuthFlow(FlowId::generate()),
        ] {
            assert_eq!(Hint::parse(&hint.to_string()), Some(hint));
        }
        for text in ["", "browser", "browser x", "hosts now"] {
            assert_eq!(Hint::parse(text), None, "{text}");
        }
    }
}

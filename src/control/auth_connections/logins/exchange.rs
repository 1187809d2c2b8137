//! Exchanges the codes of the hosted login page, with a limit on attempts.

use std::{collections::HashMap, net::IpAddr, time::Duration};

use chrono::Utc;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{
    Logins,
    service::{LoginError, digest_of},
};
use crate::{api::ids::AuthConnectionId, control::store::AuthFlowRow, rate_limit::RateLimit};

/// The average interval between the attempts of one address at one connection.
const CONNECTION_INTERVAL: Duration = Duration::from_secs(6);
/// The average interval between the attempts of one address.
const ADDRESS_INTERVAL: Duration = Duration::from_millis(500);
/// The time by which attempts may run ahead of their average rate: 10 at a connection, 120 in all.
const BURST_WINDOW: Duration = Duration::from_secs(60);
/// The most addresses and connections with state. Beyond it, those without recent attempts are
/// forgotten, or else all.
const MAX_ENTRIES: usize = 16_384;

/// An attempt to exchange a code.
#[derive(Debug, Clone)]
pub struct ExchangeAttempt {
    /// `None` for a text that is no id.
    pub connection: Option<AuthConnectionId>,
    /// The address of the client.
    pub address: IpAddr,
}

/// The attempts to exchange codes, in the memory of this process.
#[derive(Default)]
pub(super) struct ExchangeLimits {
    entries: Mutex<HashMap<(IpAddr, Option<AuthConnectionId>), RateLimit>>,
}

impl ExchangeLimits {
    /// Counts an attempt. Returns whether it is within the limits.
    fn permits(&self, attempt: &ExchangeAttempt, now: Instant) -> bool {
        let mut entries = self.entries.lock();
        if entries.len() >= MAX_ENTRIES {
            entries.retain(|_, limit| !limit.is_idle(now));
            if entries.len() >= MAX_ENTRIES {
                entries.clear();
            }
        }
        let address = attempt.address;
        let of_address = entries
            .entry((address, None))
            .or_insert_with(|| RateLimit::new(ADDRESS_INTERVAL, BURST_WINDOW));
        if !of_address.try_acquire(now) {
            return false;
        }
        let Some(connection) = &attempt.connection else {
            return true;
        };
        let of_connection = entries
            .entry((address, Some(connection.clone())))
            .or_insert_with(|| RateLimit::new(CONNECTION_INTERVAL, BURST_WINDOW));
        of_connection.try_acquire(now)
    }
}

impl Logins {
    /// Finds the login that a code of the hosted login page belongs to. Counts as an attempt.
    pub async fn find_code(
        &self,
        attempt: &ExchangeAttempt,
        code: &str,
    ) -> Result<AuthFlowRow, LoginError> {
        if !self.inner.exchanges.permits(attempt, Instant::now()) {
            return Err(LoginError::TooManyAttempts);
        }
        // All that are not valid are looked for, so that they are refused alike.
        let unknown = AuthConnectionId::generate();
        let connection = attempt.connection.as_ref().unwrap_or(&unknown);
        let store = &self.inner.parts.store;
        let digest = digest_of(code);
        let found = store.find_handoff_code(connection, &digest, Utc::now());
        found.await?.ok_or(LoginError::InvalidCode)
    }

    /// Uses the code of a login.
    pub async fn use_code(&self, row: &AuthFlowRow, code: &str) -> Result<(), LoginError> {
        let store = &self.inner.parts.store;
        match store.use_handoff_code(row.id(), &digest_of(code)).await? {
            true => Ok(()),
            false => Err(LoginError::InvalidCode),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_limited_for_each_connection_and_address() {
        let limits = ExchangeLimits::default();
        let now = Instant::now();
        let attempt = |connection: Option<&AuthConnectionId>, last: u8| ExchangeAttempt {
            connection: connection.cloned(),
            address: IpAddr::from([192, 0, 2, last]),
        };
        let (first, second) = (AuthConnectionId::generate(), AuthConnectionId::generate());
        let permitted = |attempt: &ExchangeAttempt, time| {
            let permits = (0..1000).map(|_| limits.permits(attempt, time));
            permits.filter(|permits| *permits).count()
        };
        assert_eq!(permitted(&attempt(Some(&first), 1), now), 10);
        // Refused attempts count for the address, too.
        assert_eq!(permitted(&attempt(Some(&second), 1), now), 0);
        assert_eq!(permitted(&attempt(Some(&first), 2), now), 10);
        assert_eq!(permitted(&attempt(None, 3), now), 120);
        let later = now + Duration::from_secs(60);
        assert_eq!(permitted(&attempt(Some(&first), 1), later), 10);
    }

    #[test]
    fn state_is_bounded() {
        let limits = ExchangeLimits::default();
        let now = Instant::now();
        for number in 0..2 * MAX_ENTRIES {
            let [_, a, b, c] = u32::try_from(number).unwrap().to_be_bytes();
            let attempt = ExchangeAttempt {
                connection: None,
                address: IpAddr::from([10, a, b, c]),
            };
            assert!(limits.permits(&attempt, now));
        }
        assert!(limits.entries.lock().len() <= MAX_ENTRIES);
    }
}

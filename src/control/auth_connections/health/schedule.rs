//! The schedule of a connection's health checks, and of its logins without a person.
//!
//! ```text
//! login ──▶ AUTHENTICATED ──▶ check ──logged out──▶ check again ──logged out──▶ NEEDS_AUTH
//!                ▲              │                        │                         │
//!                ├──logged in───┴──────logged in─────────┘              reauth_at ▼
//!                ├◀──────────────────── SUCCESS ──────────────────────── login ◀──┐
//!                └◀──────────── a check finds it logged in               │ failure│
//!                                                                        ├────────┘ back-off
//!                                                                        ▼
//!                                                                     stopped
//! ```

use chrono::{DateTime, TimeDelta, Utc};

use crate::{
    api::{auth_connections::AuthConnectionStatus, auth_flow::FlowErrorCode},
    control::auth_connections::flow::SessionExpiry,
};

/// The delay before a failed check is repeated, unless the interval is shorter.
const REPEAT_DELAY: TimeDelta = TimeDelta::minutes(1);
/// The share of an interval by which checks are moved, so that they spread.
const JITTER: f64 = 0.1;
/// The delay after the first failure of a login without a person, and the longest one.
const REAUTH_DELAY: (TimeDelta, TimeDelta) = (TimeDelta::minutes(5), TimeDelta::hours(12));
/// The factor by which the delay grows with each failure.
const REAUTH_DELAY_FACTOR: i32 = 4;
/// The time after which logins that fail are given up.
const REAUTH_TIMEOUT: TimeDelta = TimeDelta::days(3);
/// The delay before a login that has no credential is considered again.
const NO_CREDENTIAL_DELAY: TimeDelta = TimeDelta::minutes(15);
/// The longest time before a known expiry at which the warning is due.
const WARNING_INTERVAL: TimeDelta = TimeDelta::hours(24);
/// The share of the lifetime of a session in which the warning is due.
const WARNING_SHARE: i32 = 4;
/// The delay of the check after a known expiry.
const EXPIRY_DELAY: TimeDelta = TimeDelta::seconds(5);

/// The health of a connection: what was found, and what is due when.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConnectionHealth {
    /// The next health check. `None` before the first login.
    pub check_at: Option<DateTime<Utc>>,
    /// The checks in a row that have found the profile logged out.
    pub failed_checks: u32,
    /// The next login without a person.
    pub reauth_at: Option<DateTime<Utc>>,
    /// The logins without a person in a row that have failed.
    pub reauth_failures: u32,
    pub reauth_failing_since: Option<DateTime<Utc>>,
    /// Why there is no further login without a person until the settings or the credential change.
    pub reauth_stopped: Option<FlowErrorCode>,
    /// The known expiry of the session.
    pub expiry: Option<SessionExpiry>,
    /// The time at which the warning of the expiry is due, until it was sent.
    pub warn_at: Option<DateTime<Utc>>,
    /// The number of changes that are stored.
    pub revision: u64,
}

/// The result of a health check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckResult {
    LoggedIn {
        /// The expiry of the cookie that ends the session, if it is known.
        expires_at: Option<DateTime<Utc>>,
    },
    LoggedOut,
    /// The page shows neither, or there is none. The status stays.
    Unknown(Option<FlowErrorCode>),
}

/// The circumstances of a change of the schedule.
#[derive(Debug, Clone, Copy)]
pub struct ScheduleContext {
    /// The setting of the connection.
    pub interval: TimeDelta,
    pub now: DateTime<Utc>,
    /// A random number from 0 to 1.
    pub random: f64,
}

impl ScheduleContext {
    /// Returns the context of a change now, with an interval in seconds.
    #[must_use]
    pub fn new(interval_seconds: u32, now: DateTime<Utc>) -> ScheduleContext {
        ScheduleContext {
            interval: TimeDelta::seconds(interval_seconds.into()),
            now,
            random: fastrand::f64(),
        }
    }

    /// Returns a time about `delay` from now, at most a tenth earlier or later.
    fn after(&self, delay: TimeDelta) -> DateTime<Utc> {
        let share = 1.0 + JITTER * (2.0 * self.random - 1.0);
        let milliseconds = delay.num_milliseconds() as f64 * share;
        self.now + TimeDelta::milliseconds(milliseconds as i64)
    }
}

impl ConnectionHealth {
    /// Returns the health after a login.
    #[must_use]
    pub fn after_login(&self, expiry: Option<SessionExpiry>, context: ScheduleContext) -> Self {
        ConnectionHealth {
            revision: self.revision,
            ..ConnectionHealth::default()
        }
        .with_expiry(expiry, context)
        .with_next_check(context)
    }

    /// Returns the status and the health after a check of a connection with a status.
    #[must_use]
    pub fn after_check(
        &self,
        status: AuthConnectionStatus,
        result: &CheckResult,
        context: ScheduleContext,
    ) -> (AuthConnectionStatus, Self) {
        use AuthConnectionStatus::{Authenticated, NeedsAuth};
        let mut next = self.clone();
        match result {
            CheckResult::LoggedIn { expires_at } => {
                // A rejected credential is not entered again because of a check.
                (next.failed_checks, next.reauth_at) = (0, None);
                let newer = self.expiry.clone().zip(*expires_at);
                let newer = newer.map(|(known, at)| SessionExpiry { at, ..known });
                // The warning of a known one is due, or was sent.
                if newer.is_some() && newer != self.expiry {
                    next = next.with_expiry(newer, context);
                }
                (Authenticated, next.with_next_check(context))
            }
            CheckResult::LoggedOut if status == Authenticated && self.failed_checks == 0 => {
                next.failed_checks = 1;
                next.check_at = Some(context.after(REPEAT_DELAY.min(context.interval)));
                (status, next)
            }
            CheckResult::LoggedOut => {
                next.failed_checks = next.failed_checks.saturating_add(1);
                if status == Authenticated && next.reauth_stopped.is_none() {
                    next.reauth_at = Some(context.now);
                }
                (next.expiry, next.warn_at) = (None, None);
                (NeedsAuth, next.with_next_check(context))
            }
            CheckResult::Unknown(_) => (status, next.with_next_check(context)),
        }
    }

    /// Returns the health after a login without a person has failed. If another one is due, because
    /// the credential has changed meanwhile, that stays so.
    #[must_use]
    pub fn after_failed_reauth(&self, error: FlowErrorCode, context: ScheduleContext) -> Self {
        if self.reauth_at.is_some() {
            return self.clone();
        }
        let since = self.reauth_failing_since.unwrap_or(context.now);
        let is_given_up = needs_person(error) || context.now - since >= REAUTH_TIMEOUT;
        ConnectionHealth {
            reauth_at: (!is_given_up).then(|| context.after(reauth_delay(self.reauth_failures))),
            reauth_failures: self.reauth_failures.saturating_add(1),
            reauth_failing_since: Some(since),
            reauth_stopped: is_given_up.then_some(error),
            ..self.clone()
        }
    }

    /// Returns the health after a change of the settings or of the credential: what has failed is
    /// attempted again.
    #[must_use]
    pub fn after_change(&self, status: AuthConnectionStatus, context: ScheduleContext) -> Self {
        let has_logged_in = self.check_at.is_some();
        let needs_auth = has_logged_in && status == AuthConnectionStatus::NeedsAuth;
        let next = ConnectionHealth {
            reauth_at: needs_auth.then_some(context.now),
            reauth_failures: 0,
            reauth_failing_since: None,
            reauth_stopped: None,
            ..self.clone()
        };
        next.rescheduled(context)
    }

    /// Returns the health with another interval of the checks.
    #[must_use]
    pub fn rescheduled(&self, context: ScheduleContext) -> Self {
        match self.check_at {
            Some(_) => self.clone().with_next_check(context),
            None => self.clone(),
        }
    }

    /// Returns the health of a connection that has no credential for the login that is due.
    #[must_use]
    pub fn without_credential(&self, context: ScheduleContext) -> Self {
        ConnectionHealth {
            reauth_at: Some(context.after(NO_CREDENTIAL_DELAY)),
            ..self.clone()
        }
    }

    /// Returns the health after the warning of the expiry.
    #[must_use]
    pub fn after_warning(&self) -> Self {
        ConnectionHealth {
            warn_at: None,
            ..self.clone()
        }
    }

    fn with_next_check(self, context: ScheduleContext) -> Self {
        let regular = context.after(context.interval);
        let at_expiry = self.expiry.as_ref().map(|expiry| expiry.at + EXPIRY_DELAY);
        let at_expiry = at_expiry.filter(|at| *at > context.now);
        ConnectionHealth {
            check_at: Some(at_expiry.map_or(regular, |at| at.min(regular))),
            ..self
        }
    }

    fn with_expiry(self, expiry: Option<SessionExpiry>, context: ScheduleContext) -> Self {
        let warn_at = expiry.as_ref().map(|expiry| {
            let lifetime = expiry.at - context.now;
            expiry.at - (lifetime / WARNING_SHARE).clamp(TimeDelta::zero(), WARNING_INTERVAL)
        });
        ConnectionHealth {
            expiry,
            warn_at,
            ..self
        }
    }
}

/// Returns whether another attempt cannot succeed, or may lock the account.
fn needs_person(error: FlowErrorCode) -> bool {
    matches!(
        error,
        FlowErrorCode::Canceled
            | FlowErrorCode::RefusedBySite
            | FlowErrorCode::CredentialRejected
            | FlowErrorCode::InputRequired
            | FlowErrorCode::ExternalActionRequired
            | FlowErrorCode::OriginNotPermitted
            | FlowErrorCode::InternalAddress
    )
}

/// Returns the delay of the next attempt after a number of failures before the last one.
fn reauth_delay(failures: u32) -> TimeDelta {
    let (first, longest) = REAUTH_DELAY;
    let mut delay = first;
    for _ in 0..failures {
        if delay >= longest {
            break;
        }
        delay = (delay * REAUTH_DELAY_FACTOR).min(longest);
    }
    delay
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    use AuthConnectionStatus::{Authenticated, NeedsAuth};

    fn at(minutes: i64) -> ScheduleContext {
        ScheduleContext {
            interval: TimeDelta::hours(1),
            now: DateTime::UNIX_EPOCH + TimeDelta::minutes(minutes),
            random: 0.5,
        }
    }

    fn minute(minutes: i64) -> Option<DateTime<Utc>> {
        Some(at(minutes).now)
    }

    fn logged_in() -> ConnectionHealth {
        ConnectionHealth::default().after_login(None, at(0))
    }

    #[test]
    fn failed_check_is_repeated_before_the_status_changes() {
        let health = logged_in();
        assert_eq!(health.check_at, minute(60));
        let out = CheckResult::LoggedOut;
        let (status, once) = health.after_check(Authenticated, &out, at(60));
        assert_eq!((status, once.check_at), (Authenticated, minute(61)));
        assert_eq!(once.reauth_at, None);
        let (status, twice) = once.after_check(status, &out, at(61));
        assert_eq!((status, twice.check_at), (NeedsAuth, minute(121)));
        assert_eq!(twice.reauth_at, minute(61));
        // A later one begins no further login.
        let begun = ConnectionHealth {
            reauth_at: None,
            ..twice
        };
        let (status, third) = begun.after_check(status, &out, at(121));
        assert_eq!((status, third.reauth_at), (NeedsAuth, None));
    }

    #[test]
    fn success_between_two_failures_starts_again() {
        let (status, once) =
            logged_in().after_check(Authenticated, &CheckResult::LoggedOut, at(60));
        let inside = CheckResult::LoggedIn { expires_at: None };
        let (status, again) = once.after_check(status, &inside, at(61));
        assert_eq!((status, again.failed_checks), (Authenticated, 0));
        let (status, _) = again.after_check(status, &CheckResult::LoggedOut, at(121));
        assert_eq!(status, Authenticated);
    }

    #[test]
    fn check_without_a_finding_keeps_status_and_count() {
        let (status, once) =
            logged_in().after_check(Authenticated, &CheckResult::LoggedOut, at(60));
        let unknown = CheckResult::Unknown(Some(FlowErrorCode::SiteUnavailable));
        let (status, next) = once.after_check(status, &unknown, at(61));
        assert_eq!((status, next.failed_checks), (Authenticated, 1));
        let (status, _) = next.after_check(status, &CheckResult::LoggedOut, at(121));
        assert_eq!(status, NeedsAuth);
    }

    #[test]
    fn failures_back_off_and_are_given_up_after_days() {
        let mut health = logged_in();
        let mut minutes = 0;
        let mut delays = Vec::new();
        let unavailable = FlowErrorCode::SiteUnavailable;
        while health.reauth_stopped.is_none() {
            let begun = ConnectionHealth {
                reauth_at: None,
                ..health
            };
            health = begun.after_failed_reauth(unavailable, at(minutes));
            let Some(next) = health.reauth_at else {
                break;
            };
            delays.push((next - at(minutes).now).num_minutes());
            minutes = (next - DateTime::UNIX_EPOCH).num_minutes();
        }
        assert_eq!(delays, [5, 20, 80, 320, 720, 720, 720, 720, 720, 720]);
        assert_eq!(health.reauth_stopped, Some(unavailable));
        assert!(minutes >= TimeDelta::days(3).num_minutes(), "{minutes}");
    }

    #[test]
    fn failure_that_needs_a_person_is_given_up_at_once() {
        let rejected = FlowErrorCode::CredentialRejected;
        let stopped = logged_in().after_failed_reauth(rejected, at(0));
        assert_eq!(stopped.reauth_stopped, Some(rejected));
        assert_eq!(stopped.reauth_at, None);
        let changed = stopped.after_change(NeedsAuth, at(5));
        assert_eq!(
            (changed.reauth_at, changed.reauth_stopped),
            (minute(5), None)
        );
        assert_eq!(stopped.after_change(Authenticated, at(5)).reauth_at, None);
    }

    #[test]
    fn stop_outlasts_checks_and_not_a_change_during_the_login() {
        let rejected = FlowErrorCode::CredentialRejected;
        let stopped = logged_in().after_failed_reauth(rejected, at(0));
        let inside = CheckResult::LoggedIn { expires_at: None };
        let (_, inside) = stopped.after_check(NeedsAuth, &inside, at(60));
        assert_eq!(inside.reauth_stopped, Some(rejected));
        let (_, once) = inside.after_check(Authenticated, &CheckResult::LoggedOut, at(120));
        let (status, twice) = once.after_check(Authenticated, &CheckResult::LoggedOut, at(121));
        assert_eq!((status, twice.reauth_at), (NeedsAuth, None));
        let changed = logged_in().after_change(NeedsAuth, at(5));
        assert_eq!(changed.after_failed_reauth(rejected, at(6)), changed);
    }

    #[test]
    fn connection_without_a_login_has_nothing_due() {
        let changed = ConnectionHealth::default().after_change(NeedsAuth, at(5));
        assert_eq!((changed.check_at, changed.reauth_at), (None, None));
    }

    #[test]
    fn expiry_has_a_warning_before_and_a_check_after_it() {
        let expiry = |minutes| SessionExpiry {
            cookie: "sid".to_owned(),
            at: at(minutes).now,
        };
        let health = ConnectionHealth::default().after_login(Some(expiry(40)), at(0));
        assert_eq!(health.warn_at, minute(30));
        assert_eq!(health.check_at, minute(40).map(|at| at + EXPIRY_DELAY));
        let month = 30 * 24 * 60;
        let long = ConnectionHealth::default().after_login(Some(expiry(month)), at(0));
        assert_eq!(long.warn_at, minute(month - 24 * 60));
        assert_eq!(long.check_at, minute(60));
        // The same expiry is warned of once, a later one again.
        let warned = long.after_warning();
        let expires_at = |minutes| CheckResult::LoggedIn {
            expires_at: minute(minutes),
        };
        let (_, same) = warned.after_check(Authenticated, &expires_at(month), at(60));
        assert_eq!((same.warn_at, same.expiry), (None, Some(expiry(month))));
        let (_, later) = warned.after_check(Authenticated, &expires_at(month + 60), at(60));
        assert_eq!(later.warn_at, minute(month + 60 - 24 * 60));
    }

    proptest! {
        /// Whatever happens, a connection that was logged in has a next check, NEEDS_AUTH follows
        /// only two failed checks, and each failure of a login leads to another one or is final.
        #[test]
        fn schedule_never_ends(
            steps in prop::collection::vec((0..6_u8, 0.0..1.0_f64, 1..10_000_i64), 1..60),
        ) {
            let (mut health, mut status, mut minutes) = (logged_in(), Authenticated, 0);
            let mut failed = 0;
            for (step, random, passed) in steps {
                minutes += passed;
                let context = ScheduleContext { random, ..at(minutes) };
                let result = match step {
                    0 => CheckResult::LoggedIn { expires_at: None },
                    1 => CheckResult::LoggedOut,
                    2 => CheckResult::Unknown(None),
                    3 => {
                        health = health.after_failed_reauth(FlowErrorCode::SiteTimeout, context);
                        prop_assert!(health.reauth_at.is_some() != health.reauth_stopped.is_some());
                        continue;
                    }
                    4 => {
                        health = health.after_change(status, context);
                        continue;
                    }
                    _ => {
                        (health, status, failed) = (health.after_login(None, context), Authenticated, 0);
                        continue;
                    }
                };
                (status, health) = health.after_check(status, &result, context);
                match result {
                    CheckResult::LoggedIn { .. } => failed = 0,
                    CheckResult::LoggedOut => failed += 1,
                    CheckResult::Unknown(_) => {}
                }
                prop_assert_eq!(status == NeedsAuth, failed >= 2);
                prop_assert!(health.check_at.is_some_and(|at| at > context.now));
            }
        }
    }
}

//! The heartbeats of hosts.

use super::hosts::{FleetError, RegisteredHosts, applied, returned, without_session};
use crate::{
    api::{fleet::HostHeartbeat, ids::HostId},
    control::{
        hosts::state::{Event, HostLife, State},
        store::{HostMachine, RegisteredHostRow},
    },
    system::identity::TokenAudience,
};

impl RegisteredHosts {
    /// Verifies the bearer token of a heartbeat, and that it is one of the host `id`.
    pub async fn authenticate_heartbeat(
        &self,
        id: &HostId,
        token: &str,
    ) -> Result<RegisteredHostRow, FleetError> {
        let key = self.host_tokens.verify(token, TokenAudience::Heartbeat);
        let key = key.map_err(|_| FleetError::InvalidHostToken)?;
        let row = self.store.find_registered_host(id).await?;
        let is_own = |row: &RegisteredHostRow| row.public_key == key;
        row.filter(is_own).ok_or(FleetError::UnknownHost)
    }

    /// Returns whether control reaches a host that starts. Its address may be wrong, or that of
    /// another machine.
    async fn is_reached(&self, row: &RegisteredHostRow) -> bool {
        if row.life.state != State::Starting {
            return false;
        }
        let reached = self.check_reachable(row).await;
        if let Err(error) = &reached {
            let address = row.machine.address;
            tracing::warn!(host = %row.id, %address, %error, "cannot reach a host that has started");
        }
        reached.is_ok()
    }

    /// Records a heartbeat of a host. Returns the host as it is afterwards.
    pub async fn heartbeat(
        &self,
        row: RegisteredHostRow,
        report: &HostHeartbeat,
    ) -> Result<RegisteredHostRow, FleetError> {
        let is_started = report.ready && self.is_reached(&row).await;
        let after = |row: &RegisteredHostRow| {
            let machine = HostMachine {
                boot_id: report.boot_id.as_str().to_owned(),
                ..row.machine.clone()
            };
            let life = after_report(&row.life, &row.machine.boot_id, report, is_started);
            (machine, life)
        };
        self.record_report(row, after).await
    }
}

/// Returns the life of a host after it has reported. `boot_id` is the one that control knows.
/// `is_started` is whether a host that starts can take a session.
fn after_report(
    life: &HostLife,
    boot_id: &str,
    report: &HostHeartbeat,
    is_started: bool,
) -> HostLife {
    let generation = report.generation.get();
    let life = &after_restart(life, report.restarting.unwrap_or_default());
    if boot_id != report.boot_id.as_str() {
        return without_session(life);
    }
    match life.state {
        State::Starting if is_started => applied(life, Event::Started { generation }),
        // The agent has replaced the session that control knows.
        State::Ready | State::Leased if generation > life.generation => without_session(life),
        _ => returned(life),
    }
}

/// Returns the life of a host whose agent reports whether it is to be started again.
fn after_restart(life: &HostLife, is_restarting: bool) -> HostLife {
    match (life.is_restarting, is_restarting) {
        (false, true) => applied(life, Event::RestartBegins),
        // An earlier version of control does not know the flag.
        (true, true) if life.state == State::Ready => applied(life, Event::RestartBegins),
        (true, false) => applied(life, Event::RestartEnds),
        _ => life.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ids::BrowserId;

    const BOOT_ID: &str = "first";

    fn report(boot_id: &str, generation: u64) -> HostHeartbeat {
        let report = serde_json::json!({
            "boot_id": boot_id, "generation": generation, "ready": true,
        });
        deserr::deserialize::<_, _, deserr::errors::JsonError>(report).unwrap()
    }

    fn life(state: State, generation: u64) -> HostLife {
        HostLife {
            state,
            generation,
            session: (state == State::Leased).then(BrowserId::generate),
            is_draining: false,
            is_restarting: false,
        }
    }

    #[test]
    fn report_of_a_running_host_keeps_its_state() {
        for (state, generation) in [
            (State::Ready, 2),
            (State::Leased, 2),
            // A report that was on its way while the host changed.
            (State::Leased, 1),
            (State::Recycling, 2),
            (State::Recycling, 3),
            (State::Retiring, 2),
        ] {
            let before = life(state, 2);
            let after = after_report(&before, BOOT_ID, &report(BOOT_ID, generation), true);
            assert_eq!(after, before);
        }
    }

    #[test]
    fn host_is_started_once_its_browser_responds() {
        let starting = life(State::Starting, 0);
        let waiting = after_report(&starting, BOOT_ID, &report(BOOT_ID, 7), false);
        assert_eq!(waiting, starting);
        let started = after_report(&starting, BOOT_ID, &report(BOOT_ID, 7), true);
        assert_eq!(started, life(State::Ready, 7));
        let draining = HostLife {
            is_draining: true,
            ..starting
        };
        let started = after_report(&draining, BOOT_ID, &report(BOOT_ID, 7), true);
        assert_eq!(started.state, State::Retiring);
    }

    #[test]
    fn host_gets_no_session_while_its_agent_is_to_be_started_again() {
        let restarting = HostHeartbeat {
            ready: false,
            restarting: Some(true),
            ..report(BOOT_ID, 2)
        };
        let ready = life(State::Ready, 2);
        let waiting = after_report(&ready, BOOT_ID, &restarting, false);
        assert_eq!(
            (waiting.state, waiting.is_restarting),
            (State::Starting, true)
        );
        // The next agent does not respond yet, and then it does.
        let silent = HostHeartbeat {
            ready: false,
            ..report(BOOT_ID, 2)
        };
        let again = after_report(&waiting, BOOT_ID, &silent, false);
        assert_eq!(again, life(State::Starting, 2));
        assert_eq!(
            after_report(&again, BOOT_ID, &report(BOOT_ID, 2), true),
            ready
        );
        assert_eq!(
            after_report(&waiting, BOOT_ID, &report(BOOT_ID, 2), true),
            ready
        );
        for state in [State::Leased, State::Recycling] {
            let before = life(state, 2);
            let after = after_report(&before, BOOT_ID, &restarting, false);
            assert_eq!((after.state, after.is_restarting), (state, true));
        }
    }

    #[test]
    fn host_that_was_rebooted_or_lost_has_no_session_and_is_recycled() {
        for (state, boot_id, generation) in [
            (State::Leased, "second", 2),
            (State::Ready, "second", 2),
            (State::Lost, "second", 2),
            (State::Lost, BOOT_ID, 2),
            // The agent has ended the session by itself.
            (State::Leased, BOOT_ID, 3),
            (State::Ready, BOOT_ID, 3),
        ] {
            let after = after_report(&life(state, 2), BOOT_ID, &report(boot_id, generation), true);
            assert_eq!(after, life(State::Recycling, 2), "{state:?} {boot_id}");
        }
        for state in [State::Starting, State::Recycling, State::Retiring] {
            let after = after_report(&life(state, 2), BOOT_ID, &report("second", 1), true);
            assert_eq!(after, life(state, 2));
        }
    }
}

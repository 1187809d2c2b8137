//! `/fleet/hosts`.

use std::time::Duration;

use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    api::fleet::{FleetHost, HostPhase, UNKNOWN_HOST},
    control::{
        Control, fleet::registered::FleetError, hosts::state::State, store::RegisteredHostRow,
    },
    http::ApiError,
};

mod collection;
mod drain;
mod heartbeat;
mod item;

/// `Retry-After` of a change while others change the same host.
const BUSY_RETRY_DELAY: Duration = Duration::from_secs(1);

pub(super) fn router() -> OpenApiRouter<Control> {
    OpenApiRouter::new()
        .routes(routes!(collection::register, collection::list))
        .routes(routes!(item::delete))
        .routes(routes!(drain::drain))
        .routes(routes!(heartbeat::send))
}

fn to_phase(state: State) -> HostPhase {
    match state {
        State::Starting => HostPhase::Starting,
        State::Ready => HostPhase::Ready,
        State::Leased => HostPhase::Leased,
        State::Recycling => HostPhase::Recycling,
        State::Lost => HostPhase::Lost,
        State::Retiring => HostPhase::Retiring,
        State::Gone => HostPhase::Gone,
    }
}

fn to_host(row: RegisteredHostRow) -> FleetHost {
    FleetHost {
        id: row.id,
        state: to_phase(row.life.state),
        draining: row.life.is_draining,
        restarting: row.life.is_restarting,
        session_id: row.life.session,
        generation: row.life.generation,
        address: row.machine.address.to_string(),
        boot_id: row.machine.boot_id,
        version: row.machine.version,
        labels: row.labels,
        capabilities: row.machine.capabilities,
        last_heartbeat_at: row.heartbeat_at.into(),
        created_at: row.created_at.into(),
        state_changed_at: row.changed_at.into(),
    }
}

impl From<FleetError> for ApiError {
    fn from(error: FleetError) -> Self {
        match error {
            error @ FleetError::NotFound => ApiError::not_found(error.to_string()),
            FleetError::JoinToken(cause) => cause.into(),
            error @ FleetError::InvalidHostToken => ApiError::unauthorized(error.to_string()),
            error @ FleetError::UnknownHost => {
                ApiError::unauthorized(error.to_string()).code(UNKNOWN_HOST)
            }
            FleetError::InvalidRequest(cause) => {
                ApiError::bad_field("certificate_request", format!("is {cause}"))
            }
            error @ FleetError::ForeignKey => ApiError::forbidden(error.to_string()),
            error @ FleetError::KeyTaken => ApiError::conflict(error.to_string()).permanent(),
            error @ FleetError::Busy => ApiError::unavailable(error.to_string(), BUSY_RETRY_DELAY),
            FleetError::Certificate(cause) => ApiError::internal(cause),
            FleetError::Store(cause) => cause.into(),
        }
    }
}

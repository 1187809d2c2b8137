//! `/auth/connections/{id}/events`.

use std::{collections::VecDeque, time::Duration};

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use chrono::Utc;
use futures::{Stream, stream};
use http::StatusCode;
use tokio::{
    sync::watch,
    time::{Interval, interval_at, sleep},
};

use super::{ConnectionContext, TAG};
use crate::{
    api::{
        ErrorBody, ErrorDetail,
        auth_flow::{AuthFlowEvent, AuthFlowNotice, AuthFlowNoticeName, FlowStatus},
        time::Timestamp,
    },
    control::{
        auth_connections::{
            AuthConnections,
            logins::{LoginError, Logins},
        },
        routes::authentication::Principal,
        store::{AuthFlowRow, FlowStateRow},
    },
    http::{ApiResult, NamedEventId, Path, SseEvent, sse_response},
    shutdown::Shutdown,
};

/// The interval of heartbeats.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(15);
/// The interval at which states are read without a notification.
const POLL_INTERVAL: Duration = Duration::from_secs(3);
/// The most states that are read at once.
const MAX_STATES: u64 = 50;

/// Follow a login
///
/// Returns server-sent events about the newest login of the connection: first its present state,
/// then each that follows. Ends by itself when the login has ended. A heartbeat comes every 15
/// seconds. With `Last-Event-ID` the stream continues after that event; if it is not one of this
/// login, a `reset` event comes first. After the last event there is nothing: 204.
#[utoipa::path(
    get,
    path = "/auth/connections/{id}/events",
    operation_id = "follow_auth_login",
    tag = TAG,
    params(
        ("id" = String, Path, description = "The id of the connection", example = "conn_01kgc3v7e8r9t0w1x2y3z4a5b6"),
        ("Last-Event-ID" = Option<String>, Header, description = "The id of the last event that was received"),
    ),
    responses(
        (status = 200, body = AuthFlowEvent, content_type = "text/event-stream"),
        (status = 204, description = "`Last-Event-ID` is the end of the login"),
        (status = 409, body = ErrorBody, description = "`no_login`: the connection has had no login yet"),
    )
)]
pub(crate) async fn follow(
    State(connections): State<AuthConnections>,
    State(logins): State<Logins>,
    State(shutdown): State<Shutdown>,
    context: ConnectionContext,
    principal: Principal,
    Path(id): Path<String>,
    last: NamedEventId,
) -> ApiResult<Response> {
    let connection = connections.get(&principal.project, &id).await?.row;
    let found = logins.login_of(&connection.id, principal.flow()).await?;
    let row = found.ok_or(LoginError::NoLogin)?;
    // The first state has the number 1.
    let newest_number = u64::from(row.flow.revision());
    let resumed = last.get().map(|id| position_of(id, &row));
    let (start, is_reset) = match resumed {
        Some(Some(number)) => (number, false),
        Some(None) => (newest_number - 1, true),
        None => (newest_number - 1, false),
    };
    if row.ended_at.is_some() && start >= newest_number {
        // Stops a browser's `EventSource` from reconnecting.
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let mut changes = logins.subscribe(row.id());
    changes.mark_changed();
    let mut pending = VecDeque::new();
    if is_reset {
        pending.push_back(notice(AuthFlowNoticeName::Reset, None));
    }
    let start_of_heartbeats = tokio::time::Instant::now() + HEARTBEAT_INTERVAL;
    let reader = EventReader {
        number: start,
        pending,
        has_ended: false,
        changes,
        heartbeats: interval_at(start_of_heartbeats, HEARTBEAT_INTERVAL),
        row,
        context,
        principal,
        logins,
    };
    Ok(sse_response(reader.into_stream(), &shutdown))
}

/// A reader of the states of a login.
struct EventReader {
    logins: Logins,
    /// The login as it was read last.
    row: AuthFlowRow,
    /// The number of the last state that was read.
    number: u64,
    pending: VecDeque<SseEvent>,
    has_ended: bool,
    changes: watch::Receiver<()>,
    heartbeats: Interval,
    context: ConnectionContext,
    principal: Principal,
}

impl EventReader {
    fn into_stream(self) -> impl Stream<Item = SseEvent> + Send {
        stream::unfold(self, async |mut reader| {
            let event = reader.next().await?;
            Some((event, reader))
        })
    }

    async fn next(&mut self) -> Option<SseEvent> {
        loop {
            if let Some(event) = self.pending.pop_front() {
                return Some(event);
            }
            if self.has_ended {
                return None;
            }
            tokio::select! {
                biased;
                _ = self.changes.changed() => self.read().await,
                _ = self.heartbeats.tick() => return Some(notice(AuthFlowNoticeName::SseHeartbeat, None)),
                () = sleep(POLL_INTERVAL) => self.read().await,
            }
        }
    }

    /// Reads the states that are new.
    async fn read(&mut self) {
        let states = self.logins.states(self.row.id(), self.number, MAX_STATES);
        let states = match states.await {
            Ok(states) => states,
            Err(error) => {
                tracing::warn!(flow = %self.row.id(), %error, "cannot read the states of a login");
                return;
            }
        };
        if states.is_empty() || self.row.flow.browser().is_none() {
            self.read_row().await;
        }
        if states.len() as u64 == MAX_STATES {
            self.changes.mark_changed();
        }
        for FlowStateRow { number, state } in states {
            self.number = number;
            self.has_ended = state.flow_status != FlowStatus::InProgress;
            let state = match self.has_ended {
                true => state,
                false => self.context.with_urls(state, &self.row, &self.principal),
            };
            self.pending.push_back(SseEvent {
                id: Some(format!("{}:{number}", self.row.id())),
                data: serde_json::to_string(&AuthFlowEvent::State(Box::new(state)))
                    .unwrap_or_default(),
            });
        }
    }

    /// Reads the row of the login. Ends the stream if the connection was deleted.
    async fn read_row(&mut self) {
        match self.logins.find(self.row.id()).await {
            Ok(Some(row)) => self.row = row,
            Ok(None) => {
                self.has_ended = true;
                let error = ErrorDetail {
                    code: "not_found".to_owned(),
                    message: "the connection was deleted".to_owned(),
                };
                let notice = notice(AuthFlowNoticeName::Error, Some(error));
                self.pending.push_back(notice);
            }
            Err(error) => tracing::warn!(flow = %self.row.id(), %error, "cannot read a login"),
        }
    }
}

/// Returns an event after which a stream is not continued.
fn notice(event: AuthFlowNoticeName, error: Option<ErrorDetail>) -> SseEvent {
    let data = AuthFlowEvent::Notice(AuthFlowNotice {
        event,
        timestamp: Timestamp(Utc::now()),
        error,
    });
    SseEvent {
        id: None,
        data: serde_json::to_string(&data).unwrap_or_default(),
    }
}

/// Returns the number of an event of a login.
fn position_of(id: &str, row: &AuthFlowRow) -> Option<u64> {
    let (flow, number) = id.split_once(':')?;
    let number: u64 = number.parse().ok()?;
    let is_known = flow == row.id().as_str() && number <= row.flow.revision().into();
    is_known.then_some(number)
}

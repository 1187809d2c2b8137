//! `/auth/connections/{id}/timeline`.

use axum::extract::State;

use super::TAG;
use crate::{
    api::{
        auth_connections::{AuthTimelineEvent, ListAuthTimeline},
        auth_flow::FlowErrorCode,
        paging::Page,
    },
    control::{
        auth_connections::{AuthConnections, logins::Logins},
        routes::{authentication::Principal, paged::Paged},
        store::{AuthTimelineListing, AuthTimelineRow},
    },
    http::{ApiResult, Path, Query},
};

/// List what has happened to an auth connection
///
/// The steps of its logins, and its health checks, newest first.
#[utoipa::path(
    get,
    path = "/auth/connections/{id}/timeline",
    operation_id = "list_auth_timeline",
    tag = TAG,
    params(
        ("id" = String, Path, description = "The id of the connection", example = "conn_01kgc3v7e8r9t0w1x2y3z4a5b6"),
        ListAuthTimeline,
        Page,
    ),
    responses((status = 200, body = Vec<AuthTimelineEvent>, headers(
        ("X-Has-More" = bool, description = "Whether there are more entries"),
        ("X-Next-Offset" = u64, description = "The offset of the next page, 0 on the last one"),
    )))
)]
pub(crate) async fn list(
    State(connections): State<AuthConnections>,
    State(logins): State<Logins>,
    principal: Principal,
    Path(id): Path<String>,
    Query(request): Query<ListAuthTimeline>,
) -> ApiResult<Paged<AuthTimelineEvent>> {
    let connection = connections.get(&principal.project, &id).await?.row;
    let page = request.page();
    let listing = AuthTimelineListing {
        event_type: request.event_type,
        offset: page.offset.get().into(),
        limit: page.limit.get().into(),
    };
    let rows = logins.timeline(&connection.id, listing).await?;
    Ok(Paged::new(page, rows, to_event))
}

fn to_event(row: AuthTimelineRow) -> AuthTimelineEvent {
    let message = row.error_code.map(FlowErrorCode::message);
    AuthTimelineEvent {
        id: row.id,
        event_type: row.event_type,
        timestamp: row.created_at.into(),
        status: row.status,
        previous_status: row.previous_status,
        step: row.step,
        error_code: row.error_code,
        error_message: message.map(str::to_owned),
        website_error: row.website_error,
        flow_id: row.flow_id,
        browser_session_id: row.browser_id,
        replay_id: row.replay_id,
        updated_at: row.created_at.into(),
        completed_at: row.completed_at.map(Into::into),
    }
}

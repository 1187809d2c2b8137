//! `/audit-logs`.

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use http::{HeaderName, HeaderValue};

use super::{TAG, check_access, has_more};
use crate::{
    api::{
        ErrorBody,
        audit_logs::{AuditLogEntry, AuditLogFilter, ListAuditLogs},
    },
    control::{audit::AuditLog, routes::authentication::Principal},
    http::{ApiError, ApiResult, Json, Query},
};

const NEXT_PAGE_TOKEN: HeaderName = HeaderName::from_static("x-next-page-token");

/// Search the audit log
///
/// Newest first. Has the requests that changed something, connections to browsers, downloads, and
/// failed authentications; input and other reads are not recorded. A request appears up to a second
/// after its response.
#[utoipa::path(
    get,
    path = "/audit-logs",
    operation_id = "list_audit_logs",
    tag = TAG,
    params(AuditLogFilter, ListAuditLogs),
    responses(
        (status = 200, body = Vec<AuditLogEntry>, headers(
            ("X-Has-More" = bool, description = "Whether there are more entries"),
            ("X-Next-Page-Token" = String, description = "The `page_token` of the next page; absent on the last one"),
        )),
        (status = 429, body = ErrorBody, description = "Too many searches and exports are in progress"),
    )
)]
pub(crate) async fn list(
    State(log): State<AuditLog>,
    principal: Principal,
    Query(request): Query<ListAuditLogs>,
) -> ApiResult<Response> {
    check_access(&principal)?;
    let limit = request.limit.get().into();
    let page = log.list(request.filter, request.page_token, limit).await?;
    let entries: Vec<AuditLogEntry> = page.records.into_iter().map(Into::into).collect();
    let mut response = ([has_more(page.next.is_some())], Json(entries)).into_response();
    if let Some(next) = page.next {
        let token = HeaderValue::try_from(next.to_string()).map_err(ApiError::internal)?;
        response.headers_mut().insert(NEXT_PAGE_TOKEN, token);
    }
    Ok(response)
}

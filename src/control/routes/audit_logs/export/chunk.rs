//! `/audit-logs/export/chunk`.

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use http::{HeaderName, HeaderValue, header::CONTENT_TYPE};

use crate::{
    api::{
        Binary, ErrorBody,
        audit_logs::{AuditLogFilter, ExportAuditLogs, ExportFormat},
    },
    control::{
        audit::AuditLog,
        routes::{
            audit_logs::{TAG, check_access, has_more},
            authentication::Principal,
        },
    },
    http::{ApiError, ApiResult, Query},
};

const CONTENT_SHA256: HeaderName = HeaderName::from_static("x-content-sha256");
const ROW_COUNT: HeaderName = HeaderName::from_static("x-row-count");
const NEXT_CURSOR: HeaderName = HeaderName::from_static("x-next-cursor");

/// Export a chunk of the audit log
///
/// Each line of the body is an entry as JSON, newest first. Repeat the request with the cursor of
/// each response until there are no more. A chunk ends early at 32 MiB of text.
#[utoipa::path(
    get,
    path = "/audit-logs/export/chunk",
    operation_id = "export_audit_logs",
    tag = TAG,
    params(AuditLogFilter, ExportAuditLogs),
    responses(
        (status = 200, headers(
            ("X-Content-Sha256" = String, description = "The SHA-256 of the body as hexadecimal digits"),
            ("X-Row-Count" = u64, description = "The number of entries"),
            ("X-Has-More" = bool, description = "Whether there are more entries"),
            ("X-Next-Cursor" = String, description = "The `cursor` of the next chunk; absent on the last one"),
        ), content(
            (inline(Binary) = "application/gzip"),
            (inline(Binary) = "application/x-ndjson"),
        )),
        (status = 429, body = ErrorBody, description = "Too many searches and exports are in progress"),
    )
)]
pub(crate) async fn export(
    State(log): State<AuditLog>,
    principal: Principal,
    Query(request): Query<ExportAuditLogs>,
) -> ApiResult<Response> {
    check_access(&principal)?;
    let limit = request.limit.get().into();
    let chunk = log.export(request.filter, request.cursor, limit, request.format);
    let chunk = chunk.await?;
    let media_type = match request.format {
        ExportFormat::JsonLines => "application/x-ndjson",
        ExportFormat::JsonLinesGzip => "application/gzip",
    };
    let sha256 = HeaderValue::try_from(chunk.sha256).map_err(ApiError::internal)?;
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static(media_type)),
        (CONTENT_SHA256, sha256),
        (ROW_COUNT, HeaderValue::from(chunk.rows)),
        has_more(chunk.next.is_some()),
    ];
    let mut response = (headers, chunk.body).into_response();
    if let Some(next) = chunk.next {
        let cursor = HeaderValue::try_from(next.to_string()).map_err(ApiError::internal)?;
        response.headers_mut().insert(NEXT_CURSOR, cursor);
    }
    Ok(response)
}

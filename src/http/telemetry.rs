//! Telemetry of requests: id, trace, log line and metrics; also error format and panic handling.

use std::{panic::AssertUnwindSafe, time::Instant};

use axum::{
    extract::{MatchedPath, Request},
    http::Method,
    middleware::Next,
    response::{IntoResponse, Response},
};
use futures::FutureExt;
use http::{HeaderValue, header::X_CONTENT_TYPE_OPTIONS};
use tracing::Instrument;

use super::{ApiError, REQUEST_ID, RequestId, error::normalize_error, trace_context::TraceContext};
use crate::request_scope::RequestScope;

/// Records each request; the outermost middleware.
///
/// Logs and metrics carry the route's pattern, never the path's values or the query.
pub(super) async fn record_request(mut request: Request, next: Next) -> Response {
    let started_at = Instant::now();
    let id = RequestId::of(&request);
    let method = request.method().clone();
    let route = request
        .extensions()
        .get::<MatchedPath>()
        .map_or_else(|| "unmatched".to_owned(), |path| path.as_str().to_owned());
    request.headers_mut().insert(REQUEST_ID, id.header());
    let trace = TraceContext::enter(request.headers_mut());
    request.extensions_mut().insert(id.clone());

    let scope = RequestScope {
        request_id: id.as_str().to_owned(),
        traceparent: trace.traceparent(),
    };
    let span = tracing::info_span!(
        "request",
        id = id.as_str(),
        trace = trace.trace_id(),
        %method,
        route
    );
    let handle = async {
        let response = match AssertUnwindSafe(next.run(request)).catch_unwind().await {
            Ok(response) => normalize_error(response),
            Err(panic) => ApiError::internal(panic_message(&*panic)).into_response(),
        };
        let (status, elapsed) = (response.status().as_u16(), started_at.elapsed());
        tracing::info!(
            status,
            duration_us = elapsed.as_micros() as u64,
            "request completed"
        );
        metrics::histogram!(
            "berth_http_request_seconds",
            "method" => method_label(&method),
            "route" => route.clone(),
            "status" => status.to_string()
        )
        .record(elapsed);
        response
    };
    let mut response = scope.run(handle).instrument(span).await;
    let headers = response.headers_mut();
    headers.insert(REQUEST_ID, id.header());
    // The content of files, archives and recordings is the clients': a web browser must not guess
    // a type for it.
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Maps the method to a bounded set of label values: clients may send any method name, and each
/// new label value would create a time series.
fn method_label(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    }
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned());
    format!("handler panicked: {}", text.unwrap_or_default())
}

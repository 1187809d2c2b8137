//! Telemetry of requests: id, trace, log line and metrics; also error format and panic handling.

use std::{
    panic::AssertUnwindSafe,
    time::{Duration, Instant},
};

use axum::{
    extract::{MatchedPath, Request},
    http::Method,
    response::{IntoResponse, Response},
};
use futures::FutureExt;
use http::{HeaderValue, header::X_CONTENT_TYPE_OPTIONS};
use parking_lot::Mutex;
use tracing::Instrument;

use super::{
    ApiError, REQUEST_ID, RequestId, arrival::ArrivedAt, connections::Authentication,
    error::normalize_error, forward, trace_context::TraceContext,
};
use crate::{rate_limit::RateLimit, request_scope::RequestScope};

/// The average interval between the log lines of requests that have not authenticated.
const UNAUTHENTICATED_LINE_INTERVAL: Duration = Duration::from_secs(1);
/// The time by which a burst of these lines may run ahead of the average rate: 100 lines.
const UNAUTHENTICATED_LINE_WINDOW: Duration = Duration::from_secs(100);

/// The process's limit of log lines of requests that have not authenticated.
static UNAUTHENTICATED_LINES: Mutex<LineLimit> = Mutex::new(LineLimit::new());

/// Limits the rate of log lines, and counts those that are suppressed.
struct LineLimit {
    rate: RateLimit,
    suppressed: u64,
}

/// Records each request, to which `respond` responds; the outermost middleware.
///
/// Logs and metrics carry the route's pattern, never the path's values or the query.
pub(super) async fn record_request<F: Future<Output = Response>>(
    mut request: Request,
    respond: impl FnOnce(Request) -> F,
    is_behind_control: bool,
) -> Response {
    let started_at = Instant::now();
    let id = RequestId::of(&request);
    let method = method_label(request.method());
    let route = request
        .extensions()
        .get::<MatchedPath>()
        .map_or_else(|| "unmatched".to_owned(), |path| path.as_str().to_owned());
    request.headers_mut().insert(REQUEST_ID, id.header());
    let trace = TraceContext::enter(request.headers_mut());
    let is_via_control = is_behind_control && forward::is_via_control(request.headers());
    request.extensions_mut().insert(id.clone());
    request.extensions_mut().insert(ArrivedAt(started_at));
    let authentication = Authentication::default();
    request.extensions_mut().insert(authentication.clone());

    let scope = RequestScope {
        request_id: id.as_str().to_owned(),
        traceparent: trace.traceparent(),
    };
    let span = tracing::info_span!(
        "request",
        id = id.as_str(),
        trace = trace.trace_id(),
        method,
        route
    );
    let mut cancellation = Cancellation {
        span: span.clone(),
        started_at,
        authentication,
        is_via_control,
        is_armed: true,
    };
    let handle = async {
        let response = match AssertUnwindSafe(respond(request)).catch_unwind().await {
            Ok(response) => normalize_error(response),
            Err(panic) => ApiError::internal(panic_message(&*panic)).into_response(),
        };
        cancellation.is_armed = false;
        let (status, elapsed) = (response.status().as_u16(), started_at.elapsed());
        match cancellation.authentication.has_succeeded() {
            true => log_completion(status, elapsed, is_via_control),
            false => log_unauthenticated(status, elapsed),
        }
        record_duration(method, route, status, elapsed);
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

fn record_duration(method: &'static str, route: String, status: u16, elapsed: Duration) {
    metrics::histogram!(
        "berth_http_request_seconds",
        "method" => method,
        "route" => route,
        "status" => status.to_string()
    )
    .record(elapsed);
}

/// Logs a completed request. One that control has forwarded has a line in the log of control.
fn log_completion(status: u16, elapsed: Duration, is_via_control: bool) {
    let duration_us = elapsed.as_micros() as u64;
    match is_via_control && status < 500 {
        true => tracing::debug!(status, duration_us, "request completed"),
        false => tracing::info!(status, duration_us, "request completed"),
    }
}

/// Logs a completed request that has not authenticated. These lines are limited, because anyone can
/// send any number of such requests.
fn log_unauthenticated(status: u16, elapsed: Duration) {
    if permit_line() {
        log_completion(status, elapsed, false);
    }
}

/// Returns whether a line that anyone can cause is to be logged, after one that says how many were
/// not.
fn permit_line() -> bool {
    let suppressed = UNAUTHENTICATED_LINES.lock().next_line(Instant::now());
    if let Some(suppressed @ 1..) = suppressed {
        tracing::info!(
            suppressed,
            "lines of requests without a credential suppressed"
        );
    }
    suppressed.is_some()
}

/// Logs a request that is dropped before it has completed: its client has disconnected, or the
/// server has closed the connection.
struct Cancellation {
    span: tracing::Span,
    started_at: Instant,
    authentication: Authentication,
    is_via_control: bool,
    is_armed: bool,
}

impl Drop for Cancellation {
    fn drop(&mut self) {
        if !self.is_armed {
            return;
        }
        let _entered = self.span.enter();
        let is_authenticated = self.authentication.has_succeeded();
        let duration_us = self.started_at.elapsed().as_micros() as u64;
        if is_authenticated && self.is_via_control {
            tracing::debug!(duration_us, "request dropped before its response");
        } else if is_authenticated || permit_line() {
            tracing::info!(duration_us, "request dropped before its response");
        }
    }
}

impl LineLimit {
    const fn new() -> Self {
        Self {
            rate: RateLimit::new(UNAUTHENTICATED_LINE_INTERVAL, UNAUTHENTICATED_LINE_WINDOW),
            suppressed: 0,
        }
    }

    /// Returns how many lines were suppressed since the last one, or `None` if this one has to be.
    fn next_line(&mut self, now: Instant) -> Option<u64> {
        if self.rate.try_acquire(now.into()) {
            return Some(std::mem::take(&mut self.suppressed));
        }
        self.suppressed += 1;
        metrics::counter!("berth_log_lines_suppressed_total").increment(1);
        None
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_limited_and_suppressed_ones_counted() {
        let (mut limit, now) = (LineLimit::new(), Instant::now());
        let logged = (0..1000).filter(|_| limit.next_line(now) == Some(0));
        assert_eq!(logged.count(), 100);
        let later = now + UNAUTHENTICATED_LINE_INTERVAL;
        assert_eq!(limit.next_line(later), Some(900));
        assert_eq!(limit.next_line(later), None);
        let later = later + UNAUTHENTICATED_LINE_INTERVAL;
        assert_eq!(limit.next_line(later), Some(1));
    }
}

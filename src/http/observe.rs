//! What is known of every request: its id, its trace, its log line, its figures, and the shape of its errors.

use std::panic::AssertUnwindSafe;
use std::time::Instant;

use axum::extract::{MatchedPath, Request};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures::FutureExt;
use tracing::Instrument;

use super::error::reshape;
use super::trace_context::TraceContext;
use super::{ApiError, REQUEST_ID, RequestId};
use crate::request_scope::RequestScope;

/// Outermost middleware. Logs the route's pattern, never the path's content or the query.
pub async fn observe(mut request: Request, next: Next) -> Response {
    let started = Instant::now();
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
    let (id_text, trace) = (id.as_str(), trace.trace());
    let span = tracing::info_span!("request", id = id_text, trace, %method, route);
    let answer = async {
        let response = match AssertUnwindSafe(next.run(request)).catch_unwind().await {
            Ok(response) => reshape(response),
            Err(panic) => ApiError::internal(panic_text(&*panic)).into_response(),
        };
        let (status, elapsed) = (response.status().as_u16(), started.elapsed());
        tracing::info!(status, micros = elapsed.as_micros() as u64, "answered");
        metrics::histogram!("berth_http_request_seconds",
            "method" => label(&method), "route" => route.clone(), "status" => status.to_string())
        .record(elapsed);
        response
    };
    let mut response = scope.run(answer).instrument(span).await;
    response.headers_mut().insert(REQUEST_ID, id.header());
    response
}

/// A client may make up methods; it may not make up series.
fn label(method: &Method) -> &'static str {
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

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned());
    format!("a handler panicked: {}", text.unwrap_or_default())
}

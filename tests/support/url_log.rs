//! The URLs that a server of a test receives.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    http::header::REFERER,
    middleware::Next,
    response::Response,
};
use parking_lot::Mutex;

/// The URLs of all requests so far, and those that the requests name as their origin.
#[derive(Clone, Default)]
pub struct UrlLog(Arc<Mutex<Vec<String>>>);

impl UrlLog {
    pub fn all(&self) -> Vec<String> {
        self.0.lock().clone()
    }

    /// Middleware that records the URLs of a request.
    pub async fn record(State(log): State<UrlLog>, request: Request, next: Next) -> Response {
        let mut urls = vec![request.uri().to_string()];
        let referer = request.headers().get(REFERER);
        urls.extend(referer.map(|it| String::from_utf8_lossy(it.as_bytes()).into_owned()));
        log.0.lock().extend(urls);
        next.run(request).await
    }
}

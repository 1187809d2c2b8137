//! A web site that recognizes returning visitors.

use std::{collections::HashMap, sync::Arc};

use axum::{Router, extract::Query, response::Html, routing::get};
use parking_lot::Mutex;
use tokio::net::TcpListener;

use super::wait::until;

/// The page reports its cookies and its local storage.
const REPORT: &str = "fetch('/report?' + new URLSearchParams({\
    cookie: document.cookie, stored: localStorage.stored ?? '', page: location.pathname}))";
const LOG_IN: &str = "document.cookie = 'login=now; max-age=100000'; localStorage.stored = 'here';";

type Visit = HashMap<String, String>;

/// A web site, served until the test's runtime ends.
pub struct Site {
    pub url: String,
    visits: Arc<Mutex<Vec<Visit>>>,
}

impl Site {
    pub async fn serve() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let visits = Arc::<Mutex<Vec<Visit>>>::default();
        let recorded = visits.clone();
        let page = |script: String| async move {
            Html(format!(
                "<!doctype html><title>site</title><script>{script}</script>"
            ))
        };
        let app = Router::new()
            .route("/login", get(move || page(format!("{LOG_IN}{REPORT}"))))
            .route("/check", get(move || page(REPORT.to_owned())))
            .route(
                "/report",
                get(async move |Query(visit): Query<Visit>| recorded.lock().push(visit)),
            );
        tokio::spawn(async move { axum::serve(listener, app).await });
        Site { url, visits }
    }

    /// Waits for the report of a visit to a page.
    pub async fn visit(&self, page: &str) -> Visit {
        until("a visit", async || {
            let mut visits = self.visits.lock();
            let found = visits.iter().position(|visit| visit["page"] == page)?;
            Some(visits.remove(found))
        })
        .await
    }
}

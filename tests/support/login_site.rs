//! A site with login forms.

use std::sync::Arc;

use axum::{Form, Router, extract::State, response::Html, routing::get};
use parking_lot::Mutex;
use tokio::net::TcpListener;

use super::wait::until;

/// The names and values of a submitted form, in their order.
pub type Submitted = Vec<(String, String)>;

/// A site with login forms, which records what is submitted.
pub struct LoginSite {
    pub url: String,
    submitted: Arc<Mutex<Vec<Submitted>>>,
}

impl LoginSite {
    pub async fn serve() -> LoginSite {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://localhost:{}", listener.local_addr().unwrap().port());
        let submitted = Arc::<Mutex<Vec<Submitted>>>::default();
        let form = |fields: &str| {
            Html(format!(
                "<!doctype html><title>login</title><form method=post action=/submitted>{fields}\
                <button>Sign in</button></form>"
            ))
        };
        let login = form("<input name=user autocomplete=username><input type=password name=pass>");
        let code = form("<input name=code autocomplete=one-time-code>");
        let router = Router::new()
            .route("/login", get(async || login))
            .route("/code", get(async || code))
            .route("/submitted", get(async || Html("done")).post(submit))
            .with_state(submitted.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        LoginSite { url, submitted }
    }

    /// Waits for a submitted form.
    pub async fn submitted(&self) -> Submitted {
        until("a submitted form", async || self.submitted.lock().pop()).await
    }
}

async fn submit(
    State(submitted): State<Arc<Mutex<Vec<Submitted>>>>,
    Form(fields): Form<Submitted>,
) -> Html<&'static str> {
    submitted.lock().push(fields);
    Html("done")
}

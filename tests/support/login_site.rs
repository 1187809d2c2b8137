//! A site with login forms.

use std::sync::Arc;

use axum::{
    Form, Router, extract::State, middleware::from_fn_with_state, response::Html, routing::get,
};
use parking_lot::Mutex;
use tokio::net::TcpListener;

use super::{url_log::UrlLog, wait::until};

/// The names and values of a submitted form, in their order.
pub type Submitted = Vec<(String, String)>;

/// A page with one field, whose characters are about 29 pixels wide, and with something that moves,
/// so that a recording has many frames.
const LARGE_FIELD: &str = "<!doctype html><style>body { margin: 0; background: white }
    input { position: fixed; left: 40px; top: 40px; width: 240px; height: 80px; border: 0; padding: 0;
        outline: 0; font: bold 48px monospace; caret-color: transparent; color: black; background: white }
    div { position: fixed; bottom: 0; height: 40px; width: 40px; background: blue;
        animation: move 2s linear infinite alternate }
    @keyframes move { to { translate: 400px } }</style>
    <form><input type=password autocomplete=current-password></form><div></div>";

/// A site with login forms, which records what is submitted.
pub struct LoginSite {
    pub url: String,
    pub urls: UrlLog,
    submitted: Arc<Mutex<Vec<Submitted>>>,
}

impl LoginSite {
    pub async fn serve() -> LoginSite {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://localhost:{}", listener.local_addr().unwrap().port());
        let submitted = Arc::<Mutex<Vec<Submitted>>>::default();
        let urls = UrlLog::default();
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
            .route("/large", get(async || Html(LARGE_FIELD)))
            .route("/submitted", get(async || Html("done")).post(submit))
            .layer(from_fn_with_state(urls.clone(), UrlLog::record))
            .with_state(submitted.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        LoginSite {
            url,
            urls,
            submitted,
        }
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

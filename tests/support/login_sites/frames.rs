//! A site whose login form is in a frame of another host of the same site.

use axum::{
    Router,
    response::{IntoResponse, Redirect, Response},
    routing::get,
};
use serde_json::json;

use super::{
    pages::{document, step_page},
    password::{PasswordLogin, member_pages},
    request::SiteRequest,
};

const SITE: &str = "iframe.test";
const FRAME: &str = "login.iframe.test";

/// The page around the frame.
pub(super) fn page() -> Router {
    let show = async |request: SiteRequest| match request.user() {
        Some(_) => Redirect::to("/account").into_response(),
        None => frame_page(&request),
    };
    member_pages("/login").route("/login", get(show))
}

fn frame_page(request: &SiteRequest) -> Response {
    let content = format!(
        "<iframe src=\"{}\" title=\"Log in\" style=\"width: 100%; height: 420px; border: 0\"></iframe><script>
        addEventListener('message', event => {{
          if (event.origin === {} && event.data === 'logged-in') location = '/account';
        }});
        </script>",
        request.url_of(FRAME, "/form"),
        json!(request.url_of(FRAME, ""))
    );
    step_page("Members", &content).into_response()
}

/// The frame.
pub(super) fn frame() -> Router {
    let login = PasswordLogin {
        path: "/form",
        page: |_, form| document("Log in", form),
        then: log_in_to_page,
    };
    login.routes()
}

/// Logs a user in to the page around the frame, and informs that page.
fn log_in_to_page(request: &SiteRequest, user: &str) -> Response {
    let attributes = format!("; Domain={SITE}");
    let cookies = request.start_session_on(SITE, user, &attributes);
    let script = format!(
        "<p>Welcome back.</p><script>parent.postMessage('logged-in', {})</script>",
        json!(request.url_of(SITE, ""))
    );
    (cookies, document("Logged in", &script)).into_response()
}

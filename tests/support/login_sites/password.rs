//! Sites with a user name and a password in one form, and the pages of members.

use axum::{
    Form, Json, Router,
    http::{StatusCode, header},
    response::{Html, IntoResponse, Redirect, Response},
    routing::get,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    pages::{account_page, alert, front_page, login_page, password_form, step_page},
    request::SiteRequest,
};

/// Leaves the page of members when the session ends.
const SESSION_CHECK: &str = "<script>
    setInterval(async () => {
      const { user } = await (await fetch('/whoami')).json();
      if (!user) location = '/login';
    }, 1000);
    </script>";

/// A login form with a user name and a password.
#[derive(Clone, Copy)]
pub(super) struct PasswordLogin {
    pub(super) path: &'static str,
    /// Returns the page around a form.
    pub(super) page: fn(&SiteRequest, &str) -> Html<String>,
    /// Responds to the right password of a user.
    pub(super) then: fn(&SiteRequest, &str) -> Response,
}

#[derive(Deserialize)]
struct PasswordFields {
    username: String,
    password: String,
}

impl Default for PasswordLogin {
    fn default() -> Self {
        PasswordLogin {
            path: "/login",
            page: |_, form| login_page(form),
            then: SiteRequest::log_in,
        }
    }
}

impl PasswordLogin {
    /// Returns the routes of a site with this login.
    pub(super) fn routes(self) -> Router {
        let show = move |request: SiteRequest| async move { self.show(&request) };
        let submit = move |request: SiteRequest, Form(fields): Form<PasswordFields>| async move {
            self.submit(&request, &fields)
        };
        member_pages(self.path).route(self.path, get(show).post(submit))
    }

    fn show(self, request: &SiteRequest) -> Response {
        if request.user().is_some() {
            return Redirect::to("/account").into_response();
        }
        let form = password_form(self.path, "", login_notice(request));
        (self.page)(request, &form).into_response()
    }

    fn submit(self, request: &SiteRequest, fields: &PasswordFields) -> Response {
        let PasswordFields { username, password } = fields;
        if is_password(request, username, password) {
            return (self.then)(request, username);
        }
        let notice = alert("The user name or the password is wrong.");
        (self.page)(request, &password_form(self.path, username, &notice)).into_response()
    }
}

/// Returns the notice of a login form, which is empty for a browser that has had no session.
pub(super) fn login_notice(request: &SiteRequest) -> &'static str {
    match request.has_expired_session() {
        true => "<p role=status>Your session has expired. Log in again.</p>",
        false => "",
    }
}

pub(super) fn is_password(request: &SiteRequest, user: &str, password: &str) -> bool {
    let state = request.state.lock();
    state.is_password(request.site, user, password)
}

/// Returns the routes of a site but for its login.
pub(super) fn member_pages(login_path: &'static str) -> Router {
    let front = move |request: SiteRequest| async move {
        match request.user() {
            Some(_) => Redirect::to("/account").into_response(),
            None => front_page(request.site, login_path).into_response(),
        }
    };
    let account = move |request: SiteRequest| async move {
        let script = match request.site {
            "expiry.test" => SESSION_CHECK,
            _ => "",
        };
        match request.user() {
            Some(user) => account_page(&user, script).into_response(),
            None => Redirect::to(login_path).into_response(),
        }
    };
    Router::new()
        .route("/", get(front))
        .route("/account", get(account))
        .route("/whoami", get(whoami))
        .route(
            "/logout",
            get(async |request: SiteRequest| request.log_out()),
        )
        .route("/forgot", get(forgot))
}

async fn whoami(request: SiteRequest) -> Json<Value> {
    Json(json!({"user": request.user()}))
}

async fn forgot() -> Html<String> {
    step_page(
        "Forgot your password?",
        "<p>Please write to our support.</p>",
    )
}

pub(super) fn routes() -> Router {
    PasswordLogin::default().routes()
}

/// A site whose login page is found by the link on its front page only.
pub(super) fn discover() -> Router {
    let path = "/members/sign-in";
    PasswordLogin {
        path,
        ..Default::default()
    }
    .routes()
}

/// A site that is down.
pub(super) fn down() -> Router {
    Router::new().fallback(async || {
        let page = step_page(
            "Service unavailable",
            "<p>We are working on our servers. Please come back in a few minutes.</p>",
        );
        (
            StatusCode::SERVICE_UNAVAILABLE,
            [(header::RETRY_AFTER, "120")],
            page,
        )
    })
}

//! Sites that request the user name and the password on pages of their own.

use axum::{
    Form, Router,
    response::{IntoResponse, Redirect, Response},
    routing::{get, post},
};
use serde::Deserialize;

use super::{
    pages::{PASSWORD_FIELD, alert, email_field, escape, form, step_page},
    password::{is_password, login_notice, member_pages},
    request::SiteRequest,
};

const PASSWORD_PATH: &str = "/password";
/// Submits the account that the person chooses.
const CHOOSE: &str =
    "<form method=post action=/choose><input type=hidden name=account></form><script>
    for (const item of document.querySelectorAll('[data-identifier]')) {
      item.onclick = () => {
        document.forms[0].account.value = item.dataset.identifier;
        document.forms[0].submit();
      };
      item.onkeydown = event => { if (event.key === 'Enter') item.click() };
    }
    </script>";

/// A login with a page for the user name, and a page for the password.
#[derive(Clone, Copy)]
pub(super) struct StepLogin {
    /// The path of the page for the user name.
    pub(super) path: &'static str,
    /// Responds to the user name of a member.
    pub(super) then_password: fn(&SiteRequest, &str) -> Response,
    /// Responds to the right password of a user.
    pub(super) then: fn(&SiteRequest, &str) -> Response,
}

#[derive(Deserialize)]
struct UserFields {
    identifier: String,
}

#[derive(Deserialize)]
struct PasswordStepFields {
    password: String,
}

#[derive(Deserialize)]
struct AccountFields {
    account: String,
}

impl Default for StepLogin {
    fn default() -> Self {
        StepLogin {
            path: "/login",
            then_password: request_password,
            then: SiteRequest::log_in,
        }
    }
}

impl StepLogin {
    /// Returns the routes of the two pages.
    pub(super) fn routes(self) -> Router {
        let show_user = move |request: SiteRequest| async move { self.show_user(&request) };
        let submit_user = move |request: SiteRequest, Form(fields): Form<UserFields>| async move {
            self.submit_user(&request, &fields.identifier)
        };
        let show = move |request: SiteRequest| async move { self.show_password(&request, "") };
        let submit = move |request: SiteRequest, Form(fields): Form<PasswordStepFields>| async move {
            self.submit_password(&request, &fields.password)
        };
        Router::new()
            .route(self.path, get(show_user).post(submit_user))
            .route(PASSWORD_PATH, get(show).post(submit))
    }

    fn show_user(self, request: &SiteRequest) -> Response {
        match request.user() {
            Some(_) => Redirect::to("/account").into_response(),
            None => self.user_page("", login_notice(request)),
        }
    }

    fn user_page(self, email: &str, notice: &str) -> Response {
        let content = form(self.path, notice, &email_field(email), "Next");
        step_page("Sign in", &content).into_response()
    }

    fn submit_user(self, request: &SiteRequest, user: &str) -> Response {
        if request.state.lock().member(user).is_none() {
            let notice = alert("We could not find an account with that email address.");
            return self.user_page(user, &notice);
        }
        (self.then_password)(request, user)
    }

    fn show_password(self, request: &SiteRequest, notice: &str) -> Response {
        let Some(login) = request.pending_login() else {
            return Redirect::to(self.path).into_response();
        };
        let user = escape(&login.user);
        let fields = format!(
            "<p>{user}</p><input type=hidden name=identifier value=\"{user}\">{PASSWORD_FIELD}"
        );
        let content = form(PASSWORD_PATH, notice, &fields, "Next");
        step_page("Welcome", &content).into_response()
    }

    fn submit_password(self, request: &SiteRequest, password: &str) -> Response {
        let Some(login) = request.pending_login() else {
            return Redirect::to(self.path).into_response();
        };
        match is_password(request, &login.user, password) {
            true => (self.then)(request, &login.user),
            false => self.show_password(request, &alert("Wrong password. Try again.")),
        }
    }
}

fn request_password(request: &SiteRequest, user: &str) -> Response {
    request.begin_login(user, false, PASSWORD_PATH)
}

pub(super) fn routes() -> Router {
    member_pages("/login").merge(StepLogin::default().routes())
}

/// A site that redirects to another host after the user name.
pub(super) fn redirect() -> Router {
    let then_password = |request: &SiteRequest, _: &str| {
        let url = request.state.lock().redirect_url.clone();
        Redirect::to(&url).into_response()
    };
    let login = StepLogin {
        then_password,
        ..Default::default()
    };
    member_pages("/login").merge(login.routes())
}

/// A site that knows the accounts of the device.
pub(super) fn picker() -> Router {
    let path = "/identifier";
    let login = StepLogin {
        path,
        ..Default::default()
    };
    member_pages("/login")
        .merge(login.routes())
        .route(
            "/login",
            get(async |request: SiteRequest| show_accounts(&request)),
        )
        .route("/choose", post(choose_account))
}

fn show_accounts(request: &SiteRequest) -> Response {
    if request.user().is_some() {
        return Redirect::to("/account").into_response();
    }
    let members = request.state.lock().members();
    let item = |user: &str, name: &str| {
        format!(
            "<li><div role=link tabindex=0 data-identifier=\"{user}\"><div>{name}</div><div>{user}</div></div>"
        )
    };
    let items: String = members.iter().map(|it| item(&it.user, it.name)).collect();
    let content = format!(
        "<p>to continue to {}</p><ul>{items}<li><a href=/identifier>Use another account</a></ul>{CHOOSE}",
        request.site
    );
    step_page("Choose an account", &content).into_response()
}

async fn choose_account(request: SiteRequest, Form(fields): Form<AccountFields>) -> Response {
    let member = request.state.lock().member(&fields.account);
    match member {
        Some(member) => request_password(&request, &member.user),
        None => Redirect::to("/login").into_response(),
    }
}

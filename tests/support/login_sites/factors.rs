//! Sites that request more than a password: a one-time code, an approval, an answer.

use axum::{
    Form, Json, Router,
    response::{IntoResponse, Redirect, Response},
    routing::{get, post},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    pages::{CODE_FIELD, alert, form, step_page},
    password::PasswordLogin,
    request::SiteRequest,
};

const WRONG_CODE: &str = "That code is wrong or was used before.";
const REMEMBER_BOX: &str =
    "<label><input type=checkbox name=remember value=on> Remember this device</label>";
const RESEND: &str =
    "<form method=post action=/code/resend><button>Send a new code</button></form>";
const QUESTION: &str = "<p>What was the name of your first pet?</p>";
const ANSWER_FIELD: &str =
    "<label for=answer>Answer</label><input id=answer name=answer autocomplete=off required>";
const PUSH_SCRIPT: &str = "<script>
    const check = async () => {
      const { approved } = await (await fetch('/push/status')).json();
      if (approved) location = '/push/finish';
      else setTimeout(check, 300);
    };
    check();
    </script>";

#[derive(Deserialize)]
struct CodeFields {
    code: String,
    remember: Option<String>,
}

#[derive(Deserialize)]
struct AnswerFields {
    answer: String,
}

/// Returns the routes of a site whose next page after the password is at a path.
fn after_password(then: fn(&SiteRequest, &str) -> Response) -> Router {
    PasswordLogin {
        then,
        ..Default::default()
    }
    .routes()
}

fn to_login() -> Response {
    Redirect::to("/login").into_response()
}

/// Returns the page for a code of an authenticator app.
fn app_code_page(notice: &str, rest_of_fields: &str) -> Response {
    let text = "<p>Enter the 6-digit code that your authenticator app shows.</p>";
    let fields = format!("{CODE_FIELD}{rest_of_fields}");
    let content = form("/code", &format!("{notice}{text}"), &fields, "Verify");
    step_page("Two-step verification", &content).into_response()
}

/// A site with one-time codes of an app, of which each is valid once.
pub(super) fn totp() -> Router {
    let show = async |request: SiteRequest| match request.identified_user() {
        Some(_) => app_code_page("", ""),
        None => to_login(),
    };
    after_password(|request, user| request.begin_login(user, true, "/code"))
        .route("/code", get(show).post(submit_totp))
}

async fn submit_totp(request: SiteRequest, Form(fields): Form<CodeFields>) -> Response {
    let Some(user) = request.identified_user() else {
        return to_login();
    };
    match accepts_totp(&request, &user, &fields.code) {
        true => request.log_in(&user),
        false => app_code_page(&alert(WRONG_CODE), ""),
    }
}

fn accepts_totp(request: &SiteRequest, user: &str, code: &str) -> bool {
    let mut state = request.state.lock();
    state.accept_totp(request.site, user, code)
}

/// A site that requests no one-time code on a remembered device.
pub(super) fn remember() -> Router {
    let show = async |request: SiteRequest| match request.identified_user() {
        Some(_) => app_code_page("", REMEMBER_BOX),
        None => to_login(),
    };
    let then = |request: &SiteRequest, user: &str| match request.is_known_device_of(user) {
        true => request.log_in(user),
        false => request.begin_login(user, true, "/code"),
    };
    after_password(then).route("/code", get(show).post(submit_totp_or_remember))
}

async fn submit_totp_or_remember(request: SiteRequest, Form(fields): Form<CodeFields>) -> Response {
    let Some(user) = request.identified_user() else {
        return to_login();
    };
    if !accepts_totp(&request, &user, &fields.code) {
        return app_code_page(&alert(WRONG_CODE), REMEMBER_BOX);
    }
    match fields.remember {
        Some(_) => (request.remember_device(&user), request.log_in(&user)).into_response(),
        None => request.log_in(&user),
    }
}

/// A site with codes by text message.
pub(super) fn sms() -> Router {
    let show = async |request: SiteRequest| match request.identified_user() {
        Some(_) => sms_page(""),
        None => to_login(),
    };
    after_password(|request, user| request.begin_login(user, true, "/code"))
        .route("/code", get(show).post(submit_sms))
        .route("/code/resend", post(resend))
}

fn sms_page(notice: &str) -> Response {
    let text = "<p>We sent a text message with a code to +49 ••• ••••12.</p>";
    let content = form("/code", &format!("{notice}{text}"), CODE_FIELD, "Verify");
    step_page("Check your phone", &format!("{content}{RESEND}")).into_response()
}

async fn submit_sms(request: SiteRequest, Form(fields): Form<CodeFields>) -> Response {
    let Some(login) = request.pending_login() else {
        return to_login();
    };
    match login.sms_code.as_ref() == Some(&fields.code) {
        true => request.log_in(&login.user),
        false => sms_page(&alert("That code is wrong. Try again.")),
    }
}

async fn resend(request: SiteRequest) -> Redirect {
    request.send_code_again();
    Redirect::to("/code")
}

/// A site whose members approve a login on their phone.
pub(super) fn push() -> Router {
    after_password(|request, user| request.begin_login(user, true, "/push"))
        .route("/push", get(push_page))
        .route("/push/status", get(push_status))
        .route("/push/finish", get(finish_push))
}

async fn push_page(request: SiteRequest) -> Response {
    let Some(login) = request.pending_login() else {
        return to_login();
    };
    let content = format!(
        "<p>Open your authenticator app, and enter the number to approve the sign in.</p>\
        <div style=\"font-size: 40px\">{}</div>{PUSH_SCRIPT}",
        login.push_number
    );
    step_page("Approve sign in request", &content).into_response()
}

async fn push_status(request: SiteRequest) -> Json<Value> {
    let login = request.pending_login();
    Json(json!({"approved": login.is_some_and(|login| login.is_approved)}))
}

async fn finish_push(request: SiteRequest) -> Response {
    match request.pending_login() {
        Some(login) if login.is_approved => request.log_in(&login.user),
        _ => to_login(),
    }
}

/// A site with a security question.
pub(super) fn question() -> Router {
    let show = async |request: SiteRequest| match request.identified_user() {
        Some(_) => question_page(""),
        None => to_login(),
    };
    after_password(|request, user| request.begin_login(user, true, "/question"))
        .route("/question", get(show).post(submit_answer))
}

fn question_page(notice: &str) -> Response {
    let content = form(
        "/question",
        &format!("{notice}{QUESTION}"),
        ANSWER_FIELD,
        "Continue",
    );
    step_page("Security question", &content).into_response()
}

async fn submit_answer(request: SiteRequest, Form(fields): Form<AnswerFields>) -> Response {
    let Some(user) = request.identified_user() else {
        return to_login();
    };
    let member = request.state.lock().member(&user);
    let is_right = member.is_some_and(|member| {
        let answer = fields.answer.trim();
        member.security_answer.eq_ignore_ascii_case(answer)
    });
    match is_right {
        true => request.log_in(&user),
        false => question_page(&alert("That answer is wrong.")),
    }
}

//! A site that requests to prove that the visitor is a person.

use axum::{
    Form, Router,
    response::{IntoResponse, Redirect, Response},
    routing::{get, post},
};
use serde::Deserialize;

use super::{
    pages::{alert, login_page, password_form},
    password::{is_password, login_notice, member_pages},
    request::SiteRequest,
    state::new_token,
};

/// Requests a token when the box is clicked. Only a person is supposed to do so.
const CAPTCHA: &str =
    "<div class=captcha><label><input type=checkbox id=captcha> I'm not a robot</label>\
    <input type=hidden name=captcha_token></div><script>
    captcha.onchange = async () => {
      const response = await fetch('/captcha', { method: 'POST' });
      captcha.form.captcha_token.value = await response.text();
    };
    </script>";

#[derive(Deserialize)]
struct CaptchaFields {
    username: String,
    password: String,
    captcha_token: String,
}

pub(super) fn routes() -> Router {
    let show = async |request: SiteRequest| match request.user() {
        Some(_) => Redirect::to("/account").into_response(),
        None => captcha_page("", login_notice(&request)),
    };
    member_pages("/login")
        .route("/login", get(show).post(submit))
        .route("/captcha", post(solve))
}

fn captcha_page(user: &str, notice: &str) -> Response {
    let form = password_form("/login", user, notice);
    let before_button = format!("{CAPTCHA}<button");
    login_page(&form.replacen("<button", &before_button, 1)).into_response()
}

async fn solve(request: SiteRequest) -> String {
    let token = new_token();
    let mut state = request.state.lock();
    state.captcha_tokens.insert(token.clone());
    token
}

async fn submit(request: SiteRequest, Form(fields): Form<CaptchaFields>) -> Response {
    let CaptchaFields {
        username,
        password,
        captcha_token,
    } = fields;
    let is_person = request.state.lock().captcha_tokens.remove(&captcha_token);
    if !is_person {
        return captcha_page(
            &username,
            &alert("Please confirm that you are not a robot."),
        );
    }
    match is_password(&request, &username, &password) {
        true => request.log_in(&username),
        false => captcha_page(&username, &alert("The user name or the password is wrong.")),
    }
}

//! A site whose members have to change their password at the first login.

use axum::{
    Form, Router,
    response::{IntoResponse, Redirect, Response},
    routing::get,
};
use serde::Deserialize;

use super::{
    pages::{alert, form, step_page},
    password::{PasswordLogin, is_password},
    request::SiteRequest,
};

const MIN_LENGTH: usize = 12;
const FIELDS: &str = "<label for=current>Current password</label>\
    <input type=password id=current name=current autocomplete=current-password required>\
    <label for=new>New password</label>\
    <input type=password id=new name=new autocomplete=new-password required>\
    <label for=confirm>Confirm new password</label>\
    <input type=password id=confirm name=confirm autocomplete=new-password required>";

#[derive(Deserialize)]
struct ChangeFields {
    current: String,
    new: String,
    confirm: String,
}

pub(super) fn routes() -> Router {
    let then = |request: &SiteRequest, user: &str| {
        let is_changed = request.state.lock().changed.contains(user);
        match is_changed {
            true => request.log_in(user),
            false => request.begin_login(user, true, "/change"),
        }
    };
    let show = async |request: SiteRequest| match request.identified_user() {
        Some(_) => change_page(""),
        None => Redirect::to("/login").into_response(),
    };
    PasswordLogin {
        then,
        ..Default::default()
    }
    .routes()
    .route("/change", get(show).post(submit))
}

fn change_page(notice: &str) -> Response {
    let text = format!(
        "{notice}<p>Choose a new password of at least {MIN_LENGTH} characters to continue.</p>"
    );
    let content = form("/change", &text, FIELDS, "Change password");
    step_page("Your password has expired", &content).into_response()
}

async fn submit(request: SiteRequest, Form(fields): Form<ChangeFields>) -> Response {
    let Some(user) = request.identified_user() else {
        return Redirect::to("/login").into_response();
    };
    if let Err(text) = check(&request, &user, &fields) {
        return change_page(&alert(text));
    }
    let mut state = request.state.lock();
    state.set_password(request.site, &user, fields.new);
    state.changed.insert(user.clone());
    drop(state);
    request.log_in(&user)
}

fn check(request: &SiteRequest, user: &str, fields: &ChangeFields) -> Result<(), &'static str> {
    if !is_password(request, user, &fields.current) {
        return Err("The current password is wrong.");
    }
    if fields.new != fields.confirm {
        return Err("The new passwords do not match.");
    }
    if fields.new.len() < MIN_LENGTH {
        return Err("The new password is too short.");
    }
    if fields.new == fields.current {
        return Err("The new password must differ from the current one.");
    }
    Ok(())
}

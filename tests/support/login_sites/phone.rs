//! The phone of the members: its text messages, its authenticator app, and its approvals.

use axum::{
    Json, Router,
    extract::Query,
    response::Html,
    routing::{get, post},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{pages::step_page, request::SiteRequest};

#[derive(Deserialize)]
struct Owner {
    user: String,
}

pub(super) fn routes() -> Router {
    Router::new()
        .route("/", get(show))
        .route("/text-message", post(read_message))
        .route("/authenticator", get(read_authenticator))
        .route("/approve", post(approve))
}

async fn show() -> Html<String> {
    step_page("Phone", "")
}

/// Returns the next code by text message, or null.
async fn read_message(request: SiteRequest) -> Json<Value> {
    Json(json!(request.state.lock().sent_codes.pop_front()))
}

/// Returns the code that the authenticator app of a member shows.
async fn read_authenticator(request: SiteRequest, Query(owner): Query<Owner>) -> Json<Value> {
    let member = request.state.lock().member(&owner.user);
    Json(json!(member.map(|member| member.totp_code())))
}

/// Approves all logins that wait for it, and returns whether there were any.
async fn approve(request: SiteRequest) -> Json<Value> {
    Json(json!(request.state.lock().approve_pushes()))
}

//! `/browsers/{id}/json/…`: how DevTools clients find a browser and its tabs, with addresses that work from where the client is.

use axum::{
    body::Body,
    extract::Request,
    response::{IntoResponse, Response},
};
use http::{Method, StatusCode};
use http_body_util::{BodyExt, Limited};
use serde_json::Value;
use url::Url;

use super::session::agent;
use crate::{
    control::{
        Control,
        proxy::SessionPath,
        routes::{auth::Principal, public_base_url::PublicBaseUrl},
        session_token::Scope,
    },
    http::{ApiError, ApiResult, Json},
};

pub mod list;
pub mod version;

const TAG: &str = crate::api::groups::DEVTOOLS;
/// Room for some thousand tabs.
const MAX_ANSWER: usize = 8 << 20;
/// Where the frontend is told its tab's address; the second is for an encrypted connection.
const FRONTEND_PARAMETERS: [&str; 2] = ["ws", "wss"];

/// The agent's answer, with its addresses led through control.
async fn ask(
    control: &Control,
    principal: &Principal,
    base_url: &PublicBaseUrl,
    id: &str,
    mut request: Request,
) -> ApiResult<Response> {
    let path = request.uri().path().to_owned();
    let path = SessionPath::of_request(&path)?.trimmed();
    let session = control.browsers.session(&principal.project, id).await?;
    // A HEAD wants the same headers, which only the whole answer gives.
    *request.method_mut() = Method::GET;
    let answer = control.proxy.pass(&agent(&session), path, request).await?;
    if answer.status() != StatusCode::OK {
        return Ok(answer);
    }
    let mut answer = read(answer.into_body()).await?;
    let token = control
        .tokens
        .issue(&session.id, &principal.project, &Scope::Session);
    lead_through(&mut answer, &|path| {
        base_url.websocket(&session.id, path, &token)
    });
    Ok(Json(answer).into_response())
}

async fn read(body: Body) -> ApiResult<Value> {
    let refused = |cause: &dyn std::fmt::Display| {
        tracing::warn!(%cause, "an agent's list of targets was not understood");
        ApiError::bad_gateway("the browser's answer was not understood")
    };
    let body = Limited::new(body, MAX_ANSWER).collect().await;
    let body = body.map_err(|error| refused(&error))?.to_bytes();
    serde_json::from_slice(&body).map_err(|error| refused(&error))
}

fn lead_through(answer: &mut Value, outside: &impl Fn(&str) -> String) {
    match answer {
        Value::Array(items) => items
            .iter_mut()
            .for_each(|item| lead_through(item, outside)),
        Value::Object(fields) => {
            if let Some(Value::String(address)) = fields.get_mut("webSocketDebuggerUrl") {
                *address = outside(lasting_path(address).as_deref().unwrap_or("/cdp"));
            }
            if let Some(Value::String(address)) = fields.get_mut("devtoolsFrontendUrl")
                && let Some(moved) = moved_frontend(address, outside)
            {
                *address = moved;
            }
        }
        _ => {}
    }
}

/// Where an address of the agent leads; the browser's own by the path that a restart of Chromium does not change.
fn lasting_path(address: &str) -> Option<String> {
    let path = Url::parse(address).ok()?.path().to_owned();
    (!path.starts_with("/devtools/browser/")).then_some(path)
}

/// The frontend's address with its tab's within it. It may be a path alone, so only its query is looked at.
fn moved_frontend(address: &str, outside: &impl Fn(&str) -> String) -> Option<String> {
    let (page, query) = address.split_once('?')?;
    let mut moved = url::form_urlencoded::Serializer::new(String::new());
    for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
        if !FRONTEND_PARAMETERS.contains(&name.as_ref()) {
            moved.append_pair(&name, &value);
            continue;
        }
        let target = outside(&lasting_path(&format!("ws://{value}"))?);
        let (scheme, rest) = target.split_once("://")?;
        moved.append_pair(scheme, rest);
    }
    Some(format!("{page}?{}", moved.finish()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn outside(path: &str) -> String {
        format!("wss://berth.example/browsers/brw_1{path}?jwt=t.o.k")
    }

    #[test]
    fn a_browsers_address_is_one_that_a_restart_does_not_change() {
        let mut version = json!({
            "Browser": "Chrome/150",
            "webSocketDebuggerUrl": "ws://127.0.0.1:4000/devtools/browser/6d6a-1",
        });
        lead_through(&mut version, &outside);
        let expected = "wss://berth.example/browsers/brw_1/cdp?jwt=t.o.k";
        assert_eq!(version["webSocketDebuggerUrl"], expected);
        assert_eq!(version["Browser"], "Chrome/150");
    }

    #[test]
    fn every_tab_keeps_its_own_path() {
        let mut list = json!([
            {
                "id": "A1",
                "url": "http://example.com/?ws=127.0.0.1:4000",
                "devtoolsFrontendUrl": "https://frontend.example/serve_rev/@1/inspector.html?ws=127.0.0.1:4000/devtools/page/A1&x=1",
                "webSocketDebuggerUrl": "ws://127.0.0.1:4000/devtools/page/A1",
            },
            { "id": "B2", "devtoolsFrontendUrl": "/devtools/inspector.html" },
        ]);
        lead_through(&mut list, &outside);
        let expected = "wss://berth.example/browsers/brw_1/devtools/page/A1?jwt=t.o.k";
        assert_eq!(list[0]["webSocketDebuggerUrl"], expected);
        assert_eq!(list[0]["url"], "http://example.com/?ws=127.0.0.1:4000");
        let frontend = Url::parse(list[0]["devtoolsFrontendUrl"].as_str().unwrap()).unwrap();
        let pairs: Vec<_> = frontend.query_pairs().into_owned().collect();
        let target = expected.strip_prefix("wss://").unwrap().to_owned();
        assert_eq!(
            pairs,
            [("wss".to_owned(), target), ("x".to_owned(), "1".to_owned())]
        );
        assert_eq!(list[1]["devtoolsFrontendUrl"], "/devtools/inspector.html");
    }
}

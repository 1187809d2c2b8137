//! `/browsers/{id}/json/…`: how DevTools clients discover a browser and its targets.
//!
//! The agent's response is forwarded with addresses that work from where the client is.

use axum::{
    body::Body,
    extract::{FromRequestParts, Request, State},
    response::{IntoResponse, Response},
};
use http::{Method, StatusCode};
use http_body_util::{BodyExt, Limited};
use serde_json::Value;
use url::Url;

use super::session::SessionForwarder;
use crate::{
    control::{
        Control,
        proxy::SessionPath,
        routes::{authentication::Principal, public_base_url::PublicBaseUrl},
        session_token::{Scope, SessionTokens},
    },
    http::{ApiError, ApiResult, Json},
};

pub(crate) mod list;
pub(crate) mod version;

const TAG: &str = crate::api::groups::DEVTOOLS;
/// The most bytes of an agent's response, enough for some thousand targets.
const MAX_RESPONSE: usize = 8 << 20;
/// The field with the URL of a page that shows the DevTools of a target.
const FRONTEND_FIELD: &str = "devtoolsFrontendUrl";
/// The query parameters of a frontend's URL that contain the address of its target, the second for
/// an encrypted connection.
const FRONTEND_PARAMETERS: [&str; 2] = ["ws", "wss"];

/// Queries agents for their DevTools targets.
#[derive(FromRequestParts)]
#[from_request(state(Control))]
pub(crate) struct DevtoolsTargets {
    forwarder: SessionForwarder,
    #[from_request(via(State))]
    tokens: SessionTokens,
    base_url: PublicBaseUrl,
}

impl DevtoolsTargets {
    /// Forwards a request to the agent and replaces the addresses in its response.
    async fn query(&self, id: &str, mut request: Request) -> ApiResult<Response> {
        let path = request.uri().path().to_owned();
        let path = SessionPath::of_request(&path)?.trimmed();
        let session = self.forwarder.session(id).await?;
        // The headers of a HEAD response depend on the complete body.
        *request.method_mut() = Method::GET;
        let response = self.forwarder.forward(&session, path, request).await?;
        if response.status() != StatusCode::OK {
            return Ok(response);
        }
        let mut targets = read_json(response.into_body()).await?;
        let Principal {
            project, issuer, ..
        } = &self.forwarder.principal;
        let scope = Scope::Session;
        let token = self.tokens.issue(issuer, &session.id, project, &scope);
        rewrite_addresses(&mut targets, &|path| {
            self.base_url.websocket(&session.id, path, &token)
        });
        Ok(Json(targets).into_response())
    }
}

async fn read_json(body: Body) -> ApiResult<Value> {
    let invalid = |cause: &dyn std::fmt::Display| {
        tracing::warn!(%cause, "invalid list of DevTools targets from an agent");
        ApiError::bad_gateway("the browser's response is invalid")
    };
    let body = Limited::new(body, MAX_RESPONSE).collect().await;
    let body = body.map_err(|error| invalid(&error))?.to_bytes();
    serde_json::from_slice(&body).map_err(|error| invalid(&error))
}

/// Replaces the addresses in a list of targets. `public_url` returns the address for a path of the
/// agent.
fn rewrite_addresses(targets: &mut Value, public_url: &impl Fn(&str) -> String) {
    match targets {
        Value::Array(items) => items
            .iter_mut()
            .for_each(|item| rewrite_addresses(item, public_url)),
        Value::Object(fields) => {
            if let Some(Value::String(address)) = fields.get_mut("webSocketDebuggerUrl") {
                *address = public_url(stable_path(address).as_deref().unwrap_or("/cdp"));
            }
            if let Some(Value::String(address)) = fields.get_mut(FRONTEND_FIELD) {
                if !is_path(address) {
                    // A token must not reach the server of the frontend.
                    fields.remove(FRONTEND_FIELD);
                } else if let Some(rewritten) = rewrite_frontend(address, public_url) {
                    *address = rewritten;
                }
            }
        }
        _ => {}
    }
}

/// Returns whether a URL is a path of the server that it was read from.
fn is_path(url: &str) -> bool {
    url.strip_prefix('/')
        .is_some_and(|rest| !rest.starts_with(['/', '\\']))
}

/// Returns the path of an agent's address. Returns `None` for the browser's own address, whose
/// path changes with each restart of Chromium.
fn stable_path(address: &str) -> Option<String> {
    let path = Url::parse(address).ok()?.path().to_owned();
    (!path.starts_with("/devtools/browser/")).then_some(path)
}

/// Replaces the address of the target in a frontend's URL. The URL is a path, so only its query is
/// parsed.
fn rewrite_frontend(address: &str, public_url: &impl Fn(&str) -> String) -> Option<String> {
    let (page, query) = address.split_once('?')?;
    let mut rewritten = url::form_urlencoded::Serializer::new(String::new());
    for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
        if !FRONTEND_PARAMETERS.contains(&name.as_ref()) {
            rewritten.append_pair(&name, &value);
            continue;
        }
        let target = public_url(&stable_path(&format!("ws://{value}"))?);
        let (scheme, rest) = target.split_once("://")?;
        rewritten.append_pair(scheme, rest);
    }
    Some(format!("{page}?{}", rewritten.finish()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn public_url(path: &str) -> String {
        format!("wss://berth.example/browsers/brw_1{path}?jwt=t.o.k")
    }

    #[test]
    fn address_of_the_browser_survives_a_restart() {
        let mut version = json!({
            "Browser": "Chrome/150",
            "webSocketDebuggerUrl": "ws://127.0.0.1:4000/devtools/browser/6d6a-1",
        });
        rewrite_addresses(&mut version, &public_url);
        let expected = "wss://berth.example/browsers/brw_1/cdp?jwt=t.o.k";
        assert_eq!(version["webSocketDebuggerUrl"], expected);
        assert_eq!(version["Browser"], "Chrome/150");
    }

    #[test]
    fn each_target_keeps_its_own_path() {
        let mut list = json!([
            {
                "id": "A1",
                "url": "http://example.com/?ws=127.0.0.1:4000",
                "devtoolsFrontendUrl": "/devtools/inspector.html?ws=127.0.0.1:4000/devtools/page/A1&x=1",
                "webSocketDebuggerUrl": "ws://127.0.0.1:4000/devtools/page/A1",
            },
            { "id": "B2", "devtoolsFrontendUrl": "/devtools/inspector.html" },
            { "devtoolsFrontendUrl": "https://frontend.example/@1/inspector.html?ws=127.0.0.1:4000/devtools/page/C3" },
            { "devtoolsFrontendUrl": "//frontend.example/inspector.html?ws=127.0.0.1:4000/devtools/page/C3" },
        ]);
        rewrite_addresses(&mut list, &public_url);
        let expected = "wss://berth.example/browsers/brw_1/devtools/page/A1?jwt=t.o.k";
        assert_eq!(list[0]["webSocketDebuggerUrl"], expected);
        assert_eq!(list[0]["url"], "http://example.com/?ws=127.0.0.1:4000");
        let frontend = list[0]["devtoolsFrontendUrl"].as_str().unwrap();
        let (page, query) = frontend.split_once('?').unwrap();
        assert_eq!(page, "/devtools/inspector.html");
        let pairs: Vec<_> = url::form_urlencoded::parse(query.as_bytes())
            .into_owned()
            .collect();
        let target = expected.strip_prefix("wss://").unwrap().to_owned();
        assert_eq!(
            pairs,
            [("wss".to_owned(), target), ("x".to_owned(), "1".to_owned())]
        );
        assert_eq!(list[1]["devtoolsFrontendUrl"], "/devtools/inspector.html");
        assert_eq!([&list[2], &list[3]], [&json!({}); 2]);
    }
}

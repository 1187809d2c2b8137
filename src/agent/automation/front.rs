//! Which tab is in front, as Chromium has it.

use std::{net::SocketAddr, time::Duration};

use http::Method;
use serde::Deserialize;

use crate::system::cdp::devtools::DevtoolsHttp;

/// The browser's process answers within a millisecond; a script does not wait long for it.
const DEADLINE: Duration = Duration::from_millis(500);

#[derive(Deserialize)]
struct Target {
    id: String,
    #[serde(rename = "type")]
    kind: String,
}

/// The target ids of all tabs, the one that was in front last first: the order of `/json/list`. `None` if it does not answer.
pub async fn activity_order(http: &DevtoolsHttp, addr: SocketAddr) -> Option<Vec<String>> {
    let answer = tokio::time::timeout(DEADLINE, http.ask(addr, Method::GET, "/json/list"));
    let (_, body) = answer.await.ok()?.ok()?;
    let targets: Vec<Target> = serde_json::from_slice(&body).ok()?;
    Some(
        targets
            .into_iter()
            .filter(|target| target.kind == "page")
            .map(|target| target.id)
            .collect(),
    )
}

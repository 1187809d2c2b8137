//! The headers of forwarded requests.

use std::net::SocketAddr;

use axum::extract::ConnectInfo;
use http::{
    header::{self, HeaderMap, HeaderName, HeaderValue},
    request::Parts,
};
use secrecy::ExposeSecret;

use super::ProxyTarget;
use crate::{
    control::fleet::{AgentAccess, GENERATION},
    http::forward,
};

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// The headers that are meant for control and not forwarded.
const REMOVED_HEADERS: [HeaderName; 8] = [
    header::AUTHORIZATION,
    header::COOKIE,
    header::HOST,
    // The URL of a page may contain a session token.
    header::REFERER,
    // Names a session of the agent, which clients of control do not know.
    GENERATION,
    HeaderName::from_static("x-project-id"),
    HeaderName::from_static("x-kernel-project-id"),
    HeaderName::from_static("x-kernel-project"),
];

/// Returns the headers of a request to an agent, with the agent's token, if it has one, and the
/// session that the request is for.
pub(super) fn for_agent(parts: &Parts, target: &ProxyTarget) -> HeaderMap {
    let mut headers = parts.headers.clone();
    forward::strip_hop_by_hop_from_request(&mut headers);
    let host = parts.headers.get(header::HOST).cloned();
    for name in &REMOVED_HEADERS {
        headers.remove(name);
    }
    if let Some(ConnectInfo(peer)) = parts.extensions.get::<ConnectInfo<SocketAddr>>() {
        append_forwarded_for(&mut headers, *peer);
    }
    if let Some(host) = host {
        headers.entry(FORWARDED_HOST).or_insert(host);
    }
    // A proxy in front of control that terminates TLS has set the header.
    headers
        .entry(FORWARDED_PROTO)
        .or_insert(HeaderValue::from_static("http"));
    forward::add_via_control(&mut headers);
    if let Some(generation) = target.agent.generation {
        headers.insert(GENERATION, generation.into());
    }
    if let AgentAccess::Token(token) = &target.agent.access
        && let Ok(mut value) = HeaderValue::try_from(format!("Bearer {}", token.expose_secret()))
    {
        value.set_sensitive(true);
        headers.insert(header::AUTHORIZATION, value);
    }
    headers
}

fn append_forwarded_for(headers: &mut HeaderMap, peer: SocketAddr) {
    let before = headers
        .get_all(FORWARDED_FOR)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .map(str::to_owned);
    let all: Vec<String> = before.chain([peer.ip().to_string()]).collect();
    if let Ok(value) = HeaderValue::try_from(all.join(", ")) {
        headers.insert(FORWARDED_FOR, value);
    }
}

//! What an agent is told of a request, and what it is not.

use std::net::SocketAddr;

use axum::extract::ConnectInfo;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use secrecy::{ExposeSecret, SecretString};

use crate::http::forward;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// What is between the principal and control, and nothing of the agent's.
const NOT_FOR_THE_AGENT: [HeaderName; 6] = [
    header::AUTHORIZATION,
    header::COOKIE,
    header::HOST,
    // The address of a page may carry a token of ours.
    header::REFERER,
    HeaderName::from_static("x-project-id"),
    HeaderName::from_static("x-kernel-project-id"),
];

/// The headers of a request on its way to an agent that `token` opens.
pub fn for_agent(parts: &Parts, token: &SecretString) -> HeaderMap {
    let mut headers = parts.headers.clone();
    forward::strip_hop_by_hop_of_request(&mut headers);
    let host = parts.headers.get(header::HOST).cloned();
    for name in &NOT_FOR_THE_AGENT {
        headers.remove(name);
    }
    if let Some(ConnectInfo(peer)) = parts.extensions.get::<ConnectInfo<SocketAddr>>() {
        append_forwarded_for(&mut headers, *peer);
    }
    if let Some(host) = host {
        headers.entry(FORWARDED_HOST).or_insert(host);
    }
    // A proxy in front of us that ended TLS has said so.
    headers
        .entry(FORWARDED_PROTO)
        .or_insert(HeaderValue::from_static("http"));
    if let Ok(mut value) = HeaderValue::try_from(format!("Bearer {}", token.expose_secret())) {
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

//! Refusing what a web page sends to a server that takes everyone on its machine.
//!
//! A page that the machine's user has open can make their browser send requests to loopback. It can choose neither the `Origin` that the
//! browser puts on them, nor the `Host`: not even where its own name resolves to a loopback address (DNS rebinding).

use std::net::IpAddr;

use http::HeaderMap;
use http::header::{HOST, ORIGIN};
use http::uri::Authority;

use super::{ApiError, ApiResult};

/// Lets through what is asked of this machine by its name, and by no page but our own.
///
/// # Errors
/// 403 for all else.
pub fn check(headers: &HeaderMap) -> ApiResult<()> {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let Some(host) = host.filter(|host| is_this_machine(host)) else {
        return Err(ApiError::forbidden(
            "without a token, the Host must be localhost or a loopback address",
        ));
    };
    match headers.get(ORIGIN) {
        Some(origin) if !is_origin_of(origin.to_str().unwrap_or_default(), host) => Err(
            ApiError::forbidden("without a token, pages of other origins are refused"),
        ),
        _ => Ok(()),
    }
}

fn is_this_machine(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else {
        return false;
    };
    let name = authority.host();
    let address = name.trim_start_matches('[').trim_end_matches(']');
    !host.contains('@')
        && (name.eq_ignore_ascii_case("localhost")
            || address.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback()))
}

fn is_origin_of(origin: &str, host: &str) -> bool {
    let authority = origin
        .strip_prefix("http://")
        .or_else(|| origin.strip_prefix("https://"));
    authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn passes(host: Option<&'static str>, origin: Option<&'static str>) -> bool {
        let pairs = [(HOST, host), (ORIGIN, origin)];
        let headers = pairs
            .into_iter()
            .filter_map(|(name, value)| Some((name, HeaderValue::from_static(value?))))
            .collect();
        check(&headers).is_ok()
    }

    #[test]
    fn only_names_of_this_machine_are_answered_to() {
        for host in [
            "localhost",
            "LOCALHOST:10001",
            "127.0.0.1:10001",
            "127.3.2.1",
            "[::1]:10001",
        ] {
            assert!(passes(Some(host), None), "{host}");
        }
        for host in [
            "",
            "evil.example:10001",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "192.168.0.1:10001",
            "0.0.0.0:10001",
            "evil.example@127.0.0.1",
            "a b",
        ] {
            assert!(!passes(Some(host), None), "{host}");
        }
        assert!(!passes(None, None));
    }

    #[test]
    fn only_our_own_pages_are_answered() {
        let host = Some("127.0.0.1:10001");
        assert!(passes(host, Some("http://127.0.0.1:10001")));
        for origin in [
            "null",
            "",
            "http://127.0.0.1",
            "http://127.0.0.1:3000",
            "http://localhost:10001",
            "https://evil.example",
            "http://127.0.0.1:10001.evil.example",
        ] {
            assert!(!passes(host, Some(origin)), "{origin}");
        }
    }
}

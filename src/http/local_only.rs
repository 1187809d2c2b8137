//! Refusing what a web page sends to a server that takes everyone on its machine.
//!
//! A page that the machine's user has open can make their browser send requests to loopback. It can choose neither the `Origin` that the
//! browser puts on them, nor the `Host`: not even where its own name resolves to a loopback address (DNS rebinding). A navigation has no
//! `Origin`, but a browser tells of it where it comes from and where it leads (`Sec-Fetch-…`): as the whole document it is for the user to
//! see, as a part of another site's page it would be for that page to cover and have clicked on.

use std::net::IpAddr;

use http::header::{HOST, HeaderName, ORIGIN};
use http::uri::Authority;
use http::{HeaderMap, HeaderValue};

use super::{ApiError, ApiResult};

const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const DESTINATION: HeaderName = HeaderName::from_static("sec-fetch-dest");

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
    let origin = headers.get(ORIGIN).map(HeaderValue::to_str);
    let is_own = origin.is_none_or(|origin| is_origin_of(origin.unwrap_or_default(), host));
    if is_own && !is_for_another_page(headers) {
        Ok(())
    } else {
        Err(ApiError::forbidden(
            "without a token, pages of other origins are refused",
        ))
    }
}

/// Whether a page of another origin asks for it, and not its user, who follows a link.
fn is_for_another_page(headers: &HeaderMap) -> bool {
    let is = |name, value: &str| headers.get(name).is_some_and(|told| told == value);
    let is_foreign = is(SITE, "cross-site") || is(SITE, "same-site");
    is_foreign && !(is(MODE, "navigate") && is(DESTINATION, "document"))
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
    use super::*;

    fn passes(host: Option<&'static str>, origin: Option<&'static str>) -> bool {
        let pairs = [(HOST, host), (ORIGIN, origin)];
        let pairs = pairs.into_iter();
        is_let_through(pairs.filter_map(|(name, value)| Some((name, value?))))
    }

    fn is_let_through(pairs: impl IntoIterator<Item = (HeaderName, &'static str)>) -> bool {
        let pairs = pairs.into_iter();
        let headers = pairs.map(|(name, value)| (name, HeaderValue::from_static(value)));
        check(&headers.collect()).is_ok()
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
    #[test]
    fn other_sites_may_link_to_our_pages_but_not_frame_them() {
        for (site, mode, destination, passes) in [
            ("none", "navigate", "document", true),
            ("same-origin", "navigate", "iframe", true),
            ("same-origin", "cors", "empty", true),
            ("cross-site", "navigate", "document", true),
            ("same-site", "navigate", "document", true),
            ("cross-site", "navigate", "iframe", false),
            ("same-site", "navigate", "iframe", false),
            ("cross-site", "navigate", "object", false),
            ("cross-site", "no-cors", "image", false),
            ("cross-site", "no-cors", "document", false),
            ("same-site", "cors", "empty", false),
        ] {
            let headers = [
                (HOST, "127.0.0.1:10001"),
                (SITE, site),
                (MODE, mode),
                (DESTINATION, destination),
            ];
            assert_eq!(
                is_let_through(headers),
                passes,
                "{site} {mode} {destination}"
            );
        }
        let unsaid = [(HOST, "127.0.0.1:10001"), (SITE, "cross-site")];
        assert!(!is_let_through(unsaid));
    }
}

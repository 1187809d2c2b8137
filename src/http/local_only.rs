//! Rejects requests of cross-site web pages at a server that accepts local clients without a token.
//!
//! A web page open on this machine can make its browser send requests to loopback. The page
//! controls neither the `Origin` that the browser adds nor the `Host`, even if its own name
//! resolves to a loopback address (DNS rebinding). A navigation has no `Origin`, but browsers
//! describe it in `Sec-Fetch-…` headers, from which follows:
//!
//! | request of another site's page | |
//! |---|---|
//! | top-level navigation to a page of the server | accepted: a link, which only shows it |
//! | top-level navigation to another route | rejected: it would act without its user |
//! | a page of the server in a frame | rejected: it could be covered (clickjacking) |
//! | everything else | rejected |
//!
//! An address that the user has typed is treated like a link: if another site redirects from there
//! to this server, its request looks the same.

use std::net::IpAddr;

use http::{
    HeaderMap, HeaderValue, Method, Request,
    header::{HOST, HeaderName, ORIGIN},
    uri::Authority,
};

use super::{ApiError, ApiResult};

const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const DESTINATION: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// The routes of HTML pages, which other sites may link to. A request to one has no effect.
pub(super) type Pages = &'static [&'static str];

/// Accepts requests that address this machine by a loopback name and come from no other origin, and
/// navigations of other origins to `pages`.
///
/// # Errors
/// Returns 403 for all other requests.
pub(super) fn check<B>(request: &Request<B>, pages: Pages) -> ApiResult<()> {
    let headers = request.headers();
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let Some(host) = host.filter(|host| is_loopback_host(host)) else {
        return Err(ApiError::forbidden(
            "servers without a token accept only localhost or a loopback address as Host",
        ));
    };
    let origin = headers.get(ORIGIN).map(HeaderValue::to_str);
    let is_same_origin = origin.is_none_or(|origin| is_origin_of(origin.unwrap_or_default(), host));
    let is_accepted = !may_be_of_other_origin(headers) || is_link_to(request, pages);
    if is_same_origin && is_accepted {
        Ok(())
    } else {
        Err(ApiError::forbidden(
            "servers without a token reject requests of other origins, and addresses entered in a browser \
             that are no page",
        ))
    }
}

/// Returns whether a browser sends this for another origin's page. A redirect by another site of
/// an address that the user has typed is `none`.
fn may_be_of_other_origin(headers: &HeaderMap) -> bool {
    ["cross-site", "same-site", "none"]
        .iter()
        .any(|site| has(headers, SITE, site))
}

/// Returns whether a browser shows one of `pages` instead of the page with the link.
fn is_link_to<B>(request: &Request<B>, pages: Pages) -> bool {
    let headers = request.headers();
    *request.method() == Method::GET
        && has(headers, MODE, "navigate")
        && has(headers, DESTINATION, "document")
        && pages.contains(&request.uri().path())
}

fn has(headers: &HeaderMap, name: HeaderName, expected: &str) -> bool {
    headers.get(name).is_some_and(|value| value == expected)
}

fn is_loopback_host(host: &str) -> bool {
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

    fn accepts(host: Option<&'static str>, origin: Option<&'static str>) -> bool {
        let pairs = [(HOST, host), (ORIGIN, origin)];
        let pairs = pairs.into_iter();
        accepts_headers(pairs.filter_map(|(name, value)| Some((name, value?))))
    }

    fn accepts_headers(pairs: impl IntoIterator<Item = (HeaderName, &'static str)>) -> bool {
        accepts_request(Method::GET, "/page", pairs)
    }

    fn accepts_request(
        method: Method,
        target: &str,
        headers: impl IntoIterator<Item = (HeaderName, &'static str)>,
    ) -> bool {
        let request = Request::builder().method(method).uri(target);
        let mut request = request.body(()).unwrap();
        let pairs = headers.into_iter();
        let headers = pairs.map(|(name, value)| (name, HeaderValue::from_static(value)));
        request.headers_mut().extend(headers);
        check(&request, &["/page"]).is_ok()
    }

    #[test]
    fn host_must_be_a_loopback_name() {
        for host in [
            "localhost",
            "LOCALHOST:10001",
            "127.0.0.1:10001",
            "127.3.2.1",
            "[::1]:10001",
        ] {
            assert!(accepts(Some(host), None), "{host}");
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
            assert!(!accepts(Some(host), None), "{host}");
        }
        assert!(!accepts(None, None));
    }

    #[test]
    fn origin_must_be_the_servers() {
        let host = Some("127.0.0.1:10001");
        assert!(accepts(host, Some("http://127.0.0.1:10001")));
        for origin in [
            "null",
            "",
            "http://127.0.0.1",
            "http://127.0.0.1:3000",
            "http://localhost:10001",
            "https://evil.example",
            "http://127.0.0.1:10001.evil.example",
        ] {
            assert!(!accepts(host, Some(origin)), "{origin}");
        }
    }

    #[test]
    fn other_sites_may_link_to_pages_but_not_frame_them() {
        for (site, mode, destination, is_accepted) in [
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
                accepts_headers(headers),
                is_accepted,
                "{site} {mode} {destination}"
            );
        }
        let without_mode = [(HOST, "127.0.0.1:10001"), (SITE, "cross-site")];
        assert!(!accepts_headers(without_mode));
    }

    #[test]
    fn other_sites_may_link_to_no_other_route() {
        for (method, target, site, is_accepted) in [
            (Method::GET, "/page", "cross-site", true),
            (Method::GET, "/page?jwt=x", "same-site", true),
            (Method::HEAD, "/page", "cross-site", false),
            (Method::GET, "/page/", "cross-site", false),
            (Method::GET, "/download", "cross-site", false),
            (Method::GET, "/download", "same-site", false),
            (Method::GET, "/download", "same-origin", true),
            (Method::GET, "/download", "none", false),
            (Method::POST, "/page", "cross-site", false),
        ] {
            let headers = [
                (HOST, "127.0.0.1:10001"),
                (SITE, site),
                (MODE, "navigate"),
                (DESTINATION, "document"),
            ];
            let found = accepts_request(method.clone(), target, headers);
            assert_eq!(found, is_accepted, "{method} {target} {site}");
        }
    }
}

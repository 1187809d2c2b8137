//! Hop-by-hop headers, which a proxy must not forward (RFC 9110, section 7.6.1), and `Via`, which
//! names it (section 7.6.3).

use http::{
    HeaderValue,
    header::{self, HeaderMap, HeaderName},
};

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

/// Headers that apply to one connection, whether or not `Connection` lists them.
///
/// `Trailer` is forwarded: the next hop needs it to know which trailers to pass.
const HOP_BY_HOP: [HeaderName; 8] = [
    header::CONNECTION,
    KEEP_ALIVE,
    PROXY_CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// The part of `Via` that stands for control.
const VIA_CONTROL: &str = "1.1 berth";

/// Adds control to the proxies that forwarded the request.
pub fn add_via_control(headers: &mut HeaderMap) {
    headers.append(header::VIA, HeaderValue::from_static(VIA_CONTROL));
}

/// Returns whether control was the last proxy that forwarded the request.
pub fn is_via_control(headers: &HeaderMap) -> bool {
    let last = headers.get_all(header::VIA).iter().next_back();
    last.is_some_and(|value| value == VIA_CONTROL)
}

/// Removes hop-by-hop headers, including those that `Connection` lists.
pub fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let listed: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in HOP_BY_HOP.iter().chain(&listed) {
        headers.remove(name);
    }
}

/// Removes hop-by-hop headers from a request, but keeps `TE: trailers` for the next hop.
pub fn strip_hop_by_hop_from_request(headers: &mut HeaderMap) {
    let accepts_trailers = headers
        .get_all(header::TE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|coding| coding.trim().eq_ignore_ascii_case("trailers"));
    strip_hop_by_hop(headers);
    if accepts_trailers {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
        headers.insert(header::CONNECTION, HeaderValue::from_static("te"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|&(name, value)| {
                (
                    HeaderName::from_static(name),
                    HeaderValue::from_static(value),
                )
            })
            .collect()
    }

    #[test]
    fn headers_listed_in_connection_are_removed() {
        let mut headers = headers(&[
            ("connection", "close, X-Secret"),
            ("connection", "x-other"),
            ("x-secret", "1"),
            ("x-other", "2"),
            ("keep-alive", "timeout=5"),
            ("transfer-encoding", "chunked"),
            ("proxy-authorization", "Basic eA=="),
            ("upgrade", "h2c"),
            ("trailer", "x-sum"),
            ("accept", "*/*"),
        ]);
        strip_hop_by_hop(&mut headers);
        let mut remaining: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        remaining.sort_unstable();
        assert_eq!(remaining, ["accept", "trailer"]);
    }

    #[test]
    fn te_keeps_only_trailers() {
        let mut with = headers(&[("te", "gzip;q=0.5, trailers"), ("connection", "TE")]);
        strip_hop_by_hop_from_request(&mut with);
        assert_eq!(with.get("te").unwrap(), "trailers");
        let mut without = headers(&[("te", "gzip"), ("connection", "te, close")]);
        strip_hop_by_hop_from_request(&mut without);
        assert!(without.is_empty());
    }
}

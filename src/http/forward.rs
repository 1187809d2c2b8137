//! Which headers pass from one connection to the next (RFC 9110, section 7.6.1).

use http::HeaderValue;
use http::header::{self, HeaderMap, HeaderName};

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

/// Headers that speak of one connection, whether or not `Connection` lists them. `Trailer` is not among them: the next
/// hop needs it to know which trailers to let through.
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

/// Removes what speaks of this connection alone, and what `Connection` says does.
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

/// Removes what speaks of this connection alone from a request, but for the wish to have trailers: it is passed on in our name.
pub fn strip_hop_by_hop_of_request(headers: &mut HeaderMap) {
    let wants_trailers = headers
        .get_all(header::TE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|coding| coding.trim().eq_ignore_ascii_case("trailers"));
    strip_hop_by_hop(headers);
    if wants_trailers {
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
    fn what_the_connection_lists_goes_with_it() {
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
        let mut left: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["accept", "trailer"]);
    }

    #[test]
    fn only_the_wish_for_trailers_is_left_of_te() {
        let mut with = headers(&[("te", "gzip;q=0.5, trailers"), ("connection", "TE")]);
        strip_hop_by_hop_of_request(&mut with);
        assert_eq!(with.get("te").unwrap(), "trailers");
        let mut without = headers(&[("te", "gzip"), ("connection", "te, close")]);
        strip_hop_by_hop_of_request(&mut without);
        assert!(without.is_empty());
    }
}

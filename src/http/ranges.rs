//! Partial and conditional responses: `Range`, `If-Range` and `If-None-Match` (RFC 9110, sections
//! 13 and 14).

use std::ops::Range;

use axum::{body::Body, response::Response};
use http::{
    HeaderValue, StatusCode,
    header::{
        ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderMap, IF_NONE_MATCH, IF_RANGE,
        RANGE,
    },
};

/// The response to a request for a representation of known length and strong entity tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeResponse {
    length: u64,
    etag: HeaderValue,
    outcome: RangeOutcome,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum RangeOutcome {
    /// 200 with all bytes.
    Full,
    /// 206 with these bytes.
    Partial(Range<u64>),
    /// 304: the client has the current representation.
    NotModified,
    /// 416: the requested range lies beyond the end.
    Unsatisfiable,
}

impl RangeResponse {
    /// Evaluates the request's headers. `etag` is a strong entity tag, quotes included.
    ///
    /// Unknown units, malformed ranges and multiple ranges get the full representation, as the RFC
    /// requires or allows.
    #[must_use]
    pub fn new(request: &HeaderMap, length: u64, etag: HeaderValue) -> Self {
        let outcome = evaluate(request, length, &etag);
        Self {
            length,
            etag,
            outcome,
        }
    }

    /// Returns the bytes to send; `None` if the response has no body.
    #[must_use]
    pub fn range(&self) -> Option<Range<u64>> {
        match &self.outcome {
            RangeOutcome::Full => Some(0..self.length),
            RangeOutcome::Partial(range) => Some(range.clone()),
            RangeOutcome::NotModified | RangeOutcome::Unsatisfiable => None,
        }
    }

    /// Returns the response with `body`, which holds the bytes of [`Self::range`].
    #[must_use]
    pub fn with_body(self, body: Body) -> Response {
        let (status, length) = match &self.outcome {
            RangeOutcome::Full => (StatusCode::OK, Some(self.length)),
            RangeOutcome::Partial(range) => {
                (StatusCode::PARTIAL_CONTENT, Some(range.end - range.start))
            }
            RangeOutcome::NotModified => (StatusCode::NOT_MODIFIED, None),
            RangeOutcome::Unsatisfiable => (StatusCode::RANGE_NOT_SATISFIABLE, None),
        };
        let mut response = Response::new(body);
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        headers.insert(ETAG, self.etag);
        if let Some(length) = length {
            headers.insert(CONTENT_LENGTH, length.into());
        }
        let range = match self.outcome {
            RangeOutcome::Partial(Range { start, end }) => {
                format!("bytes {start}-{}/{}", end - 1, self.length)
            }
            RangeOutcome::Unsatisfiable => format!("bytes */{}", self.length),
            RangeOutcome::Full | RangeOutcome::NotModified => return response,
        };
        if let Ok(range) = HeaderValue::try_from(range) {
            headers.insert(CONTENT_RANGE, range);
        }
        response
    }
}

/// Returns whether `If-None-Match` of the request says that the client has the representation with
/// this strong entity tag.
#[must_use]
pub fn is_not_modified(request: &HeaderMap, etag: &HeaderValue) -> bool {
    let tag = etag.to_str().unwrap_or_default();
    let tags = request.get(IF_NONE_MATCH);
    let tags = tags.and_then(|value| value.to_str().ok());
    // The weak comparison.
    tags.is_some_and(|tags| {
        tags.split(',')
            .map(str::trim)
            .any(|other| other == "*" || other.strip_prefix("W/").unwrap_or(other) == tag)
    })
}

fn evaluate(request: &HeaderMap, length: u64, etag: &HeaderValue) -> RangeOutcome {
    let text = |name| request.get(name).and_then(|value| value.to_str().ok());
    let tag = etag.to_str().unwrap_or_default();
    if is_not_modified(request, etag) {
        return RangeOutcome::NotModified;
    }
    let Some(range) = text(RANGE) else {
        return RangeOutcome::Full;
    };
    // The client's part may be of an older representation. If-Range uses the strong comparison,
    // which a date never satisfies.
    if text(IF_RANGE).is_some_and(|condition| condition.trim() != tag) {
        return RangeOutcome::Full;
    }
    parse_range(range, length).unwrap_or(RangeOutcome::Full)
}

/// Parses a single byte range; returns `None` if it must be ignored.
fn parse_range(range: &str, length: u64) -> Option<RangeOutcome> {
    let (unit, set) = range.split_once('=')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") || set.contains(',') {
        return None;
    }
    let (first, last) = set.trim().split_once('-')?;
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        // A number that does not fit is beyond every end.
        digits.then(|| text.parse().unwrap_or(u64::MAX))
    };
    let range = if first.is_empty() {
        let suffix: u64 = number(last)?;
        length.saturating_sub(suffix)..length
    } else {
        let start: u64 = number(first)?;
        let end = if last.is_empty() {
            length
        } else {
            let end: u64 = number(last)?;
            if is_less(last, first) {
                return None;
            }
            end.saturating_add(1).min(length)
        };
        start..end
    };
    Some(if range.start < range.end {
        RangeOutcome::Partial(range)
    } else {
        RangeOutcome::Unsatisfiable
    })
}

/// Compares the digits of numbers, which may be of any length.
fn is_less(first: &str, second: &str) -> bool {
    let [first, second] = [first, second].map(|digits| digits.trim_start_matches('0'));
    (first.len(), first) < (second.len(), second)
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests {
    use super::*;

    const ETAG_VALUE: HeaderValue = HeaderValue::from_static("\"one\"");

    fn response(headers: &[(http::HeaderName, &'static str)], length: u64) -> RangeResponse {
        let request = headers
            .iter()
            .map(|(name, value)| (name.clone(), HeaderValue::from_static(value)))
            .collect();
        RangeResponse::new(&request, length, ETAG_VALUE)
    }

    fn outcome_of(range: &'static str) -> RangeOutcome {
        response(&[(RANGE, range)], 10).outcome
    }

    #[test]
    fn satisfiable_range_is_served() {
        for (range, part) in [
            ("bytes=0-0", 0..1),
            ("bytes=0-", 0..10),
            ("bytes=3-5", 3..6),
            ("bytes=3-99", 3..10),
            ("bytes=9-99999999999999999999999", 9..10),
            ("bytes=-3", 7..10),
            ("bytes=-30", 0..10),
            ("Bytes = 1-2", 1..3),
        ] {
            assert_eq!(outcome_of(range), RangeOutcome::Partial(part), "{range}");
        }
    }

    #[test]
    fn unsatisfiable_range_is_416_and_malformed_range_is_ignored() {
        for range in [
            "bytes=10-",
            "bytes=10-12",
            "bytes=-0",
            "bytes=99999999999999999999-",
        ] {
            assert_eq!(outcome_of(range), RangeOutcome::Unsatisfiable, "{range}");
        }
        for range in [
            "",
            "bytes",
            "bytes=",
            "bytes=-",
            "bytes=a-b",
            "bytes=+1-2",
            "bytes=5-4",
            "bytes=99999999999999999999-88888888888888888888",
            "lines=1-2",
            "bytes=0-1,3-4",
            "bytes=1",
            "bytes=1-2-3",
        ] {
            assert_eq!(outcome_of(range), RangeOutcome::Full, "{range}");
        }
        assert_eq!(
            response(&[(RANGE, "bytes=0-")], 0).outcome,
            RangeOutcome::Unsatisfiable
        );
        assert_eq!(response(&[], 0).range(), Some(0..0));
    }

    #[test]
    fn conditions_decide_between_full_partial_and_not_modified() {
        let part = RangeOutcome::Partial(0..1);
        for (condition, outcome) in [
            ("\"one\"", part),
            ("\"two\"", RangeOutcome::Full),
            ("W/\"one\"", RangeOutcome::Full),
            ("Wed, 21 Oct 2015 07:28:00 GMT", RangeOutcome::Full),
        ] {
            let headers = [(RANGE, "bytes=0-0"), (IF_RANGE, condition)];
            assert_eq!(response(&headers, 10).outcome, outcome, "{condition}");
        }
        for (condition, is_current) in [
            ("\"one\"", true),
            ("\"two\", W/\"one\"", true),
            ("*", true),
            ("\"two\"", false),
        ] {
            let headers = [(IF_NONE_MATCH, condition), (RANGE, "bytes=0-0")];
            let not_modified = response(&headers, 10).outcome == RangeOutcome::NotModified;
            assert_eq!(not_modified, is_current, "{condition}");
        }
    }

    #[test]
    fn response_has_status_length_and_content_range() {
        let summary = |headers: &[(http::HeaderName, &'static str)]| {
            let response = response(headers, 10).with_body(Body::empty());
            let header = |name| {
                let value: Option<&HeaderValue> = response.headers().get(name);
                value.map(|value| value.to_str().unwrap().to_owned())
            };
            (
                response.status().as_u16(),
                header(CONTENT_LENGTH),
                header(CONTENT_RANGE),
            )
        };
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(summary(&[]), (200, text("10"), None));
        assert_eq!(
            summary(&[(RANGE, "bytes=2-3")]),
            (206, text("2"), text("bytes 2-3/10"))
        );
        assert_eq!(
            summary(&[(RANGE, "bytes=12-")]),
            (416, None, text("bytes */10"))
        );
        assert_eq!(summary(&[(IF_NONE_MATCH, "\"one\"")]), (304, None, None));
    }
}

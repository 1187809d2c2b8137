//! Answering with a part of something: `Range`, `If-Range`, `If-None-Match` (RFC 9110, sections 13 and 14).

use std::ops::Range;

use axum::body::Body;
use axum::response::Response;
use http::header::{
    ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderMap, IF_NONE_MATCH, IF_RANGE, RANGE,
};
use http::{HeaderValue, StatusCode};

/// What a request wants of something whose length and strong entity tag are known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangedAnswer {
    length: u64,
    etag: HeaderValue,
    wanted: Wanted,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Wanted {
    Whole,
    Part(Range<u64>),
    /// The client has it already.
    Nothing,
    /// A part that is not there.
    Impossible,
}

impl RangedAnswer {
    /// `etag` is a strong entity tag, quotes included. What is asked for in a way that is not understood, or in several parts, is
    /// answered with the whole, as the RFC has it.
    #[must_use]
    pub fn to(request: &HeaderMap, length: u64, etag: HeaderValue) -> Self {
        let wanted = wanted(request, length, &etag);
        Self {
            length,
            etag,
            wanted,
        }
    }

    /// The bytes to be sent; `None` where the answer has no body.
    #[must_use]
    pub fn range(&self) -> Option<Range<u64>> {
        match &self.wanted {
            Wanted::Whole => Some(0..self.length),
            Wanted::Part(range) => Some(range.clone()),
            Wanted::Nothing | Wanted::Impossible => None,
        }
    }

    /// The answer with the bytes of [`Self::range`].
    #[must_use]
    pub fn with(self, body: Body) -> Response {
        let (status, length) = match &self.wanted {
            Wanted::Whole => (StatusCode::OK, Some(self.length)),
            Wanted::Part(range) => (StatusCode::PARTIAL_CONTENT, Some(range.end - range.start)),
            Wanted::Nothing => (StatusCode::NOT_MODIFIED, None),
            Wanted::Impossible => (StatusCode::RANGE_NOT_SATISFIABLE, None),
        };
        let mut response = Response::new(body);
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        headers.insert(ETAG, self.etag);
        if let Some(length) = length {
            headers.insert(CONTENT_LENGTH, length.into());
        }
        let range = match self.wanted {
            Wanted::Part(Range { start, end }) => {
                format!("bytes {start}-{}/{}", end - 1, self.length)
            }
            Wanted::Impossible => format!("bytes */{}", self.length),
            Wanted::Whole | Wanted::Nothing => return response,
        };
        if let Ok(range) = HeaderValue::try_from(range) {
            headers.insert(CONTENT_RANGE, range);
        }
        response
    }
}

fn wanted(request: &HeaderMap, length: u64, etag: &HeaderValue) -> Wanted {
    let text = |name| request.get(name).and_then(|value| value.to_str().ok());
    let tag = etag.to_str().unwrap_or_default();
    // Whether the client has it is asked with a weak comparison.
    let has = text(IF_NONE_MATCH).is_some_and(|tags| {
        tags.split(',')
            .map(str::trim)
            .any(|other| other == "*" || other.strip_prefix("W/").unwrap_or(other) == tag)
    });
    if has {
        return Wanted::Nothing;
    }
    let Some(range) = text(RANGE) else {
        return Wanted::Whole;
    };
    // What it has a part of may be something else by now. A date is never exact enough.
    if text(IF_RANGE).is_some_and(|condition| condition.trim() != tag) {
        return Wanted::Whole;
    }
    parse(range, length).unwrap_or(Wanted::Whole)
}

/// `None` where it is not understood.
fn parse(range: &str, length: u64) -> Option<Wanted> {
    let (unit, set) = range.split_once('=')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") || set.contains(',') {
        return None;
    }
    let (first, last) = set.trim().split_once('-')?;
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        // More than fits is beyond every end.
        digits.then(|| text.parse().unwrap_or(u64::MAX))
    };
    let range = if first.is_empty() {
        let suffix: u64 = number(last)?;
        length.saturating_sub(suffix)..length
    } else {
        let first: u64 = number(first)?;
        let end = if last.is_empty() {
            length
        } else {
            let last: u64 = number(last)?;
            if last < first {
                return None;
            }
            last.saturating_add(1).min(length)
        };
        first..end
    };
    Some(if range.start < range.end {
        Wanted::Part(range)
    } else {
        Wanted::Impossible
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ETAG_VALUE: HeaderValue = HeaderValue::from_static("\"one\"");

    fn answer(headers: &[(http::HeaderName, &'static str)], length: u64) -> RangedAnswer {
        let request = headers
            .iter()
            .map(|(name, value)| (name.clone(), HeaderValue::from_static(value)))
            .collect();
        RangedAnswer::to(&request, length, ETAG_VALUE)
    }

    fn asked(range: &'static str) -> Wanted {
        answer(&[(RANGE, range)], 10).wanted
    }

    #[test]
    fn a_part_is_what_was_asked_for() {
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
            assert_eq!(asked(range), Wanted::Part(part), "{range}");
        }
    }

    #[test]
    fn what_is_not_there_is_told_and_what_is_not_understood_is_the_whole() {
        for range in [
            "bytes=10-",
            "bytes=10-12",
            "bytes=-0",
            "bytes=99999999999999999999-",
        ] {
            assert_eq!(asked(range), Wanted::Impossible, "{range}");
        }
        for range in [
            "",
            "bytes",
            "bytes=",
            "bytes=-",
            "bytes=a-b",
            "bytes=+1-2",
            "bytes=5-4",
            "lines=1-2",
            "bytes=0-1,3-4",
            "bytes=1",
            "bytes=1-2-3",
        ] {
            assert_eq!(asked(range), Wanted::Whole, "{range}");
        }
        assert_eq!(answer(&[(RANGE, "bytes=0-")], 0).wanted, Wanted::Impossible);
        assert_eq!(answer(&[], 0).range(), Some(0..0));
    }

    #[test]
    fn conditions_are_kept() {
        let part = Wanted::Part(0..1);
        for (condition, wanted) in [
            ("\"one\"", part),
            ("\"two\"", Wanted::Whole),
            ("W/\"one\"", Wanted::Whole),
            ("Wed, 21 Oct 2015 07:28:00 GMT", Wanted::Whole),
        ] {
            let headers = [(RANGE, "bytes=0-0"), (IF_RANGE, condition)];
            assert_eq!(answer(&headers, 10).wanted, wanted, "{condition}");
        }
        for (condition, has) in [
            ("\"one\"", true),
            ("\"two\", W/\"one\"", true),
            ("*", true),
            ("\"two\"", false),
        ] {
            let headers = [(IF_NONE_MATCH, condition), (RANGE, "bytes=0-0")];
            let found = answer(&headers, 10).wanted == Wanted::Nothing;
            assert_eq!(found, has, "{condition}");
        }
    }

    #[test]
    fn the_answer_says_what_it_is() {
        let told = |headers: &[(http::HeaderName, &'static str)]| {
            let answer = answer(headers, 10).with(Body::empty());
            let header = |name| {
                let value: Option<&HeaderValue> = answer.headers().get(name);
                value.map(|value| value.to_str().unwrap().to_owned())
            };
            (
                answer.status().as_u16(),
                header(CONTENT_LENGTH),
                header(CONTENT_RANGE),
            )
        };
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(told(&[]), (200, text("10"), None));
        assert_eq!(
            told(&[(RANGE, "bytes=2-3")]),
            (206, text("2"), text("bytes 2-3/10"))
        );
        assert_eq!(
            told(&[(RANGE, "bytes=12-")]),
            (416, None, text("bytes */10"))
        );
        assert_eq!(told(&[(IF_NONE_MATCH, "\"one\"")]), (304, None, None));
    }
}

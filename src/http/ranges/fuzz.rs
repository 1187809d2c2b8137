//! Ranges against a reference of RFC 9110 with unbounded numbers, and arbitrary headers.

use proptest::prelude::*;

use super::*;

const TAG: &str = "\"tag\"";

/// Returns the value of up to 33 digits.
fn value(digits: &str) -> u128 {
    digits.parse().unwrap()
}

fn expected(first: &str, last: &str, length: u64) -> RangeOutcome {
    let size = u128::from(length);
    let range = match (first, last) {
        ("", "") => return RangeOutcome::Full,
        ("", suffix) => size.saturating_sub(value(suffix))..size,
        (first, "") => value(first)..size,
        (first, last) if value(last) < value(first) => return RangeOutcome::Full,
        (first, last) => value(first)..(value(last) + 1).min(size),
    };
    if range.start >= range.end {
        return RangeOutcome::Unsatisfiable;
    }
    RangeOutcome::Partial(range.start as u64..range.end as u64)
}

fn digits() -> impl Strategy<Value = String> {
    prop_oneof![
        2 => Just(String::new()),
        6 => (0..12u64).prop_map(|number| number.to_string()),
        2 => any::<u64>().prop_map(|number| number.to_string()),
        1 => (u64::MAX - 2..=u64::MAX).prop_map(|number| number.to_string()),
        2 => "0{0,3}[0-9]{1,30}",
    ]
}

fn length() -> impl Strategy<Value = u64> {
    prop_oneof![6 => 0..12u64, 1 => any::<u64>(), 1 => u64::MAX - 2..=u64::MAX]
}

fn space() -> impl Strategy<Value = String> {
    prop_oneof![4 => Just(String::new()), 1 => "[ \t]{1,3}"]
}

fn evaluate_headers(headers: &[(http::HeaderName, &[u8])], length: u64) -> RangeResponse {
    let mut request = HeaderMap::new();
    for (name, value) in headers {
        if let Ok(value) = HeaderValue::from_bytes(value) {
            request.append(name.clone(), value);
        }
    }
    RangeResponse::new(&request, length, HeaderValue::from_static(TAG))
}

/// Checks that status, headers and range of a response agree.
fn check(response: RangeResponse, length: u64) {
    let range = response.range();
    let response = response.with_body(Body::empty());
    let header = |name| {
        let value: Option<&HeaderValue> = response.headers().get(name);
        value.map(|value| value.to_str().unwrap().to_owned())
    };
    let content_length = header(CONTENT_LENGTH);
    let bytes = range
        .clone()
        .map(|range| (range.end - range.start).to_string());
    assert_eq!(content_length, bytes);
    let content_range = match response.status().as_u16() {
        200 => {
            assert_eq!(range, Some(0..length));
            None
        }
        206 => {
            let range = range.unwrap();
            assert!(range.start < range.end && range.end <= length);
            Some(format!("bytes {}-{}/{length}", range.start, range.end - 1))
        }
        304 => {
            assert_eq!(range, None);
            None
        }
        416 => {
            assert_eq!(range, None);
            Some(format!("bytes */{length}"))
        }
        status => panic!("{status}"),
    };
    assert_eq!(header(CONTENT_RANGE), content_range);
    assert_eq!(header(ETAG).as_deref(), Some(TAG));
}

proptest! {
    #[test]
    fn range_of_numbers_is_that_of_the_reference(
        first in digits(),
        last in digits(),
        length in length(),
        spaces in (space(), space(), space()),
    ) {
        let (a, b, c) = spaces;
        let range = format!("{a}bytes{b}={c}{first}-{last}");
        let response = evaluate_headers(&[(RANGE, range.as_bytes())], length);
        prop_assert_eq!(&response.outcome, &expected(&first, &last, length), "{}", range);
        check(response, length);
    }

    #[test]
    fn any_headers_get_a_consistent_response(
        range in prop_oneof!["bytes=[-0-9, a=]{0,12}", "\\PC{0,20}"],
        others in prop::collection::vec(
            (0..3usize, prop_oneof![
                Just(b"\"tag\"".to_vec()),
                Just(b"*".to_vec()),
                Just(b"W/\"tag\", \"other\"".to_vec()),
                prop::collection::vec(any::<u8>(), 0..20),
            ]),
            0..3,
        ),
        length in length(),
    ) {
        let mut headers = vec![(RANGE, range.as_bytes())];
        for (index, value) in &others {
            headers.push(([RANGE, IF_RANGE, IF_NONE_MATCH][*index].clone(), value));
        }
        check(evaluate_headers(&headers, length), length);
    }
}

//! W3C Trace Context: the trace that a request belongs to, across servers.

use std::cell::RefCell;

use fastrand::Rng;
use http::{HeaderMap, HeaderName, HeaderValue};

pub(super) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
pub(super) const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// Length of `00-{32 digits}-{16 digits}-{2 digits}`; later versions may append fields.
const LEN: usize = 55;
const SAMPLED: u8 = 1;

/// The trace of a request, and this server's span in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TraceContext {
    trace_id: String,
    span_id: String,
    sampled: bool,
}

impl TraceContext {
    /// Starts a span in the caller's trace, or in a new trace if the caller names no valid one, and
    /// rewrites the headers accordingly.
    pub(super) fn enter(headers: &mut HeaderMap) -> Self {
        let span_id = format!("{:016x}", random(|random| random.u64(1..)));
        let context = match parse(headers) {
            Some((trace_id, sampled)) => Self {
                trace_id,
                span_id,
                sampled,
            },
            None => {
                // `tracestate` is meaningless without a valid `traceparent`.
                headers.remove(TRACESTATE);
                Self {
                    trace_id: format!("{:032x}", random(|random| random.u128(1..))),
                    span_id,
                    sampled: false,
                }
            }
        };
        if let Ok(value) = HeaderValue::try_from(context.traceparent()) {
            headers.insert(TRACEPARENT, value);
        }
        context
    }

    pub(super) fn trace_id(&self) -> &str {
        &self.trace_id
    }

    pub(super) fn traceparent(&self) -> String {
        let flags = if self.sampled { SAMPLED } else { 0 };
        format!("00-{}-{}-{flags:02x}", self.trace_id, self.span_id)
    }
}

/// Returns the caller's trace id and whether the trace is sampled.
fn parse(headers: &HeaderMap) -> Option<(String, bool)> {
    let mut values = headers.get_all(TRACEPARENT).iter();
    let text = values.next()?.to_str().ok()?;
    if values.next().is_some() {
        return None;
    }
    let (known, rest) = text.split_at_checked(LEN)?;
    let mut fields = known.split('-');
    let version = hex(fields.next()?, 2)?;
    let trace_id = hex(fields.next()?, 32)?;
    let span_id = hex(fields.next()?, 16)?;
    let flags = u8::from_str_radix(hex(fields.next()?, 2)?, 16).ok()?;
    let is_complete = match version {
        "00" => rest.is_empty(),
        "ff" => false,
        _ => rest.is_empty() || rest.starts_with('-'),
    };
    let is_zero = |id: &str| id.bytes().all(|digit| digit == b'0');
    (is_complete && !is_zero(trace_id) && !is_zero(span_id))
        .then(|| (trace_id.to_owned(), flags & SAMPLED != 0))
}

fn hex(text: &str, len: usize) -> Option<&str> {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    (text.len() == len && text.bytes().all(is_digit)).then_some(text)
}

thread_local! {
    static RANDOM: RefCell<Rng> = RefCell::new(Rng::with_seed(seed()));
}

/// Calls a generator that makes no system call. An id need not be a secret.
fn random<T>(generate: impl FnOnce(&mut Rng) -> T) -> T {
    RANDOM.with_borrow_mut(generate)
}

/// Returns a seed that differs on machines that were started alike.
fn seed() -> u64 {
    getrandom::u64().unwrap_or_else(|_| fastrand::u64(..))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn entered(traceparents: &[&str]) -> (TraceContext, HeaderMap) {
        let mut headers = HeaderMap::new();
        headers.insert(TRACESTATE, HeaderValue::from_static("vendor=1"));
        for text in traceparents {
            headers.append(TRACEPARENT, HeaderValue::from_str(text).unwrap());
        }
        (TraceContext::enter(&mut headers), headers)
    }

    #[test]
    fn valid_trace_continues_with_a_new_span() {
        let longer = format!("cc{}-more", &GOOD[2..]);
        for good in [GOOD, &longer] {
            let (context, headers) = entered(&[good]);
            assert_eq!(context.trace_id(), TRACE);
            let forwarded = headers[TRACEPARENT].to_str().unwrap();
            assert!(forwarded.starts_with(&format!("00-{TRACE}-")));
            assert!(forwarded.ends_with("-01"));
            assert!(!forwarded.contains("00f067aa0ba902b7"));
            assert_eq!(headers[TRACESTATE], "vendor=1");
        }
    }

    #[test]
    fn invalid_or_missing_trace_starts_a_new_one() {
        let (zero_trace, zero_span) = (
            GOOD.replace(TRACE, &"0".repeat(32)),
            GOOD.replace("00f067aa0ba902b7", &"0".repeat(16)),
        );
        for bad in [
            &[][..],
            &[""],
            &[GOOD, GOOD],
            &[&GOOD.to_uppercase()],
            &[&GOOD[..54]],
            &[&format!("{GOOD}-more")],
            &[&format!("ff{}", &GOOD[2..])],
            &[&GOOD.replace('-', "_")],
            &[&zero_trace],
            &[&zero_span],
        ] {
            let (context, headers) = entered(bad);
            assert_ne!(context.trace_id(), TRACE, "{bad:?}");
            let rewritten = headers.get_all(TRACEPARENT).iter().collect::<Vec<_>>();
            assert_eq!(rewritten, [context.traceparent().as_str()]);
            assert!(parse(&headers).is_some(), "{rewritten:?}");
            assert!(!headers.contains_key(TRACESTATE));
        }
    }
}

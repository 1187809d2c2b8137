//! W3C Trace Context: which trace a request belongs to, across servers.

use std::fmt::Write;

use http::{HeaderMap, HeaderName, HeaderValue};

pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
pub const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// `00-{32 digits}-{16 digits}-{2 digits}`; later versions may go on after that.
const LEN: usize = 55;
const SAMPLED: u8 = 1;

/// The trace of a request, and our own step in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceContext {
    trace: String,
    step: String,
    sampled: bool,
}

impl TraceContext {
    /// A step of our own in the caller's trace where it names a good one, else in a new one. What goes on to others says so.
    pub(super) fn enter(headers: &mut HeaderMap) -> Self {
        let step = random_hex::<8>();
        let context = match parse(headers) {
            Some((trace, sampled)) => Self {
                trace,
                step,
                sampled,
            },
            None => {
                // It belongs to the trace that the caller did not name.
                headers.remove(TRACESTATE);
                Self {
                    trace: random_hex::<16>(),
                    step,
                    sampled: false,
                }
            }
        };
        if let Ok(value) = HeaderValue::try_from(context.traceparent()) {
            headers.insert(TRACEPARENT, value);
        }
        context
    }

    pub(super) fn trace(&self) -> &str {
        &self.trace
    }

    pub(super) fn traceparent(&self) -> String {
        let flags = if self.sampled { SAMPLED } else { 0 };
        format!("00-{}-{}-{flags:02x}", self.trace, self.step)
    }
}

/// The trace and whether it is sampled.
fn parse(headers: &HeaderMap) -> Option<(String, bool)> {
    let mut values = headers.get_all(TRACEPARENT).iter();
    let text = values.next()?.to_str().ok()?;
    if values.next().is_some() {
        return None;
    }
    let (known, rest) = text.split_at_checked(LEN)?;
    let mut fields = known.split('-');
    let version = hex(fields.next()?, 2)?;
    let trace = hex(fields.next()?, 32)?;
    let step = hex(fields.next()?, 16)?;
    let flags = u8::from_str_radix(hex(fields.next()?, 2)?, 16).ok()?;
    let ends = match version {
        "00" => rest.is_empty(),
        "ff" => false,
        _ => rest.is_empty() || rest.starts_with('-'),
    };
    let is_zero = |id: &str| id.bytes().all(|digit| digit == b'0');
    (ends && !is_zero(trace) && !is_zero(step)).then(|| (trace.to_owned(), flags & SAMPLED != 0))
}

fn hex(text: &str, len: usize) -> Option<&str> {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    (text.len() == len && text.bytes().all(is_digit)).then_some(text)
}

fn random_hex<const N: usize>() -> String {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the system has randomness");
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
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
    fn a_good_trace_goes_on_with_a_step_of_our_own() {
        let longer = format!("cc{}-more", &GOOD[2..]);
        for good in [GOOD, &longer] {
            let (context, headers) = entered(&[good]);
            assert_eq!(context.trace(), TRACE);
            let passed_on = headers[TRACEPARENT].to_str().unwrap();
            assert!(passed_on.starts_with(&format!("00-{TRACE}-")));
            assert!(passed_on.ends_with("-01"));
            assert!(!passed_on.contains("00f067aa0ba902b7"));
            assert_eq!(headers[TRACESTATE], "vendor=1");
        }
    }

    #[test]
    fn a_bad_one_or_none_makes_a_new_trace() {
        let (zero_trace, zero_step) = (
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
            &[&zero_step],
        ] {
            let (context, headers) = entered(bad);
            assert_ne!(context.trace(), TRACE, "{bad:?}");
            let made = headers.get_all(TRACEPARENT).iter().collect::<Vec<_>>();
            assert_eq!(made, [context.traceparent().as_str()]);
            assert!(parse(&headers).is_some(), "{made:?}");
            assert!(!headers.contains_key(TRACESTATE));
        }
    }
}

//! Forms in chunks of any size, against a parser of complete bodies.

use std::io;

use futures::stream;
use proptest::{prelude::*, sample::Index};

use super::*;

const BOUNDARY: &str = "x-y";

/// A part that was received.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Received {
    name: String,
    is_file: bool,
    content: Vec<u8>,
}

/// The parts of a form, and whether it is valid to its end.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    complete: Vec<Received>,
    /// The part that was being read when the form turned out to be invalid.
    incomplete: Option<Received>,
    is_valid: bool,
}

fn head(name: &str, is_file: bool) -> String {
    let file_name = if is_file { "; filename=\"f\"" } else { "" };
    format!("Content-Disposition: form-data; name=\"{name}\"{file_name}\r\n\r\n")
}

fn encode(parts: &[Received], preamble: &[u8], padding: &str) -> Vec<u8> {
    let mut body = preamble.to_vec();
    for part in parts {
        body.extend(format!("--{BOUNDARY}{padding}\r\n").as_bytes());
        body.extend(head(&part.name, part.is_file).as_bytes());
        body.extend(&part.content);
        body.extend(b"\r\n");
    }
    body.extend(format!("--{BOUNDARY}--\r\n").as_bytes());
    body
}

fn find(bytes: &[u8], pattern: &[u8]) -> Option<usize> {
    bytes
        .windows(pattern.len())
        .position(|window| window == pattern)
}

/// Parses a complete body. `None` if it has a head of another form than those of [`head`].
fn reference(body: &[u8]) -> Option<Outcome> {
    let mut outcome = Outcome {
        complete: Vec::new(),
        incomplete: None,
        is_valid: false,
    };
    let delimiter = format!("--{BOUNDARY}").into_bytes();
    let Some(start) = find(body, &delimiter) else {
        return Some(outcome);
    };
    let mut rest = &body[start + delimiter.len()..];
    loop {
        if rest.starts_with(b"--") {
            outcome.is_valid = true;
            return Some(outcome);
        }
        // A lone hyphen is not padding, and needs a second byte to be the end.
        let padding = rest.iter().take_while(|byte| b" \t".contains(byte)).count();
        rest = &rest[padding..];
        let Some(headers) = rest.strip_prefix(b"\r\n") else {
            return Some(outcome);
        };
        let Some(end) = find(headers, b"\r\n\r\n") else {
            return Some(outcome);
        };
        let (text, content) = headers.split_at(end + 4);
        let mut part = parse_head(text)?;
        let full_delimiter = [b"\r\n", &delimiter[..]].concat();
        match find(content, &full_delimiter) {
            Some(end) => {
                part.content = content[..end].to_vec();
                outcome.complete.push(part);
                rest = &content[end + full_delimiter.len()..];
            }
            None => {
                part.content = content.to_vec();
                outcome.incomplete = Some(part);
                return Some(outcome);
            }
        }
    }
}

fn parse_head(text: &[u8]) -> Option<Received> {
    ["a", "file", "ü"]
        .into_iter()
        .flat_map(|name| [(name, true), (name, false)])
        .find(|(name, is_file)| head(name, *is_file).as_bytes() == text)
        .map(|(name, is_file)| Received {
            name: name.to_owned(),
            is_file,
            content: Vec::new(),
        })
}

/// Parses a body that arrives in chunks.
async fn parse(chunks: Vec<Bytes>) -> Outcome {
    let content_type = format!("multipart/form-data; boundary={BOUNDARY}");
    let chunks = stream::iter(chunks.into_iter().map(Ok::<_, io::Error>));
    let request = Request::builder()
        .header(header::CONTENT_TYPE, content_type)
        .body(Body::from_stream(chunks))
        .unwrap();
    let mut form = Multipart::from_request(request, &()).await.unwrap();
    let mut outcome = Outcome {
        complete: Vec::new(),
        incomplete: None,
        is_valid: true,
    };
    loop {
        let mut part = match form.next_part().await {
            Ok(Some(part)) => part,
            Ok(None) => return outcome,
            Err(error) => {
                assert_eq!(error.status(), StatusCode::BAD_REQUEST);
                outcome.is_valid = false;
                return outcome;
            }
        };
        let mut received = Received {
            name: part.name().to_owned(),
            is_file: part.is_file(),
            content: Vec::new(),
        };
        loop {
            match part.chunk().await {
                Ok(Some(chunk)) => received.content.extend(chunk),
                Ok(None) => break,
                Err(error) => {
                    assert_eq!(error.status(), StatusCode::BAD_REQUEST);
                    outcome.is_valid = false;
                    outcome.incomplete = Some(received);
                    return outcome;
                }
            }
        }
        outcome.complete.push(received);
    }
}

fn parse_blocking(body: &[u8], cuts: &[Index]) -> Outcome {
    let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(body.len() + 1)).collect();
    ends.push(body.len());
    ends.sort_unstable();
    let mut start = 0;
    let chunks = ends.into_iter().map(|end| {
        let chunk = Bytes::copy_from_slice(&body[start..end]);
        start = end;
        chunk
    });
    let chunks = chunks.collect();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    runtime.unwrap().block_on(parse(chunks))
}

/// Compares outcomes. Of an incomplete part, any beginning may have been received.
fn check(actual: &Outcome, expected: &Outcome) {
    assert_eq!(actual.complete, expected.complete);
    assert_eq!(actual.is_valid, expected.is_valid);
    match (&actual.incomplete, &expected.incomplete) {
        (Some(actual), Some(expected)) => {
            assert_eq!(
                (&actual.name, actual.is_file),
                (&expected.name, expected.is_file)
            );
            assert!(expected.content.starts_with(&actual.content));
        }
        (None, None) => {}
        (actual, expected) => panic!("{actual:?} instead of {expected:?}"),
    }
}

/// Returns content that is rich in parts of delimiters.
fn content() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        4 => prop::sample::select(vec![
            "\r", "\n", "\r\n", "-", "--", "\r\n-", "\r\n--", "x", "x-", "\r\n--x", "\r\n--x-", "--x-y",
            "\r\r\n--x-", "a",
        ]).prop_map(|text| text.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..10),
        1 => (0..3000usize).prop_map(|length| vec![b'7'; length]),
    ];
    prop::collection::vec(piece, 0..8)
        .prop_map(|pieces| pieces.concat())
        .prop_filter("has the delimiter", |content| {
            find(content, format!("\r\n--{BOUNDARY}").as_bytes()).is_none()
        })
}

fn parts() -> impl Strategy<Value = Vec<Received>> {
    let name = prop::sample::select(vec!["a", "file", "ü"]).prop_map(str::to_owned);
    let part = (name, any::<bool>(), content());
    let part = part.prop_map(|(name, is_file, content)| Received {
        name,
        is_file,
        content,
    });
    prop::collection::vec(part, 0..5)
}

fn cuts() -> impl Strategy<Value = Vec<Index>> {
    prop_oneof![
        1 => Just(Vec::new()),
        3 => prop::collection::vec(any::<Index>(), 1..8),
        1 => prop::collection::vec(any::<Index>(), 50..200),
    ]
}

proptest! {
    #[test]
    fn form_in_any_chunks_has_its_parts(
        parts in parts(),
        preamble in prop::sample::select(vec!["", "\r\n", "preamble\r\n", "-"]),
        padding in prop::sample::select(vec!["", " ", "\t  "]),
        cuts in cuts(),
    ) {
        let body = encode(&parts, preamble.as_bytes(), padding);
        let outcome = parse_blocking(&body, &cuts);
        let expected = Outcome { complete: parts, incomplete: None, is_valid: true };
        let complete = reference(&body).unwrap();
        prop_assert_eq!(&complete, &expected);
        check(&outcome, &expected);
    }

    #[test]
    fn damaged_form_in_any_chunks_has_the_outcome_of_the_complete_body(
        parts in parts(),
        truncated in prop::option::of(any::<Index>()),
        changes in prop::collection::vec(
            (any::<Index>(), any::<Index>(), prop::sample::select(vec!["", "\r", "\n", "-", "x", "\r\n", "--x-y", "\r\n--x-y--"])),
            0..4,
        ),
        cuts in cuts(),
    ) {
        let mut body = encode(&parts, b"", "");
        for (position, count, inserted) in &changes {
            let position = position.index(body.len() + 1);
            let count = count.index((body.len() - position).min(3) + 1);
            body.splice(position..position + count, inserted.bytes());
        }
        if let Some(length) = truncated {
            body.truncate(length.index(body.len() + 1));
        }
        let in_chunks = parse_blocking(&body, &cuts);
        let at_once = parse_blocking(&body, &[]);
        prop_assert_eq!(&in_chunks.complete, &at_once.complete);
        prop_assert_eq!(in_chunks.is_valid, at_once.is_valid);
        prop_assert_eq!(in_chunks.incomplete.is_some(), at_once.incomplete.is_some());
        if let Some(expected) = reference(&body) {
            check(&in_chunks, &expected);
        }
    }

    #[test]
    fn arbitrary_body_ends_without_panic(
        body in prop::collection::vec(any::<u8>(), 0..300),
        cuts in cuts(),
    ) {
        parse_blocking(&[format!("--{BOUNDARY}").as_bytes(), &body].concat(), &cuts);
    }
}

//! Multipart forms, part by part, in bounded memory.
//!
//! ```text
//!                 next_part() = Some           chunk() = None
//! BetweenParts ─────────────────────▶ InPart ─────────────────▶ BetweenParts
//!      └── next_part() = None: the form has ended
//! ```
//!
//! The parser reads its source until the source is pending, and only then parses what it has. From
//! a fast client it would buffer a whole body. [`ThrottledBody`] is therefore pending after every
//! chunk, and [`Throttle`] also bounds the bytes between two parts.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
};

use axum::{
    body::{Body, BodyDataStream},
    extract::{
        DefaultBodyLimit, FromRequest, Request,
        multipart::{self, MultipartError},
    },
};
use bytes::Bytes;
use futures::Stream;
use http::{HeaderMap, StatusCode, header};

use super::{ApiError, ApiResult, body::with_idle_timeout};

/// Bytes before a part's content (its head), at most: the parser holds them in memory.
const MAX_HEAD: u64 = 64 << 10;
/// Parts of a form, at most.
const MAX_PARTS: usize = 2_016;
/// The [`Throttle`] budget that means no limit.
const UNLIMITED: u64 = u64::MAX;

/// The parts of a `multipart/form-data` request.
pub struct Multipart {
    parser: multipart::Multipart,
    throttle: Arc<Throttle>,
    position: Position,
    part_count: usize,
}

/// The reader's position in the form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Position {
    BetweenParts,
    /// Within a part's content.
    InPart,
}

/// A part whose content has not been read yet.
pub struct Part<'a> {
    field: multipart::Field<'a>,
    throttle: &'a Throttle,
    position: &'a mut Position,
}

impl<S: Send + Sync> FromRequest<S> for Multipart {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> ApiResult<Self> {
        if !is_form(request.headers()) {
            return Err(ApiError::unsupported_media_type(
                "content type must be multipart/form-data",
            ));
        }
        let throttle = Arc::new(Throttle::default());
        let mut request = request.map(|body| {
            Body::from_stream(ThrottledBody {
                chunks: body.into_data_stream(),
                throttle: throttle.clone(),
            })
        });
        // The handler limits what it accepts.
        DefaultBodyLimit::disable().apply(&mut request);
        match multipart::Multipart::from_request(request, state).await {
            Ok(parser) => Ok(Multipart {
                parser,
                throttle,
                position: Position::BetweenParts,
                part_count: 0,
            }),
            Err(_) => Err(ApiError::bad_request(
                "the content type has no boundary parameter",
            )),
        }
    }
}

fn is_form(headers: &HeaderMap) -> bool {
    headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|value| {
            value
                .to_ascii_lowercase()
                .starts_with("multipart/form-data")
        })
}

impl Multipart {
    /// Returns the next part; `None` at the end of the form.
    ///
    /// The previous part must have been read to its end: its rest would count as the head of the
    /// next.
    pub async fn next_part(&mut self) -> ApiResult<Option<Part<'_>>> {
        if self.position == Position::InPart {
            return Err(ApiError::internal(
                "the previous part was not read to its end",
            ));
        }
        self.throttle.start_reading(MAX_HEAD);
        let field = with_idle_timeout(self.parser.next_field())
            .await?
            .map_err(to_api_error)?;
        let Some(field) = field else {
            return Ok(None);
        };
        self.part_count += 1;
        if self.part_count > MAX_PARTS {
            return Err(ApiError::bad_request(format!(
                "forms are limited to {MAX_PARTS} parts"
            )));
        }
        self.position = Position::InPart;
        Ok(Some(Part {
            field,
            throttle: &self.throttle,
            position: &mut self.position,
        }))
    }
}

impl Part<'_> {
    pub fn name(&self) -> &str {
        self.field.name().unwrap_or_default()
    }

    /// Returns whether the part is a file.
    pub fn is_file(&self) -> bool {
        self.field.file_name().is_some()
    }

    /// Returns the next chunk of the content; `None` at its end.
    pub async fn chunk(&mut self) -> ApiResult<Option<Bytes>> {
        self.throttle.start_reading(UNLIMITED);
        let chunk = with_idle_timeout(self.field.chunk())
            .await?
            .map_err(to_api_error)?;
        if chunk.is_none() {
            *self.position = Position::BetweenParts;
        }
        Ok(chunk)
    }

    /// Returns the content as text; `None` if it is longer than `max_bytes` or not UTF-8. Reads it
    /// to its end in any case.
    pub async fn text(mut self, max_bytes: usize) -> ApiResult<Option<String>> {
        let mut text = Vec::new();
        let mut fits = true;
        while let Some(chunk) = self.chunk().await? {
            fits &= text.len() + chunk.len() <= max_bytes;
            if fits {
                text.extend_from_slice(&chunk);
            }
        }
        Ok(String::from_utf8(text).ok().filter(|_| fits))
    }

    /// Reads the content to its end and discards it.
    pub async fn skip(mut self) -> ApiResult<()> {
        while self.chunk().await?.is_some() {}
        Ok(())
    }
}

fn to_api_error(error: MultipartError) -> ApiError {
    match error.status() {
        StatusCode::PAYLOAD_TOO_LARGE => {
            ApiError::payload_too_large(format!("the head of a part exceeds {MAX_HEAD} bytes"))
        }
        _ => ApiError::bad_request("the request body is incomplete or not a valid multipart form"),
    }
}

/// Limits how much of the body the parser may take.
#[derive(Debug, Default)]
struct Throttle {
    /// Polls that are answered with "pending" before the next chunk, so that the parser parses the
    /// bytes it has.
    pending_polls: AtomicU8,
    /// Bytes that the parser may still take for the current read.
    budget: AtomicU64,
}

impl Throttle {
    /// Starts a read by the parser, which may be satisfied from its buffer.
    fn start_reading(&self, budget: u64) {
        self.pending_polls.store(1, Relaxed);
        self.budget.store(budget, Relaxed);
    }

    /// Returns whether this poll must be pending.
    fn take_pending_poll(&self) -> bool {
        let polls = self.pending_polls.load(Relaxed);
        self.pending_polls.store(polls.saturating_sub(1), Relaxed);
        polls > 0
    }

    fn is_exhausted(&self) -> bool {
        self.budget.load(Relaxed) == 0
    }

    /// Records a chunk that the parser has taken.
    fn record(&self, bytes: usize) {
        // Two: before the first boundary, the parser polls twice without parsing in between.
        self.pending_polls.store(2, Relaxed);
        let budget = self.budget.load(Relaxed);
        if budget != UNLIMITED {
            self.budget
                .store(budget.saturating_sub(bytes as u64), Relaxed);
        }
    }
}

/// A request body at the speed that its [`Throttle`] allows.
struct ThrottledBody {
    chunks: BodyDataStream,
    throttle: Arc<Throttle>,
}

impl Stream for ThrottledBody {
    type Item = Result<Bytes, axum::Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.throttle.take_pending_poll() {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        if self.throttle.is_exhausted() {
            let error = axum::Error::new("the head of a part is too long");
            return Poll::Ready(Some(Err(error)));
        }
        let chunk = ready!(Pin::new(&mut self.chunks).poll_next(context));
        if let Some(Ok(chunk)) = &chunk {
            self.throttle.record(chunk.len());
        }
        Poll::Ready(chunk)
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests {
    use std::{io, sync::atomic::AtomicUsize};

    use futures::{StreamExt, stream};

    use super::*;

    const BOUNDARY: &str = "x";

    fn head(number: usize) -> String {
        format!(
            "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{number}\"; filename=\"f\"\r\n\r\n"
        )
    }

    async fn form(
        chunks: impl Stream<Item = Result<Bytes, io::Error>> + Send + 'static,
    ) -> Multipart {
        let content_type = format!("multipart/form-data; boundary={BOUNDARY}");
        let request = Request::builder()
            .header(header::CONTENT_TYPE, content_type)
            .body(Body::from_stream(chunks))
            .unwrap();
        Multipart::from_request(request, &()).await.unwrap()
    }

    #[tokio::test]
    async fn parser_buffers_no_more_than_the_reader_needs() {
        const SMALL: usize = 500;
        const LARGE: usize = 2_000;
        let small: String = (0..SMALL)
            .map(|number| format!("{}small\r\n", head(number)))
            .collect();
        let end = format!("\r\n--{BOUNDARY}--\r\n");
        let large = stream::iter(vec![Bytes::from_static(&[7; 1_000]); LARGE]);
        let chunks = stream::iter([Bytes::from(small + &head(SMALL))])
            .chain(large)
            .chain(stream::iter([Bytes::from(end)]));
        let polled = Arc::new(AtomicUsize::new(0));
        let counted = chunks.map({
            let polled = polled.clone();
            move |chunk| {
                polled.fetch_add(1, Relaxed);
                Ok(chunk)
            }
        });
        let mut form = form(counted).await;
        for _ in 0..SMALL {
            let part = form.next_part().await.unwrap().unwrap();
            assert_eq!(part.text(100).await.unwrap().unwrap(), "small");
        }
        let mut part = form.next_part().await.unwrap().unwrap();
        assert!(polled.load(Relaxed) < 3, "{polled:?} chunks");
        let mut length = 0;
        while let Some(chunk) = part.chunk().await.unwrap() {
            length += chunk.len();
            let ahead = polled.load(Relaxed).saturating_sub(length / 1_000);
            assert!(ahead < 5, "{ahead} chunks ahead");
        }
        assert_eq!(length, LARGE * 1_000);
        drop(part);
        assert!(form.next_part().await.unwrap().is_none());
    }

    #[tokio::test]
    async fn head_is_bounded_at_any_chunk_size() {
        const LONG: usize = 2 * MAX_HEAD as usize;
        let content = "7".repeat(LONG);
        let complete = format!("\r\n{}{content}\r\n--{BOUNDARY}--\r\n", head(0));
        let endless = format!("--{BOUNDARY}\r\nX: {content}");
        // The long head or content arrives at once, after a short start, or in small chunks.
        for first in [0, 1, 3, 10, 100] {
            for rest in [100, 10_000, complete.len()] {
                let chunks = |text: &str| {
                    let (start, end) = text.as_bytes().split_at(first);
                    let mut chunks = vec![Ok(Bytes::copy_from_slice(start))];
                    chunks.extend(
                        end.chunks(rest)
                            .map(|bytes| Ok(Bytes::copy_from_slice(bytes))),
                    );
                    stream::iter(chunks)
                };
                let mut form_of = form(chunks(&complete)).await;
                let part = form_of.next_part().await.unwrap().unwrap();
                assert_eq!(part.text(LONG).await.unwrap().unwrap(), content);
                assert!(form_of.next_part().await.unwrap().is_none());
                let mut form_of = form(chunks(&endless)).await;
                let error = form_of.next_part().await.err().unwrap();
                assert_eq!(error.status(), StatusCode::BAD_REQUEST);
            }
        }
    }

    #[tokio::test]
    async fn next_part_requires_the_previous_one_to_be_read() {
        let content = vec![7; 2 * MAX_HEAD as usize];
        let bytes = [
            head(0).as_bytes(),
            &content,
            b"\r\n",
            head(1).as_bytes(),
            b"\r\n--x--\r\n",
        ]
        .concat();
        let chunks = || stream::iter(vec![Ok(Bytes::from(bytes.clone()))]);
        let mut unread = form(chunks()).await;
        drop(unread.next_part().await.unwrap());
        let error = unread.next_part().await.err().unwrap();
        assert_eq!(error.status(), StatusCode::INTERNAL_SERVER_ERROR);
        let mut skipped = form(chunks()).await;
        let part = skipped.next_part().await.unwrap().unwrap();
        part.skip().await.unwrap();
        assert_eq!(skipped.next_part().await.unwrap().unwrap().name(), "1");
    }
}

//! Multipart bodies, part by part, with little of them in memory.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed},
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
use http::{StatusCode, header};

use super::{ApiError, ApiResult, body::in_time};

/// What may come before a part's content: the reader holds it in memory.
const MAX_HEAD: u64 = 64 << 10;
/// Parts that a form may have.
const MAX_PARTS: usize = 2_016;

/// The parts of a request of type `multipart/form-data`.
pub struct Multipart {
    parts: multipart::Multipart,
    pace: Arc<Pace>,
    count: usize,
}

/// One part, whose content is still to come.
pub struct Part<'a> {
    field: multipart::Field<'a>,
    pace: Arc<Pace>,
}

impl<S: Send + Sync> FromRequest<S> for Multipart {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> ApiResult<Self> {
        let is_form = request
            .headers()
            .get(header::CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .is_some_and(|value| {
                value
                    .to_ascii_lowercase()
                    .starts_with("multipart/form-data")
            });
        if !is_form {
            return Err(ApiError::unsupported_media_type(
                "send the body as multipart/form-data",
            ));
        }
        let pace = Arc::new(Pace::default());
        let mut request = request.map(|body| {
            Body::from_stream(Paced {
                chunks: body.into_data_stream(),
                pace: pace.clone(),
            })
        });
        // What comes is bounded by who takes it.
        DefaultBodyLimit::disable().apply(&mut request);
        match multipart::Multipart::from_request(request, state).await {
            Ok(parts) => Ok(Multipart {
                parts,
                pace,
                count: 0,
            }),
            Err(_) => Err(ApiError::bad_request(
                "the content type names no boundary between the parts",
            )),
        }
    }
}

impl Multipart {
    /// The next part. The one before must have been read to its end: what is left of it would count as the next one's head.
    pub async fn next(&mut self) -> ApiResult<Option<Part<'_>>> {
        if self.pace.within_part.load(Relaxed) {
            return Err(ApiError::internal("a part was left before its end"));
        }
        self.pace.begin(MAX_HEAD);
        let field = in_time(self.parts.next_field()).await?.map_err(refused)?;
        self.count += usize::from(field.is_some());
        if self.count > MAX_PARTS {
            let what = format!("a form may have {MAX_PARTS} parts at most");
            return Err(ApiError::bad_request(what));
        }
        self.pace.within_part.store(field.is_some(), Relaxed);
        Ok(field.map(|field| Part {
            field,
            pace: self.pace.clone(),
        }))
    }
}

impl Part<'_> {
    pub fn name(&self) -> &str {
        self.field.name().unwrap_or_default()
    }

    /// Whether it is a file's content.
    pub fn is_file(&self) -> bool {
        self.field.file_name().is_some()
    }

    pub async fn chunk(&mut self) -> ApiResult<Option<Bytes>> {
        self.pace.begin(u64::MAX);
        let chunk = in_time(self.field.chunk()).await?.map_err(refused)?;
        if chunk.is_none() {
            self.pace.within_part.store(false, Relaxed);
        }
        Ok(chunk)
    }

    /// The content as text; `None` where it is longer than `most` bytes or no UTF-8. All of it is read in any case.
    pub async fn text(mut self, most: usize) -> ApiResult<Option<String>> {
        let mut text = Vec::new();
        let mut fits = true;
        while let Some(chunk) = self.chunk().await? {
            fits &= text.len() + chunk.len() <= most;
            if fits {
                text.extend_from_slice(&chunk);
            }
        }
        Ok(String::from_utf8(text).ok().filter(|_| fits))
    }

    pub async fn skip(mut self) -> ApiResult<()> {
        while self.chunk().await?.is_some() {}
        Ok(())
    }
}

fn refused(error: MultipartError) -> ApiError {
    match error.status() {
        StatusCode::PAYLOAD_TOO_LARGE => ApiError::payload_too_large("a part's head is too long"),
        _ => ApiError::bad_request("the body broke off, or is not made of parts"),
    }
}

/// How fast the parser gets the body: it takes in all it can get before it looks at what it has, and would hold a body in memory that
/// comes faster than it is written.
#[derive(Debug, Default)]
struct Pace {
    /// How many times the parser gets nothing, so that it looks at what it has.
    rests: AtomicU8,
    /// Bytes that may come until the parser has got to something.
    allowed: AtomicU64,
    within_part: AtomicBool,
}

impl Pace {
    /// The parser is asked for the next thing, which may be in what it has.
    fn begin(&self, allowed: u64) {
        self.rests.store(1, Relaxed);
        self.allowed.store(allowed, Relaxed);
    }
}

/// Hands out one chunk, then rests.
struct Paced {
    chunks: BodyDataStream,
    pace: Arc<Pace>,
}

impl Stream for Paced {
    type Item = Result<Bytes, axum::Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let rests = self.pace.rests.load(Relaxed);
        if rests > 0 {
            self.pace.rests.store(rests - 1, Relaxed);
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let allowed = self.pace.allowed.load(Relaxed);
        if allowed == 0 {
            let error = axum::Error::new("a part's head is too long");
            return Poll::Ready(Some(Err(error)));
        }
        let chunk = ready!(Pin::new(&mut self.chunks).poll_next(context));
        if let Some(Ok(chunk)) = &chunk {
            // Before the first boundary it asks twice without a look in between.
            self.pace.rests.store(2, Relaxed);
            if allowed != u64::MAX {
                let left = allowed.saturating_sub(chunk.len() as u64);
                self.pace.allowed.store(left, Relaxed);
            }
        }
        Poll::Ready(chunk)
    }
}

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
    async fn no_more_is_taken_in_than_is_asked_for() {
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
        let taken = Arc::new(AtomicUsize::new(0));
        let counted = chunks.map({
            let taken = taken.clone();
            move |chunk| {
                taken.fetch_add(1, Relaxed);
                Ok(chunk)
            }
        });
        let mut form = form(counted).await;
        for _ in 0..SMALL {
            let part = form.next().await.unwrap().unwrap();
            assert_eq!(part.text(100).await.unwrap().unwrap(), "small");
        }
        let mut part = form.next().await.unwrap().unwrap();
        assert!(taken.load(Relaxed) < 3, "{taken:?} chunks");
        let mut length = 0;
        while let Some(chunk) = part.chunk().await.unwrap() {
            length += chunk.len();
            let ahead = taken.load(Relaxed).saturating_sub(length / 1_000);
            assert!(ahead < 5, "{ahead} chunks ahead");
        }
        assert_eq!(length, LARGE * 1_000);
        drop(part);
        assert!(form.next().await.unwrap().is_none());
    }

    #[tokio::test]
    async fn a_head_is_bounded_however_it_comes() {
        const LONG: usize = 2 * MAX_HEAD as usize;
        let content = "7".repeat(LONG);
        let whole = format!("\r\n{}{content}\r\n--{BOUNDARY}--\r\n", head(0));
        let endless = format!("--{BOUNDARY}\r\nX: {content}");
        // Whether what is long comes at once, after a beginning, or bit by bit.
        for first in [0, 1, 3, 10, 100] {
            for rest in [100, 10_000, whole.len()] {
                let chunks = |text: &str| {
                    let (start, end) = text.as_bytes().split_at(first);
                    let mut chunks = vec![Ok(Bytes::copy_from_slice(start))];
                    chunks.extend(
                        end.chunks(rest)
                            .map(|bytes| Ok(Bytes::copy_from_slice(bytes))),
                    );
                    stream::iter(chunks)
                };
                let mut form_of = form(chunks(&whole)).await;
                let part = form_of.next().await.unwrap().unwrap();
                assert_eq!(part.text(LONG).await.unwrap().unwrap(), content);
                assert!(form_of.next().await.unwrap().is_none());
                let mut form_of = form(chunks(&endless)).await;
                let error = form_of.next().await.err().unwrap();
                assert_eq!(error.status(), StatusCode::BAD_REQUEST);
            }
        }
    }

    #[tokio::test]
    async fn a_part_is_read_to_its_end_before_the_next() {
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
        let mut left = form(chunks()).await;
        drop(left.next().await.unwrap());
        let error = left.next().await.err().unwrap();
        assert_eq!(error.status(), StatusCode::INTERNAL_SERVER_ERROR);
        let mut skipped = form(chunks()).await;
        let part = skipped.next().await.unwrap().unwrap();
        part.skip().await.unwrap();
        assert_eq!(skipped.next().await.unwrap().unwrap().name(), "1");
    }
}

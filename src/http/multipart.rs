//! Multipart bodies, part by part, with little of them in memory.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
    time::Duration,
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
use tokio::time::timeout;

use super::{ApiError, ApiResult};

/// What may come before a part's content: the reader holds it in memory.
const MAX_HEAD: u64 = 64 << 10;
/// Parts that a form may have.
const MAX_PARTS: usize = 2_016;
/// How long a part may stand still before its request is given up.
const PATIENCE: Duration = Duration::from_secs(30);

/// The parts of a request of type `multipart/form-data`.
pub struct Multipart {
    parts: multipart::Multipart,
    allowed: Arc<AtomicU64>,
    count: usize,
}

/// One part, whose content is still to come.
pub struct Part<'a>(multipart::Field<'a>);

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
        let allowed = Arc::new(AtomicU64::new(MAX_HEAD));
        let mut request = request.map(|body| {
            Body::from_stream(Paced {
                chunks: body.into_data_stream(),
                allowed: allowed.clone(),
                rests: false,
            })
        });
        // What comes is bounded by who takes it.
        DefaultBodyLimit::disable().apply(&mut request);
        match multipart::Multipart::from_request(request, state).await {
            Ok(parts) => Ok(Multipart {
                parts,
                allowed,
                count: 0,
            }),
            Err(_) => Err(ApiError::bad_request(
                "the content type names no boundary between the parts",
            )),
        }
    }
}

impl Multipart {
    /// The next part; what was not read of the one before is passed over.
    pub async fn next(&mut self) -> ApiResult<Option<Part<'_>>> {
        self.allowed.store(MAX_HEAD, Relaxed);
        let part = in_time(self.parts.next_field()).await?;
        self.count += usize::from(part.is_some());
        if self.count > MAX_PARTS {
            let what = format!("a form may have {MAX_PARTS} parts at most");
            return Err(ApiError::bad_request(what));
        }
        self.allowed.store(u64::MAX, Relaxed);
        Ok(part.map(Part))
    }
}

impl Part<'_> {
    pub fn name(&self) -> &str {
        self.0.name().unwrap_or_default()
    }

    /// Whether it is a file's content.
    pub fn is_file(&self) -> bool {
        self.0.file_name().is_some()
    }

    pub async fn chunk(&mut self) -> ApiResult<Option<Bytes>> {
        in_time(self.0.chunk()).await
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

/// Waits for more of the body, but not for ever.
async fn in_time<T>(coming: impl Future<Output = Result<T, MultipartError>>) -> ApiResult<T> {
    match timeout(PATIENCE, coming).await {
        Ok(come) => come.map_err(refused),
        Err(_) => Err(ApiError::request_timeout(format!(
            "nothing more of the body came for {} seconds",
            PATIENCE.as_secs()
        ))),
    }
}

fn refused(error: MultipartError) -> ApiError {
    match error.status() {
        StatusCode::PAYLOAD_TOO_LARGE => ApiError::payload_too_large("a part's head is too long"),
        _ => ApiError::bad_request("the body broke off, or is not made of parts"),
    }
}

/// Hands out one chunk, then rests once: the parser takes in all it can get before it hands on anything, and would hold a body in memory
/// that comes faster than it is written.
struct Paced {
    chunks: BodyDataStream,
    /// Bytes that may come until the parser has got to something.
    allowed: Arc<AtomicU64>,
    rests: bool,
}

impl Stream for Paced {
    type Item = Result<Bytes, axum::Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.rests {
            self.rests = false;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let allowed = self.allowed.load(Relaxed);
        if allowed == 0 {
            let error = axum::Error::new("a part's head is too long");
            return Poll::Ready(Some(Err(error)));
        }
        let chunk = ready!(Pin::new(&mut self.chunks).poll_next(context));
        if let Some(Ok(chunk)) = &chunk {
            self.rests = true;
            if allowed != u64::MAX {
                let left = allowed.saturating_sub(chunk.len() as u64);
                self.allowed.store(left, Relaxed);
            }
        }
        Poll::Ready(chunk)
    }
}

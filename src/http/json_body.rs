//! JSON request bodies: reading them within a limit, and decoding them at a bounded cost.
//!
//! ```text
//! body ─▶ over its limit? 413
//!      ├─ up to LARGE_BODY ──▶ read within BODY_TIMEOUT ─▶ decode
//!      └─ larger ─▶ reserve memory ─▶ read within BODY_TIMEOUT ─▶ decode on another thread
//!                      │ none free for MEMORY_TIMEOUT: 503
//!                      └─ released when the body has been decoded
//! ```

use std::{future::pending, time::Duration};

use axum::{body::Body, extract::Request};
use bytes::{Bytes, BytesMut};
use deserr::Deserr;
use http::{
    HeaderMap,
    header::{CONTENT_LENGTH, CONTENT_TYPE},
};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    task::spawn_blocking,
    time::{sleep, timeout},
};

use super::{
    ApiError, ApiResult, BODY_IDLE_TIMEOUT, BodyError, FieldErrors, json_text::decode,
    serve::ServerShutdown,
};

/// Size limit of a JSON body in bytes, on routes that set no other.
pub const JSON_BODY_LIMIT: usize = 256 * 1024;

/// Size in bytes beyond which a body is decoded on a thread for blocking work and its memory is
/// reserved.
const LARGE_BODY: usize = 64 * 1024;
/// Time a client has to send a small body, and again for the rest of a large one from when its
/// memory is reserved.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);
/// Memory for all large bodies that are being received or decoded.
const MEMORY_BYTES: usize = 64 * 1024 * 1024;
/// Memory for a large body relative to its size: the text, and the values decoded from it.
const MEMORY_PER_BYTE: usize = 2;
/// Longest wait for memory.
const MEMORY_TIMEOUT: Duration = Duration::from_secs(10);
/// `Retry-After` of requests for which no memory became free.
const MEMORY_RETRY_AFTER: Duration = Duration::from_secs(2);
/// `Retry-After` of requests that the server's shutdown has aborted.
const SHUTDOWN_RETRY_AFTER: Duration = Duration::from_secs(5);

/// Memory of this process for large bodies, in KiB.
static MEMORY: Semaphore = Semaphore::const_new(MEMORY_BYTES / 1024);

/// Reads and decodes the JSON body of a request. An absent body is read as `{}`.
///
/// # Errors
/// Returns 400 for an invalid body, 408 if it does not arrive in time, 413 if it is larger than
/// `limit` bytes, 415 for another content type, and 503 during shutdown or if there are too many
/// large bodies.
pub(super) async fn read_json<T>(request: Request, limit: usize) -> ApiResult<T>
where
    T: Deserr<FieldErrors> + Send + 'static,
{
    // Requiring the type prevents cross-site requests: without a CORS preflight, a web page can
    // send only bodies of no type or of a text or form type.
    let is_json = is_json(request.headers());
    let body = read_body(request, &BodyLimits::new(limit)).await?;
    if body.bytes.is_empty() {
        return decode(b"{}");
    }
    if !is_json {
        return Err(ApiError::unsupported_media_type(
            "content type must be application/json",
        ));
    }
    if body.memory.is_none() {
        return decode(&body.bytes);
    }
    let decoding = spawn_blocking(move || {
        // Moved as a whole: the memory stays reserved if the request is aborted meanwhile.
        let body = body;
        decode(&body.bytes)
    });
    decoding.await.map_err(ApiError::internal)?
}

fn is_json(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(CONTENT_TYPE) else {
        return false;
    };
    let essence = value.to_str().unwrap_or_default().split(';').next();
    let essence = essence.unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
        || (essence.starts_with("application/") && essence.ends_with("+json"))
}

/// A complete body, with the memory that is reserved for it if it is large.
#[derive(Debug)]
struct JsonBody {
    bytes: Bytes,
    memory: Option<SemaphorePermit<'static>>,
}

/// The bounds of a body.
struct BodyLimits {
    bytes: usize,
    idle_timeout: Duration,
    total_timeout: Duration,
    memory: &'static Semaphore,
    memory_timeout: Duration,
}

impl BodyLimits {
    fn new(bytes: usize) -> Self {
        Self {
            bytes,
            idle_timeout: BODY_IDLE_TIMEOUT,
            total_timeout: BODY_TIMEOUT,
            memory: &MEMORY,
            memory_timeout: MEMORY_TIMEOUT,
        }
    }

    fn too_large(&self) -> ApiError {
        let limit = self.bytes;
        ApiError::payload_too_large(format!("JSON bodies are limited to {limit} bytes"))
    }

    /// Waits for `reading` as long as a client has to send a body.
    async fn in_time<T>(&self, reading: impl Future<Output = ApiResult<T>>) -> ApiResult<T> {
        timeout(self.total_timeout, reading)
            .await
            .unwrap_or_else(|_| {
                Err(ApiError::request_timeout(format!(
                    "the request body did not arrive within {} s",
                    self.total_timeout.as_secs()
                )))
            })
    }

    /// Reserves the memory for a large body.
    async fn reserve(&self, bytes: usize) -> ApiResult<SemaphorePermit<'static>> {
        let kib = (bytes * MEMORY_PER_BYTE).div_ceil(1024);
        let kib = u32::try_from(kib).unwrap_or(u32::MAX);
        match timeout(self.memory_timeout, self.memory.acquire_many(kib)).await {
            Ok(permit) => permit.map_err(ApiError::internal),
            Err(_) => Err(ApiError::unavailable(
                format!("large request bodies are limited to {MEMORY_BYTES} bytes of memory"),
                MEMORY_RETRY_AFTER,
            )),
        }
    }
}

async fn read_body(request: Request, limits: &BodyLimits) -> ApiResult<JsonBody> {
    let shutdown = request.extensions().get::<ServerShutdown>().cloned();
    tokio::select! {
        // Received bytes first: the shutdown aborts only requests whose body is incomplete.
        biased;
        body = collect(request, limits) => body,
        () = shutdown_requested(shutdown.as_ref()) => Err(ApiError::unavailable(
            "the server is shutting down and the request body is incomplete",
            SHUTDOWN_RETRY_AFTER,
        )),
    }
}

async fn collect(request: Request, limits: &BodyLimits) -> ApiResult<JsonBody> {
    let declared = declared_length(request.headers());
    if declared.is_some_and(|length| length > limits.bytes) {
        return Err(limits.too_large());
    }
    let mut frames = Limited::new(request.into_body(), limits.bytes);
    let start = limits.in_time(read_start(&mut frames, declared, limits));
    let bytes = match start.await? {
        Start::Whole(bytes) => {
            return Ok(JsonBody {
                bytes,
                memory: None,
            });
        }
        Start::OfLarge(bytes) => bytes,
    };
    let size = declared.unwrap_or(limits.bytes);
    let memory = limits.reserve(size).await?;
    let rest = limits.in_time(read_rest(&mut frames, bytes, size, limits));
    Ok(JsonBody {
        bytes: rest.await?,
        memory: Some(memory),
    })
}

/// The part of a body that is read before memory is reserved.
enum Start {
    Whole(Bytes),
    OfLarge(BytesMut),
}

async fn read_start(
    frames: &mut Limited<Body>,
    declared: Option<usize>,
    limits: &BodyLimits,
) -> ApiResult<Start> {
    let mut start = BytesMut::with_capacity(declared.unwrap_or_default().min(LARGE_BODY));
    while start.len() <= LARGE_BODY && declared.is_none_or(|length| length <= LARGE_BODY) {
        match next_chunk(frames, limits).await? {
            Some(chunk) => start.extend_from_slice(&chunk),
            None => return Ok(Start::Whole(start.freeze())),
        }
    }
    Ok(Start::OfLarge(start))
}

async fn read_rest(
    frames: &mut Limited<Body>,
    start: BytesMut,
    size: usize,
    limits: &BodyLimits,
) -> ApiResult<Bytes> {
    let mut bytes = BytesMut::with_capacity(size);
    bytes.extend_from_slice(&start);
    while let Some(chunk) = next_chunk(frames, limits).await? {
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes.freeze())
}

fn declared_length(headers: &HeaderMap) -> Option<usize> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Returns the next bytes, or `None` at the end of the body.
async fn next_chunk(frames: &mut Limited<Body>, limits: &BodyLimits) -> ApiResult<Option<Bytes>> {
    loop {
        let frame = tokio::select! {
            frame = frames.frame() => frame,
            () = sleep(limits.idle_timeout) => {
                return Err(BodyError::IdleTimeout(limits.idle_timeout).into());
            }
        };
        match frame {
            Some(Ok(frame)) => {
                // Trailers are ignored.
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
            Some(Err(error)) if error.is::<LengthLimitError>() => return Err(limits.too_large()),
            Some(Err(_)) => return Err(BodyError::Incomplete.into()),
            None => return Ok(None),
        }
    }
}

async fn shutdown_requested(shutdown: Option<&ServerShutdown>) {
    match shutdown {
        Some(ServerShutdown(token)) => token.cancelled().await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use futures::stream::{self, StreamExt};
    use http::StatusCode;

    use super::*;

    const SHORT: Duration = Duration::from_millis(10);

    /// Limits with memory of their own for one body of `bytes`.
    fn limits(bytes: usize) -> BodyLimits {
        let memory = Semaphore::new((bytes * MEMORY_PER_BYTE).div_ceil(1024));
        BodyLimits {
            memory: Box::leak(Box::new(memory)),
            ..BodyLimits::new(bytes)
        }
    }

    fn request(chunks: impl stream::Stream<Item = Vec<u8>> + Send + 'static) -> Request {
        Request::new(Body::from_stream(chunks.map(Ok::<_, io::Error>)))
    }

    fn chunks(count: usize) -> impl stream::Stream<Item = Vec<u8>> + Send {
        stream::iter(vec![vec![b' '; 1024]; count])
    }

    #[tokio::test]
    async fn body_without_progress_is_408() {
        for start in [1, 100] {
            let limits = BodyLimits {
                idle_timeout: SHORT,
                ..limits(1 << 20)
            };
            let request = request(chunks(start).chain(stream::pending()));
            let error = read_body(request, &limits).await.unwrap_err();
            assert_eq!(error.status(), StatusCode::REQUEST_TIMEOUT);
            assert_eq!(error.body().code, "timeout");
        }
    }

    #[tokio::test]
    async fn body_has_a_total_time() {
        for start in [1, 100] {
            let limits = BodyLimits {
                total_timeout: SHORT,
                ..limits(1 << 20)
            };
            let endless = stream::repeat(vec![]).then(async |chunk| {
                tokio::task::yield_now().await;
                chunk
            });
            let request = request(chunks(start).chain(endless));
            let error = read_body(request, &limits).await.unwrap_err();
            assert_eq!(error.status(), StatusCode::REQUEST_TIMEOUT);
            assert!(error.body().message.contains("did not arrive within"));
        }
    }

    #[tokio::test]
    async fn body_over_its_limit_is_413() {
        let limits = limits(100 * 1024);
        let declared = Request::builder().header(CONTENT_LENGTH, 100 * 1024 + 1);
        let declared = declared.body(Body::empty()).unwrap();
        for request in [declared, request(chunks(101))] {
            let error = read_body(request, &limits).await.unwrap_err();
            assert_eq!(error.status(), StatusCode::PAYLOAD_TOO_LARGE);
        }
        let body = read_body(request(chunks(100)), &limits).await.unwrap();
        assert_eq!(body.bytes.len(), 100 * 1024);
    }

    #[tokio::test]
    async fn large_bodies_share_a_budget_of_memory() {
        let limits = BodyLimits {
            memory_timeout: SHORT,
            ..limits(100 * 1024)
        };
        let first = read_body(request(chunks(100)), &limits).await.unwrap();
        assert!(first.memory.is_some());
        let refused = read_body(request(chunks(65)), &limits).await.unwrap_err();
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
        // Small bodies need none of it.
        let small = read_body(request(chunks(64)), &limits).await.unwrap();
        assert!(small.memory.is_none());
        drop(first);
        let body = read_body(request(chunks(65)), &limits).await.unwrap();
        assert_eq!(body.bytes.len(), 65 * 1024);
    }
}

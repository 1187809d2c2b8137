//! Streamed request bodies, with a timeout for clients that stop sending.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    body::{Body, BodyDataStream, HttpBody},
    extract::{FromRequest, Request},
};
use bytes::Bytes;
use futures::Stream;
use tokio::time::{Instant, Sleep, sleep, timeout};

use super::ApiError;

/// Time without a byte of the body after which a request is aborted.
pub const BODY_IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// The reason a request's body ended before it was complete.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    #[error("the request body is incomplete")]
    Incomplete,
    #[error("received nothing of the request body for {} s", .0.as_secs())]
    IdleTimeout(Duration),
}

impl From<BodyError> for ApiError {
    fn from(error: BodyError) -> Self {
        let message = error.to_string();
        match error {
            BodyError::Incomplete => ApiError::bad_request(message),
            BodyError::IdleTimeout(_) => ApiError::request_timeout(message),
        }
    }
}

/// Waits for the next part of a body, for [`BODY_IDLE_TIMEOUT`] at most.
pub(super) async fn with_idle_timeout<T>(next: impl Future<Output = T>) -> Result<T, BodyError> {
    timeout(BODY_IDLE_TIMEOUT, next)
        .await
        .map_err(|_| BodyError::IdleTimeout(BODY_IDLE_TIMEOUT))
}

/// A body of any content type as a stream of chunks.
///
/// The stream fails if the client sends nothing for [`BODY_IDLE_TIMEOUT`]. Time that the reader
/// spends between two chunks does not count.
#[derive(Debug)]
pub struct RawBody {
    /// The number of bytes that the request announces.
    length: Option<u64>,
    chunks: BodyDataStream,
    idle_timeout: Duration,
    /// Meaningful only while `is_waiting`.
    deadline: Pin<Box<Sleep>>,
    is_waiting: bool,
}

impl RawBody {
    fn new(body: Body, idle_timeout: Duration) -> Self {
        RawBody {
            length: body.size_hint().exact(),
            chunks: body.into_data_stream(),
            idle_timeout,
            deadline: Box::pin(sleep(idle_timeout)),
            is_waiting: false,
        }
    }

    /// Returns the number of bytes that the request announces, if it does.
    #[must_use]
    pub fn length(&self) -> Option<u64> {
        self.length
    }
}

impl<S: Send + Sync> FromRequest<S> for RawBody {
    type Rejection = Infallible;

    async fn from_request(request: Request, _state: &S) -> Result<Self, Infallible> {
        Ok(RawBody::new(request.into_body(), BODY_IDLE_TIMEOUT))
    }
}

impl Stream for RawBody {
    type Item = Result<Bytes, BodyError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Poll::Ready(chunk) = Pin::new(&mut self.chunks).poll_next(context) {
            self.is_waiting = false;
            return Poll::Ready(chunk.map(|chunk| chunk.map_err(|_| BodyError::Incomplete)));
        }
        if !self.is_waiting {
            self.is_waiting = true;
            let end = Instant::now() + self.idle_timeout;
            self.deadline.as_mut().reset(end);
        }
        let idle_timeout = self.idle_timeout;
        let elapsed = self.deadline.as_mut().poll(context);
        elapsed.map(|()| Some(Err(BodyError::IdleTimeout(idle_timeout))))
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use futures::{
        StreamExt,
        stream::{self, pending},
    };
    use http::StatusCode;

    use super::*;

    #[tokio::test]
    async fn body_without_progress_times_out() {
        const IDLE_TIMEOUT: Duration = Duration::from_millis(10);
        let start = stream::iter([Ok::<_, io::Error>("start")]);
        let mut body = RawBody::new(Body::from_stream(start.chain(pending())), IDLE_TIMEOUT);
        assert_eq!(body.next().await.unwrap().unwrap(), "start");
        let error = ApiError::from(body.next().await.unwrap().unwrap_err());
        assert_eq!(error.status(), StatusCode::REQUEST_TIMEOUT);
    }

    #[tokio::test]
    async fn idle_timeout_counts_only_while_waiting_for_a_chunk() {
        let chunks = stream::iter(["one", "two"]).then(async |chunk| {
            tokio::task::yield_now().await;
            Ok::<_, io::Error>(chunk)
        });
        let body = Body::from_stream(chunks.boxed());
        let mut body = RawBody::new(body, Duration::from_secs(60));
        // An expired deadline from before a chunk is polled for must not end the body.
        for chunk in ["one", "two"] {
            body.deadline.as_mut().reset(Instant::now());
            assert_eq!(body.next().await.unwrap().unwrap(), chunk);
        }
        assert!(body.next().await.is_none());
    }

    #[tokio::test]
    async fn incomplete_body_is_400() {
        let broken = stream::iter([Err::<&str, _>(io::Error::other("gone"))]);
        let mut body = RawBody::new(Body::from_stream(broken), BODY_IDLE_TIMEOUT);
        let error = ApiError::from(body.next().await.unwrap().unwrap_err());
        assert_eq!(error.status(), StatusCode::BAD_REQUEST);
    }
}

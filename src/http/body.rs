//! Bodies as they come, from clients that may leave or stand still.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    body::{Body, BodyDataStream},
    extract::{FromRequest, Request},
};
use bytes::Bytes;
use futures::Stream;
use tokio::time::{Instant, Sleep, sleep, timeout};

use super::ApiError;

/// How long a body may stand still before its request is given up.
pub const BODY_PATIENCE: Duration = Duration::from_secs(30);

/// Why no more of a body comes although it is not all there.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    #[error("the body broke off")]
    BrokeOff,
    #[error("nothing more of the body came for {} seconds", .0.as_secs())]
    StoodStill(Duration),
}

impl From<BodyError> for ApiError {
    fn from(error: BodyError) -> Self {
        let message = error.to_string();
        match error {
            BodyError::BrokeOff => ApiError::bad_request(message),
            BodyError::StoodStill(_) => ApiError::request_timeout(message),
        }
    }
}

/// Waits for more of a body, but not for ever.
pub(super) async fn in_time<T>(coming: impl Future<Output = T>) -> Result<T, BodyError> {
    let come = timeout(BODY_PATIENCE, coming).await;
    come.map_err(|_| BodyError::StoodStill(BODY_PATIENCE))
}

/// A body of any type, chunk by chunk. One that stands still for [`BODY_PATIENCE`] ends with an error; how long its reader takes
/// between two chunks does not count.
#[derive(Debug)]
pub struct RawBody {
    chunks: BodyDataStream,
    patience: Duration,
    /// Counts while a chunk is waited for.
    deadline: Pin<Box<Sleep>>,
    waits: bool,
}

impl RawBody {
    fn new(body: Body, patience: Duration) -> Self {
        RawBody {
            chunks: body.into_data_stream(),
            patience,
            deadline: Box::pin(sleep(patience)),
            waits: false,
        }
    }
}

impl<S: Send + Sync> FromRequest<S> for RawBody {
    type Rejection = Infallible;

    async fn from_request(request: Request, _state: &S) -> Result<Self, Infallible> {
        Ok(RawBody::new(request.into_body(), BODY_PATIENCE))
    }
}

impl Stream for RawBody {
    type Item = Result<Bytes, BodyError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Poll::Ready(chunk) = Pin::new(&mut self.chunks).poll_next(context) {
            self.waits = false;
            return Poll::Ready(chunk.map(|chunk| chunk.map_err(|_| BodyError::BrokeOff)));
        }
        if !self.waits {
            self.waits = true;
            let end = Instant::now() + self.patience;
            self.deadline.as_mut().reset(end);
        }
        let patience = self.patience;
        let elapsed = self.deadline.as_mut().poll(context);
        elapsed.map(|()| Some(Err(BodyError::StoodStill(patience))))
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
    async fn a_body_that_stands_still_is_given_up() {
        const PATIENCE: Duration = Duration::from_millis(10);
        let start = stream::iter([Ok::<_, io::Error>("start")]);
        let mut body = RawBody::new(Body::from_stream(start.chain(pending())), PATIENCE);
        assert_eq!(body.next().await.unwrap().unwrap(), "start");
        let error = ApiError::from(body.next().await.unwrap().unwrap_err());
        assert_eq!(error.status(), StatusCode::REQUEST_TIMEOUT);
    }

    #[tokio::test]
    async fn only_the_wait_for_a_chunk_counts() {
        let chunks = stream::iter(["one", "two"]).then(async |chunk| {
            tokio::task::yield_now().await;
            Ok::<_, io::Error>(chunk)
        });
        let body = Body::from_stream(chunks.boxed());
        let mut body = RawBody::new(body, Duration::from_secs(60));
        // The time before the first chunk was waited for, and between the two, has passed already.
        for chunk in ["one", "two"] {
            body.deadline.as_mut().reset(Instant::now());
            assert_eq!(body.next().await.unwrap().unwrap(), chunk);
        }
        assert!(body.next().await.is_none());
    }

    #[tokio::test]
    async fn a_body_that_breaks_off_is_the_clients_fault() {
        let broken = stream::iter([Err::<&str, _>(io::Error::other("gone"))]);
        let mut body = RawBody::new(Body::from_stream(broken), BODY_PATIENCE);
        let error = ApiError::from(body.next().await.unwrap().unwrap_err());
        assert_eq!(error.status(), StatusCode::BAD_REQUEST);
    }
}

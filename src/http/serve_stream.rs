//! Serving one stream that is no connection of the network, such as that of a Unix socket.

use axum::Router;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tower::Service;

use super::serve::{HEAD_TIMEOUT, ServerShutdown};
use crate::shutdown::Shutdown;

/// Serves the requests of a stream until its end, or until shutdown; the current one is finished
/// then.
pub async fn serve_stream<S>(stream: S, app: Router, shutdown: &Shutdown)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let stop = shutdown.token();
    let requests = ServerShutdown(stop.clone());
    let handle = move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(requests.clone());
        app.clone().call(request)
    };
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service_fn(handle));
    tokio::pin!(serving);
    let result = tokio::select! {
        result = &mut serving => result,
        () = stop.cancelled() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "connection ended");
    }
}

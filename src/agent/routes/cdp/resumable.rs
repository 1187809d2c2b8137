//! The handshakes of resumable connections.

use axum::{extract::Request, response::Response};
use http::{HeaderMap, HeaderValue, header::SEC_WEBSOCKET_PROTOCOL};

use super::{
    CdpConnector,
    socket::{LIMITS as PLAIN_LIMITS, MAX_COMMAND},
};
use crate::{
    api::devtools::{RESUME_PROTOCOL, ResumeId},
    http::{ApiError, ApiResult, WebSocketLimits, accept_websocket, is_websocket_upgrade},
    system::cdp::multiplexer::Endpoint,
};

/// The longest number of a message, and the space after it.
const MAX_NUMBER: usize = 21;
const LIMITS: WebSocketLimits = WebSocketLimits {
    max_message: MAX_COMMAND + MAX_NUMBER,
    ..PLAIN_LIMITS
};

impl CdpConnector {
    /// Connects the client to Chromium for as long as it resumes in time.
    pub(super) async fn start_resumable(self, request: Request) -> ApiResult<Response> {
        require_protocol(&request)?;
        let opened = self.open(Endpoint::Browser, |_| true).await?;
        let CdpConnector {
            resumable,
            shutdown,
            ..
        } = self;
        let response = accept_websocket(request, &shutdown, LIMITS, async move |socket| {
            resumable.start(opened, socket).await;
        });
        Ok(with_protocol(response.await?))
    }

    /// Continues a connection. `received` is the number of the last message that the client has
    /// received.
    pub(super) async fn resume(
        self,
        request: Request,
        id: ResumeId,
        received: u64,
    ) -> ApiResult<Response> {
        require_protocol(&request)?;
        let CdpConnector {
            resumable,
            shutdown,
            ..
        } = self;
        let response = accept_websocket(request, &shutdown, LIMITS, async move |socket| {
            resumable.resume(id, received, socket).await;
        });
        Ok(with_protocol(response.await?))
    }
}

/// Checks that the request is a handshake that offers the subprotocol.
fn require_protocol(request: &Request) -> ApiResult<()> {
    if !is_websocket_upgrade(request) {
        return Err(ApiError::websocket_required());
    }
    match offers_protocol(request.headers()) {
        true => Ok(()),
        false => Err(ApiError::bad_request(format!(
            "`resume` needs the subprotocol {RESUME_PROTOCOL} (Sec-WebSocket-Protocol)"
        ))),
    }
}

fn offers_protocol(headers: &HeaderMap) -> bool {
    let offers = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter();
    let offers = offers.filter_map(|value| value.to_str().ok());
    offers
        .flat_map(|value| value.split(','))
        .any(|offer| offer.trim() == RESUME_PROTOCOL)
}

fn with_protocol(mut response: Response) -> Response {
    let protocol = HeaderValue::from_static(RESUME_PROTOCOL);
    response
        .headers_mut()
        .insert(SEC_WEBSOCKET_PROTOCOL, protocol);
    response
}

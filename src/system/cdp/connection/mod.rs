//! The agent's own DevTools connection, for its own commands to Chromium.
//!
//! The connection and types are those of chromiumoxide, without its page handler, which attaches to
//! every tab and changes settings in it; that would disturb the browser's user. It subscribes to no
//! events, so an event of a newer Chromium cannot be misread. A message that cannot be parsed is
//! skipped and does not end the connection.
//!
//! A task owns the WebSocket; it ends when the last clone of [`Cdp`] is dropped.
//!
//! ```text
//! Cdp::send --Call (bounded queue)--> drive task --> Chromium
//! PendingReply <------- oneshot ------- (by call id) <--
//! ```

mod browser;
#[cfg(test)]
mod tests;

use std::{collections::HashMap, time::Duration};

use chromiumoxide::{
    cdp::browser_protocol::target::SessionId,
    conn::Connection,
    error::CdpError as ConnectionError,
    types::{CallId, CdpJsonEventMessage, Command, Message, Response},
};
use futures::StreamExt;
use tokio::{
    sync::{mpsc, oneshot},
    time,
};

/// The most calls queued for sending.
const CALL_QUEUE: usize = 64;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum CdpError {
    #[error("cannot connect to DevTools: {0}")]
    Connect(String),
    #[error("the DevTools connection was closed")]
    Closed,
    #[error("{method} was not answered within {} s", .after.as_secs())]
    Timeout { method: String, after: Duration },
    #[error("{method}: {message}")]
    Failed { method: String, message: String },
    #[error("{method}: invalid reply: {message}")]
    InvalidReply { method: String, message: String },
}

struct Call {
    method: String,
    session: Option<SessionId>,
    params: serde_json::Value,
    reply: oneshot::Sender<Response>,
}

/// A connection to the browser endpoint. It closes when the last clone is dropped.
#[derive(Clone)]
pub struct Cdp {
    calls: mpsc::Sender<Call>,
    call_timeout: Duration,
}

impl Cdp {
    /// Connects. `call_timeout` applies to the connection and to each call.
    pub async fn connect(browser_url: &str, call_timeout: Duration) -> Result<Self, CdpError> {
        let connection = time::timeout(call_timeout, Connection::connect(browser_url))
            .await
            .map_err(|_| CdpError::Connect("timed out".into()))?
            .map_err(|error| CdpError::Connect(error.to_string()))?;
        let (calls, queue) = mpsc::channel(CALL_QUEUE);
        tokio::spawn(drive(connection, queue));
        Ok(Self {
            calls,
            call_timeout,
        })
    }

    /// Sends a command and waits for its reply.
    pub(in crate::system::cdp) async fn call<C: Command>(
        &self,
        command: C,
        session: Option<SessionId>,
    ) -> Result<C::Response, CdpError> {
        let mut pending = self.send(command, session).await?;
        let method = pending.method.clone();
        C::response_from_value(pending.reply().await?).map_err(|error| CdpError::InvalidReply {
            method,
            message: error.to_string(),
        })
    }

    /// Sends a command without waiting for its reply. Chromium gets commands in the order of the
    /// calls of this function.
    pub(in crate::system::cdp) async fn send<C: Command>(
        &self,
        command: C,
        session: Option<SessionId>,
    ) -> Result<PendingReply, CdpError> {
        let method = command.identifier().into_owned();
        let params = serde_json::to_value(&command).map_err(|error| CdpError::InvalidReply {
            method: method.clone(),
            message: error.to_string(),
        })?;
        let (reply, receiver) = oneshot::channel();
        let call = Call {
            method: method.clone(),
            session,
            params,
            reply,
        };
        let pending = PendingReply {
            method,
            receiver,
            timeout: self.call_timeout,
            deadline: time::Instant::now() + self.call_timeout,
        };
        match time::timeout_at(pending.deadline, self.calls.send(call)).await {
            Ok(Ok(())) => Ok(pending),
            Ok(Err(_)) => Err(CdpError::Closed),
            Err(_) => Err(pending.timeout_error()),
        }
    }
}

/// The reply to a command that was sent.
pub struct PendingReply {
    method: String,
    receiver: oneshot::Receiver<Response>,
    timeout: Duration,
    deadline: time::Instant,
}

impl PendingReply {
    /// Waits for the reply. Cancel-safe: it can be called again if the wait was cancelled.
    pub async fn reply(&mut self) -> Result<serde_json::Value, CdpError> {
        match time::timeout_at(self.deadline, &mut self.receiver).await {
            Ok(Ok(Response {
                error: Some(error), ..
            })) => Err(CdpError::Failed {
                method: self.method.clone(),
                message: error.message,
            }),
            Ok(Ok(Response { result, .. })) => Ok(result.unwrap_or_default()),
            Ok(Err(_)) => Err(CdpError::Closed),
            Err(_) => Err(self.timeout_error()),
        }
    }

    /// Whether a successful reply has arrived.
    pub fn is_done(&mut self) -> bool {
        matches!(self.receiver.try_recv(), Ok(Response { error: None, .. }))
    }

    fn timeout_error(&self) -> CdpError {
        CdpError::Timeout {
            method: self.method.clone(),
            after: self.timeout,
        }
    }
}

/// Sends calls and dispatches replies until the connection or the queue closes.
async fn drive(mut connection: Connection<CdpJsonEventMessage>, mut calls: mpsc::Receiver<Call>) {
    let mut pending: HashMap<CallId, oneshot::Sender<Response>> = HashMap::new();
    loop {
        tokio::select! {
            call = calls.recv() => {
                let Some(Call { method, session, params, reply }) = call else { return };
                // With a silent browser, calls that timed out would accumulate.
                pending.retain(|_, reply| !reply.is_closed());
                if let Ok(id) = connection.submit_command(method.into(), session, params) {
                    pending.insert(id, reply);
                }
            }
            message = connection.next() => match message {
                Some(Ok(Message::Response(response))) => {
                    if let Some(reply) = pending.remove(&response.id) {
                        let _ = reply.send(response);
                    }
                }
                Some(Ok(Message::Event(_)) | Err(ConnectionError::InvalidMessage(..))) => {}
                Some(Err(error)) => {
                    tracing::debug!(%error, "DevTools connection ended");
                    return;
                }
                None => return,
            }
        }
    }
}

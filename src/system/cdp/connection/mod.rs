//! The agent's own connection to Chromium, for its own commands.
//!
//! The commands are chromiumoxide's types, without its page handler, which attaches to every tab
//! and changes settings in it; that would disturb the browser's user. It reads few kinds of events,
//! so that an event of a newer Chromium cannot be misread. A message that cannot be parsed is
//! skipped and does not end the connection.
//!
//! A task owns the connection; it ends when the last clone of [`Cdp`] is dropped.
//!
//! ```text
//! Cdp::send --Call (bounded queue)--> drive task --> Chromium
//! PendingReply <------- oneshot ------- (by call id) <--
//! ```

mod browser;
mod command_text;
mod documents;
#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use chromiumoxide::{cdp::browser_protocol::target::SessionId, types::Command};
use parking_lot::Mutex;
use secrecy::zeroize::Zeroizing;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::{
    sync::{mpsc, oneshot},
    time,
};

pub(in crate::system::cdp) use self::documents::DocumentLoads;
use self::documents::NetworkEvent;
pub use self::{
    browser::{BrowserVersion, CookieName, Target},
    documents::DocumentResponse,
};
use super::{
    message::Head,
    multiplexer::{CdpReceiver, CdpSender, ClientOptions, ConnectError, Endpoint, Multiplexer},
};

const OPTIONS: ClientOptions = ClientOptions {
    caller: None,
    // A page cannot end this connection by a long reply. The pipe bounds it.
    max_event: usize::MAX,
};
/// The event that contains whether a tab is visible.
const VISIBILITY_EVENT: &str = "Page.screencastVisibilityChanged";
/// The most calls queued for sending.
const CALL_QUEUE: usize = 64;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum CdpError {
    #[error("cannot connect to DevTools: {0}")]
    Connect(#[from] ConnectError),
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
    id: u32,
    /// The command in JSON, which is zeroed after it was sent. Its parameters may be secret.
    text: Zeroizing<String>,
    reply: oneshot::Sender<Response>,
}

/// The reply to a call.
#[derive(Debug, Deserialize)]
struct Response {
    id: u32,
    #[serde(default)]
    result: Value,
    error: Option<ResponseError>,
}

#[derive(Debug, Deserialize)]
struct ResponseError {
    message: String,
}

/// The state of tabs, from their events.
#[derive(Debug, Default)]
struct Observed {
    /// Whether tabs were visible at their last such event, by their sessions.
    visibility: HashMap<String, bool>,
    /// The documents of the tabs whose network is observed.
    documents: DocumentLoads,
}

/// A connection at the level of the browser. It ends when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct Cdp {
    calls: mpsc::Sender<Call>,
    last_id: Arc<AtomicU32>,
    call_timeout: Duration,
    observed: Arc<Mutex<Observed>>,
}

impl Cdp {
    /// Connects. `call_timeout` applies to the connection and to each call.
    pub async fn connect(
        multiplexer: &Multiplexer,
        call_timeout: Duration,
    ) -> Result<Self, CdpError> {
        let connecting = multiplexer.connect(Endpoint::Browser, OPTIONS);
        let connection = time::timeout(call_timeout, connecting).await;
        let connection = connection.map_err(|_| CdpError::Timeout {
            method: "connecting".to_owned(),
            after: call_timeout,
        })??;
        let (calls, queue) = mpsc::channel(CALL_QUEUE);
        let observed = Arc::<Mutex<Observed>>::default();
        tokio::spawn(drive(connection, queue, observed.clone()));
        Ok(Self {
            calls,
            last_id: Arc::default(),
            call_timeout,
            observed,
        })
    }

    /// Accesses the documents of the tabs whose network is observed.
    pub(in crate::system::cdp) fn with_documents<T>(
        &self,
        access: impl FnOnce(&mut DocumentLoads) -> T,
    ) -> T {
        access(&mut self.observed.lock().documents)
    }

    /// Returns the same connection with another timeout of each call.
    #[must_use]
    pub fn with_call_timeout(self, call_timeout: Duration) -> Self {
        Self {
            call_timeout,
            ..self
        }
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
        let method = command.identifier();
        self.send_params(&method, &command, session).await
    }

    /// Sends a command with these parameters, like [`Self::send`]. No copy of them is left in
    /// memory but in the buffers of the pipe.
    pub(in crate::system::cdp) async fn send_params(
        &self,
        method: &str,
        params: &impl Serialize,
        session: Option<SessionId>,
    ) -> Result<PendingReply, CdpError> {
        let (reply, receiver) = oneshot::channel();
        // From 1 on: Chromium reads ids as signed numbers of 32 bits.
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) % i32::MAX as u32 + 1;
        let text = command_text::encode(id, method, params, session.as_ref());
        let text = text.map_err(|error| CdpError::InvalidReply {
            method: method.to_owned(),
            message: error.to_string(),
        })?;
        let call = Call { id, text, reply };
        let pending = PendingReply {
            method: method.to_owned(),
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
            Ok(Ok(Response { result, .. })) => Ok(result),
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
async fn drive(
    (sender, mut receiver): (CdpSender, CdpReceiver),
    mut calls: mpsc::Receiver<Call>,
    observed: Arc<Mutex<Observed>>,
) {
    let mut pending: HashMap<u32, oneshot::Sender<Response>> = HashMap::new();
    loop {
        tokio::select! {
            call = calls.recv() => {
                let Some(Call { id, text, reply }) = call else { return };
                // With a silent browser, calls that timed out would accumulate.
                pending.retain(|_, reply| !reply.is_closed());
                pending.insert(id, reply);
                if sender.send(&text).await.is_err() {
                    return;
                }
            }
            message = receiver.next() => match message {
                Ok(message) => receive(&message, &mut pending, &observed),
                Err(end) => {
                    tracing::debug!(?end, "connection to Chromium ended");
                    return;
                }
            }
        }
    }
}

fn receive(
    message: &Bytes,
    pending: &mut HashMap<u32, oneshot::Sender<Response>>,
    observed: &Mutex<Observed>,
) {
    let head = Head::of_browser(message).unwrap_or_default();
    if head.id.is_some() {
        if let Ok(response) = serde_json::from_slice::<Response>(message)
            && let Some(reply) = pending.remove(&response.id)
        {
            let _ = reply.send(response);
        }
    } else if let (Some(method), Some(session)) = (head.method.as_deref(), head.session.as_deref())
    {
        if method == VISIBILITY_EVENT {
            let is_visible = serde_json::from_slice::<Value>(message)
                .is_ok_and(|event| event["params"]["visible"] == true);
            let visibility = &mut observed.lock().visibility;
            visibility.insert(session.to_owned(), is_visible);
        } else if let Some(event) = NetworkEvent::of_method(method) {
            observed.lock().documents.note(event, message);
        }
    }
}

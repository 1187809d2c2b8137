//! The HTTP requests of a script. The agent performs them, because the script's process has no
//! network.
//!
//! ```text
//! worker ── HttpRequest ──▶ Requests ── one task each ──▶ FetchClient ──▶ server
//!        ◀── HttpHead, HttpBody …, HttpEnd ── one bounded queue ──┘
//! ```

mod exchange;

use std::{collections::HashMap, sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::sync::{OnceCell, Semaphore, mpsc};
use tokio_util::task::AbortOnDropHandle;

use self::exchange::Exchange;
use crate::{
    agent::settings::Config,
    system::{
        outbound::{AddressPolicy, FetchClient, FetchNetwork, OutboundOptions},
        process::session::Credentials,
        script::worker::{HttpFailure, HttpRequest, ToWorker},
    },
};

/// The most requests of a script that are performed at once. More wait.
const MAX_CONCURRENT: usize = 16;
/// The most requests of a script that are performed or wait.
const MAX_PENDING: usize = 256;
/// The most bytes of these requests, with their headers.
const MAX_PENDING_BYTES: usize = 64 << 20;
/// The most parts of responses that wait for the session.
const MAX_QUEUED_PARTS: usize = 4;
/// The time in which a name must be resolved and a connection established. Playwright's time limit
/// is usually shorter.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);

/// Returns the network of scripts: the public internet and the allowed networks. Where the agent is
/// root, the firewall treats the connections as those of the scripts' user.
pub(super) fn network(config: &Config, user: Option<&Credentials>) -> FetchNetwork {
    let policy = AddressPolicy::new(config.allowed_networks.iter().copied());
    FetchNetwork::new(OutboundOptions {
        policy: policy.with_plain_http(),
        connect_timeout: CONNECT_TIMEOUT,
        own_address: Some(config.listen),
        socket_user: user.map(|user| user.uid),
        ..OutboundOptions::default()
    })
}

/// The requests of one worker. Dropping it ends them.
pub(super) struct Requests {
    network: FetchNetwork,
    client: Arc<OnceCell<FetchClient>>,
    slots: Arc<Semaphore>,
    pending: HashMap<u32, Pending>,
    pending_bytes: usize,
    sender: mpsc::Sender<ToWorker>,
    messages: mpsc::Receiver<ToWorker>,
}

struct Pending {
    size: usize,
    _task: AbortOnDropHandle<()>,
}

impl Requests {
    pub(super) fn new(network: FetchNetwork) -> Self {
        let (sender, messages) = mpsc::channel(MAX_QUEUED_PARTS);
        Requests {
            network,
            client: Arc::default(),
            slots: Arc::new(Semaphore::new(MAX_CONCURRENT)),
            pending: HashMap::new(),
            pending_bytes: 0,
            sender,
            messages,
        }
    }

    /// Starts a request.
    ///
    /// # Errors
    /// Fails if too many requests, or too many bytes of them, are pending.
    pub(super) fn start(&mut self, request: HttpRequest, body: Bytes) -> Result<(), HttpFailure> {
        let id = request.id;
        // With the memory that the head takes.
        let headers = request.headers.iter();
        let headers = headers.map(|(name, value)| name.len() + value.len());
        let size = body.len() + request.url.len() + headers.sum::<usize>();
        let refused = |reason| HttpFailure {
            id,
            code: "EAGAIN".to_owned(),
            reason,
        };
        if self.pending.len() >= MAX_PENDING {
            let reason = format!("the script has {MAX_PENDING} pending requests");
            return Err(refused(reason));
        }
        if self.pending_bytes + size > MAX_PENDING_BYTES {
            let limit = MAX_PENDING_BYTES >> 20;
            let reason = format!("the script's pending requests have more than {limit} MiB");
            return Err(refused(reason));
        }
        if self.pending.contains_key(&id) {
            return Err(refused(format!("request {id} is pending already")));
        }
        let exchange = Exchange {
            network: self.network.clone(),
            client: self.client.clone(),
            slots: self.slots.clone(),
            to_worker: self.sender.clone(),
        };
        let task = tokio::spawn(exchange.perform(request, body));
        self.pending_bytes += size;
        let pending = Pending {
            size,
            _task: AbortOnDropHandle::new(task),
        };
        self.pending.insert(id, pending);
        Ok(())
    }

    /// Ends a request, if it is pending.
    pub(super) fn cancel(&mut self, id: u32) {
        if let Some(ended) = self.pending.remove(&id) {
            self.pending_bytes -= ended.size;
        }
    }

    /// Ends all requests and closes their connections. Returns the ids of those that were pending.
    pub(super) fn cancel_all(&mut self) -> Vec<u32> {
        self.client = Arc::default();
        self.pending_bytes = 0;
        self.pending.drain().map(|(id, _)| id).collect()
    }

    /// Waits for the next message to the worker. Cancel-safe.
    pub(super) async fn next(&mut self) -> ToWorker {
        loop {
            // There is a sender in `self`.
            let Some(message) = self.messages.recv().await else {
                continue;
            };
            match &message {
                ToWorker::HttpEnd(id) | ToWorker::HttpFailed(HttpFailure { id, .. }) => {
                    self.cancel(*id);
                }
                _ => {}
            }
            return message;
        }
    }
}

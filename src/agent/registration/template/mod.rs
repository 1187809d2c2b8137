//! The agent of a machine that others are started from.
//!
//! ```text
//! snapshot of a machine whose browser runs ──▶ machines with the same memory ──▶ hosts
//!          ▲ prepare: is it ready?                │ resumed: new processes, key and boot id
//! ```
//!
//! All machines of a snapshot have the same memory. So the agent has neither a key nor a token
//! before its machine is resumed, accepts no connection, and then replaces what has the state of
//! random numbers. The hooks of the machine call it through a [`socket`]. The [`resumption`] is
//! stored for an agent that is started again.

mod resumption;
mod socket;

use std::{fmt::Display, io};

use tokio::sync::Mutex;

use self::resumption::Resumption;
use super::{PendingRegistration, RESUMED_RETRY_DELAY, RETRY_DELAY};
use crate::{
    agent::{AgentError, sessions::Sessions, settings::ControlConfig},
    api::suspend::{AgentHook, AgentHookAnswer},
    backoff::Backoff,
};

/// The registration of an agent whose machine has not been resumed.
pub(super) struct Template {
    sessions: Sessions,
    control: ControlConfig,
    /// `None` once the machine was resumed.
    pending: Mutex<Option<PendingRegistration>>,
}

impl Template {
    /// Answers the hooks of the machine until it was resumed. If it was, it is registered at once.
    ///
    /// # Errors
    /// Fails if the socket cannot be created, or if the state directory is that of another host.
    pub(super) fn start(
        pending: PendingRegistration,
        control: ControlConfig,
    ) -> Result<(), AgentError> {
        let state_dir = &pending.config.state_dir;
        let describe = |source| AgentError::StateDir {
            path: state_dir.root().display().to_string(),
            source,
        };
        if let Some(resumption) = Resumption::load(state_dir).map_err(describe)? {
            return register(pending, &control, resumption);
        }
        if state_dir.host_key().exists() {
            let reason = "it has the key of a host, which a template must not have";
            return Err(describe(io::Error::other(reason)));
        }
        let (path, shutdown) = (state_dir.hooks_socket(), pending.shutdown.clone());
        let template = Template {
            sessions: pending.sessions.clone(),
            control,
            pending: Mutex::new(Some(pending)),
        };
        Ok(socket::serve(path, template, &shutdown)?)
    }

    async fn answer(&self, hook: AgentHook) -> AgentHookAnswer {
        match hook {
            AgentHook::Prepare => self.prepare().await,
            AgentHook::Resumed {
                join_token,
                advertise,
            } => match Resumption::new(join_token, advertise) {
                Ok(resumption) => self.resume(resumption).await,
                Err(error) => failed(&error),
            },
        }
    }

    async fn prepare(&self) -> AgentHookAnswer {
        let is_ready = self.sessions.is_ready() && self.sessions.is_spare_ready();
        match (self.is_resumed().await, is_ready) {
            (true, _) => already_resumed(),
            (false, false) => AgentHookAnswer::NotReady,
            (false, true) => AgentHookAnswer::Prepared,
        }
    }

    /// Makes the machine another one than those that are resumed from the same snapshot, and
    /// registers it in the background.
    async fn resume(&self, resumption: Resumption) -> AgentHookAnswer {
        let mut pending = self.pending.lock().await;
        if pending.is_none() {
            return already_resumed();
        }
        if let Err(error) = self.sessions.renew().await {
            return failed(&error);
        }
        let Some(registration) = pending.take() else {
            return already_resumed();
        };
        let boot_id = resumption.boot_id().to_owned();
        if let Err(error) = resumption.store(&registration.config.state_dir) {
            return failed(&error);
        }
        match register(registration, &self.control, resumption) {
            Ok(()) => AgentHookAnswer::Resumed { boot_id },
            Err(error) => failed(&error),
        }
    }

    async fn is_resumed(&self) -> bool {
        self.pending.lock().await.is_none()
    }
}

fn register(
    pending: PendingRegistration,
    template: &ControlConfig,
    resumption: Resumption,
) -> Result<(), AgentError> {
    let (control, boot_id) = resumption.apply(template).map_err(io::Error::other)?;
    let delays = Backoff::new(RESUMED_RETRY_DELAY, RETRY_DELAY.1);
    pending.start(control, boot_id, delays)
}

fn already_resumed() -> AgentHookAnswer {
    AgentHookAnswer::Refused {
        reason: "this machine was resumed before".to_owned(),
    }
}

fn failed(error: &dyn Display) -> AgentHookAnswer {
    tracing::error!("cannot resume: {error}");
    AgentHookAnswer::Failed {
        reason: error.to_string(),
    }
}

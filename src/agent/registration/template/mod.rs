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

use std::{fmt::Display, io, time::Duration};

use tokio::{sync::Mutex, time::timeout};

use self::resumption::Resumption;
use super::{PendingRegistration, RESUMED_RETRY_DELAY, RETRY_DELAY};
use crate::{
    agent::{AgentError, chromium::RenewalError, sessions::Sessions, settings::ControlConfig},
    api::suspend::{AgentHook, AgentHookAnswer},
    backoff::Backoff,
    system::files::remove::{remove_file_if_exists, remove_or_warn},
};

/// The longest time in which the processes are replaced, less than the hooks wait.
const RENEWAL_TIMEOUT: Duration = Duration::from_secs(45);

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
            // Left by an agent that was killed.
            remove_file_if_exists(&state_dir.hooks_socket()).map_err(describe)?;
            let applied = resumption.apply(&control).map_err(io::Error::other);
            let (control, boot_id) = applied.map_err(describe)?;
            return register(pending, control, boot_id);
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
        if self.is_resumed().await {
            return already_resumed();
        }
        // Again, if its start has failed.
        self.sessions.prepare_spare().await;
        match self.sessions.is_ready() && self.sessions.is_spare_ready() {
            true => AgentHookAnswer::Prepared,
            false => AgentHookAnswer::NotReady,
        }
    }

    /// Makes the machine another one than those that are resumed from the same snapshot, and
    /// registers it in the background.
    async fn resume(&self, resumption: Resumption) -> AgentHookAnswer {
        let (control, boot_id) = match resumption.apply(&self.control) {
            Ok(applied) => applied,
            Err(reason) => return AgentHookAnswer::Refused { reason },
        };
        let mut pending = self.pending.lock().await;
        let Some(state_dir) = pending
            .as_ref()
            .map(|pending| pending.config.state_dir.clone())
        else {
            return already_resumed();
        };
        match timeout(RENEWAL_TIMEOUT, self.sessions.renew()).await {
            Ok(Ok(())) => {}
            Ok(Err(RenewalError::NotReady(_))) => return AgentHookAnswer::NotReady,
            Ok(Err(error)) => return failed(&error),
            Err(error) => return failed(&error),
        }
        if let Err(error) = resumption.store(&state_dir) {
            return failed(&error);
        }
        let Some(registration) = pending.take() else {
            return already_resumed();
        };
        match register(registration, control, boot_id.clone()) {
            Ok(()) => AgentHookAnswer::Resumed { boot_id },
            Err(error) => {
                // The caller gives up the machine, which must not register after a restart.
                remove_or_warn(&state_dir.resumption());
                failed(&error)
            }
        }
    }

    async fn is_resumed(&self) -> bool {
        self.pending.lock().await.is_none()
    }
}

fn register(
    pending: PendingRegistration,
    control: ControlConfig,
    boot_id: String,
) -> Result<(), AgentError> {
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

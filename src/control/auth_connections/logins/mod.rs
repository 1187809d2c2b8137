//! Logins: flows that run in a browser.
//!
//! - [`service`]: what clients do with a flow.
//! - [`driver`]: a task for each flow that performs its actions and stores what follows. The row of
//!   the flow decides: a change by another task or process interrupts the action.
//! - [`actions`]: performs one action. [`steps`]: those that enter no value. [`page`]: the page in
//!   front, through the agent.
//! - [`adoption`]: continues the flows of processes that have ended.
//! - [`browser`]: the browsers of logins.
//! - [`saving`], [`recording`]: what remains of a login.
//! - [`exchange`]: the codes of the hosted login page.
//! - [`answers`]: the values of the person, sealed.
//!
//! ```text
//!  login ──▶ row ◀── submit, cancel (any process)
//!             │ ▲
//!             ▼ └────────── transition ◀── event ◀─┐
//!           driver ──▶ effect ──▶ actions ──▶ page ─┘
//! ```

use std::{collections::HashSet, sync::Arc};

use parking_lot::Mutex;

use crate::{
    api::ids::FlowId,
    control::{
        browsers::Browsers,
        credentials::{StoredCredentials, fill::PageFiller},
        profiles::Profiles,
        replays::Replays,
        secrets::Secrets,
        store::Store,
    },
    shutdown::Shutdown,
    system::outbound::AddressPolicy,
};

mod actions;
mod adoption;
mod answers;
mod browser;
mod driver;
mod exchange;
mod page;
mod recording;
mod saving;
mod service;
mod steps;

pub(super) use browser::{create_when_available, new_browser, profile_of};
pub use exchange::ExchangeAttempt;
use exchange::ExchangeLimits;
pub(super) use page::PageError;
pub use service::{BegunLogin, LoginError};

/// The service of logins. Clones share its state.
#[derive(Clone)]
pub struct Logins {
    inner: Arc<Inner>,
}

/// The services that a login uses.
pub struct LoginParts {
    pub store: Store,
    pub browsers: Browsers,
    pub profiles: Profiles,
    pub replays: Replays,
    pub credentials: StoredCredentials,
    pub filler: PageFiller,
    pub secrets: Secrets,
    /// The addresses that pages may have.
    pub policy: AddressPolicy,
    pub shutdown: Shutdown,
}

struct Inner {
    parts: LoginParts,
    /// The flows that tasks of this process drive.
    driven: Mutex<HashSet<FlowId>>,
    exchanges: ExchangeLimits,
}

impl Logins {
    #[must_use]
    pub fn new(parts: LoginParts) -> Logins {
        Logins {
            inner: Arc::new(Inner {
                parts,
                driven: Mutex::default(),
                exchanges: ExchangeLimits::default(),
            }),
        }
    }

    /// Returns the services that a login uses.
    pub(super) fn parts(&self) -> &LoginParts {
        &self.inner.parts
    }
}

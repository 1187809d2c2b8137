//! The events of a flow, and their consequences.

use super::{
    Flow,
    credential::CredentialSummary,
    effect::{Effect, EntryOutcome},
    findings::PageFindings,
    view::FlowTimelineEntry,
};
use crate::api::{
    auth_flow::{FlowErrorCode, ManagedAuthState},
    ids::BrowserId,
};

/// An event in the life of a flow. Events that are impossible in the present state are ignored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FlowEvent {
    /// The browser runs with the connection's profile.
    Started {
        browser: BrowserId,
        /// The stored credential, if the connection has one.
        credential: Option<CredentialSummary>,
    },
    NotStarted(StartFailure),
    PageFound(PageFindings),
    PageFailed(PageFailure),
    Filled(EntryOutcome),
    /// The person has acted in the live view or on a device, and the site responds.
    ExternalActionSeen,
    Saved,
    NotSaved,
    Canceled,
    BrowserLost,
    /// The process that drove the flow is lost, and no other can continue it.
    ControllerLost,
    /// Another process drives the flow. What the one before was about to do may have happened.
    Resumed,
    /// Time has passed.
    Timer,
}

/// Why a flow could not start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartFailure {
    NoBrowser,
    /// The connection has a credential that cannot be read.
    NoCredential,
}

/// Why there is no page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageFailure {
    Unavailable,
    NoLoginPage,
    /// The page, or a redirect on the way, has an internal address. Nothing was loaded from there.
    InternalAddress,
}

impl From<PageFailure> for FlowErrorCode {
    fn from(failure: PageFailure) -> FlowErrorCode {
        match failure {
            PageFailure::InternalAddress => FlowErrorCode::InternalAddress,
            PageFailure::Unavailable => FlowErrorCode::SiteUnavailable,
            PageFailure::NoLoginPage => FlowErrorCode::LoginPageNotFound,
        }
    }
}

/// The consequence of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transition {
    pub flow: Flow,
    /// The next action of the driver. `None` if the present one continues.
    pub effect: Option<Effect>,
    /// The new entry of the timeline, if the flow has entered another step.
    pub entry: Option<FlowTimelineEntry>,
    /// The new state for clients, if it has changed.
    pub state: Option<ManagedAuthState>,
}

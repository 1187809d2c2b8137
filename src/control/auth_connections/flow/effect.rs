//! The actions that a flow has the driver of the browser take. No value is part of them.

use serde::{Deserialize, Serialize};

use super::findings::FieldKind;
use crate::api::{
    auth_flow::InteractionId,
    credential_fill::{FillOutcome, FillResponse},
};

/// An action that the flow waits for. Each ends with one event, which the variants name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Start a browser with the connection's profile, and find out what the credential has:
    /// `Started` or `NotStarted`. A browser that an interrupted start has left is ended.
    StartBrowser,
    /// Act on the page, and inspect it when it is at rest: `PageFound` or `PageFailed`.
    Act(PageAction),
    /// Enter values of the stored credential, and submit the form: `Filled`.
    FillFromCredential {
        /// The values are entered only while the document with the fields is of this host.
        host: String,
        entries: Vec<CredentialEntry>,
    },
    /// Enter the values that the person has submitted, with those of the credential that the same
    /// form needs, and submit the form: `Filled`.
    EnterAnswers {
        interaction: InteractionId,
        /// As in `FillFromCredential`.
        host: String,
        answers: Vec<AnswerEntry>,
        from_credential: Vec<CredentialEntry>,
    },
    /// Watch the page while the person is to act. `PageFound` as soon as it requests anything else
    /// than before, `ExternalActionSeen` when the person has acted.
    WatchPage,
    /// Save the profile: `Saved` or `NotSaved`.
    SaveProfile {
        /// Save the values that the person has submitted as a credential, too.
        save_answers: bool,
    },
    /// End the browser and discard submitted values. The flow has ended.
    EndBrowser,
}

/// An action on the page in front.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum PageAction {
    /// Open the login page, which is discovered from the domain if none is configured.
    OpenLoginPage,
    Inspect,
    DismissConsent,
    RememberDevice,
    SkipOffer,
    Choose {
        label: String,
        selector: String,
    },
    /// Wait until the site has responded to what was submitted.
    WaitForSite,
}

/// A field that gets a value of the stored credential.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CredentialEntry {
    /// The name of the value in the credential; `code` for a one-time code.
    pub value_name: String,
    pub selector: String,
    pub kind: FieldKind,
}

/// A field that gets a value that the person has submitted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnswerEntry {
    /// The name or id with which the value was submitted.
    pub key: String,
    /// The name under which a credential stores the value.
    pub value_name: String,
    pub selector: String,
    pub kind: FieldKind,
}

/// The outcome of entering values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryOutcome {
    /// The form was, or may have been, submitted.
    Submitted,
    /// The form was not submitted, because the page does not have its fields any more.
    NotSubmitted,
    /// A field is on a page of another host. It has no value.
    OriginRefused,
    /// The credential cannot be read, or does not have the values any more. Nothing was entered.
    CredentialUnavailable,
}

impl From<&FillResponse> for EntryOutcome {
    fn from(response: &FillResponse) -> EntryOutcome {
        let has = |outcome| response.fields.iter().any(|field| field.outcome == outcome);
        if has(FillOutcome::RefusedOrigin) {
            EntryOutcome::OriginRefused
        } else if response.submitted || has(FillOutcome::Unknown) {
            EntryOutcome::Submitted
        } else {
            EntryOutcome::NotSubmitted
        }
    }
}

//! Decides what follows from the page in front.

use super::{
    Flow, MAX_STALLS, Submission,
    effect::{CredentialEntry, PageAction},
    findings::{
        ExternalAction, ExternalActionKind, FieldKind, PageChoice, PageFindings, PageObstacle,
        PageOrigin,
    },
    prompt::{Prompt, PromptField},
};
use crate::api::auth_flow::{FieldReason, FlowErrorCode};

/// The consequence of a page.
pub(super) enum Decision {
    End(FlowErrorCode),
    /// The browser is logged in.
    Save,
    /// The page is not ready yet.
    Act(PageAction),
    Fill(Vec<CredentialEntry>),
    Choose(PageChoice),
    /// The person has to act.
    Wait(Prompt),
}

impl Flow {
    /// Returns the consequence of a page. The order of the rules is essential: nothing is entered
    /// before the address is verified, and success precedes everything that a page may request.
    pub(super) fn decide(&self, page: &PageFindings) -> Decision {
        match page.origin {
            PageOrigin::Internal => return Decision::End(FlowErrorCode::InternalAddress),
            PageOrigin::NotPermitted => return Decision::End(FlowErrorCode::OriginNotPermitted),
            PageOrigin::Domain
            | PageOrigin::AllowedDomain
            | PageOrigin::IdentityProvider { .. } => {}
        }
        let is_stalled = self.stalls >= MAX_STALLS;
        if let Some(obstacle) = page.obstacle.filter(|_| !is_stalled) {
            return Decision::Act(match obstacle {
                PageObstacle::ConsentBanner => PageAction::DismissConsent,
                PageObstacle::RememberDevice => PageAction::RememberDevice,
                PageObstacle::Offer => PageAction::SkipOffer,
            });
        }
        if page.is_logged_in(self.may_be_logged_in) {
            return Decision::Save;
        }
        // A box that cannot be checked does not prevent the login.
        let is_box =
            page.obstacle == Some(PageObstacle::RememberDevice) && !page.requests_nothing();
        if page.obstacle.is_some() && !is_box {
            return wait_for_action(page, ExternalActionKind::Obstacle);
        }
        if !page.requests_nothing() {
            return self.decide_request(page);
        }
        match is_stalled {
            false => Decision::Act(PageAction::WaitForSite),
            true if page.website_error.is_some() => Decision::End(FlowErrorCode::RefusedBySite),
            true => wait_for_action(page, ExternalActionKind::Unknown),
        }
    }

    /// Returns the consequence of a page that requests something.
    fn decide_request(&self, page: &PageFindings) -> Decision {
        let external = page.external.as_ref();
        if let Some(captcha) = external.filter(|action| action.kind == ExternalActionKind::Captcha)
        {
            return Decision::Wait(Prompt::for_action(page, captcha.clone()));
        }
        // The fields were there, and could not be filled.
        if self.failed_entries >= MAX_STALLS && !page.fields.is_empty() {
            return wait_for_action(page, ExternalActionKind::Unknown);
        }
        if let Some(account) = self.credential.account_of(page) {
            return Decision::Choose(account.clone());
        }
        let (stored, missing) = self.split_fields(page);
        let is_complete = !missing.iter().any(|field| field.field.required);
        if is_complete && !stored.is_empty() {
            return Decision::Fill(stored);
        }
        if let Some(method) = self.credential.method_of(page) {
            return Decision::Choose(method.clone());
        }
        // A person who can answer need not act on the site, but a notification cannot be answered.
        let is_only_request = page.fields.is_empty() && page.choices.is_empty();
        let external = external.filter(|action| {
            is_only_request || action.kind == ExternalActionKind::Push && page.fields.is_empty()
        });
        Decision::Wait(Prompt {
            number: 0,
            host: page.host.clone(),
            fields: missing,
            choices: page.choices.clone(),
            external: external.cloned(),
            from_credential: stored,
        })
    }

    /// Returns the fields that the credential has values for, and those for the person.
    fn split_fields(&self, page: &PageFindings) -> (Vec<CredentialEntry>, Vec<PromptField>) {
        let (mut stored, mut missing) = (Vec::new(), Vec::new());
        for field in &page.fields {
            match self.credential.value_for(field, &page.origin) {
                Some(value_name) => stored.push(CredentialEntry {
                    value_name,
                    selector: field.selector.clone(),
                    kind: field.kind,
                }),
                None => missing.push(PromptField {
                    reason: self.reason_for(field.kind, page),
                    field: field.clone(),
                }),
            }
        }
        (stored, missing)
    }

    fn reason_for(&self, kind: FieldKind, page: &PageFindings) -> FieldReason {
        let was_submitted = |submission: &Submission| submission.contains(kind);
        let is_rejected =
            page.website_error.is_some() && self.submission.as_ref().is_some_and(was_submitted);
        match is_rejected {
            true => FieldReason::Rejected,
            false => FieldReason::Missing,
        }
    }
}

fn wait_for_action(page: &PageFindings, kind: ExternalActionKind) -> Decision {
    let action = ExternalAction { kind, detail: None };
    Decision::Wait(Prompt::for_action(page, action))
}

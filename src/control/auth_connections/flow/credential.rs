//! The use of the stored credential: which of its values answer a page, and how often.

use serde::{Deserialize, Serialize};

use super::findings::{FieldInput, FieldKind, PageChoice, PageField, PageFindings, PageOrigin};
use crate::api::{
    auth_flow::{FlowChoiceType, MfaType},
    credential_fill::IDENTIFIER_NAMES,
};

const PASSWORD_NAME: &str = "password";
/// The name of the value that is a one-time code, computed from the secret for such codes.
const CODE_NAME: &str = "code";
/// The most times that values of one kind are entered, so that no account is locked.
const MAX_ENTRIES: usize = 2;

/// The parts of a credential, without their values.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CredentialSummary {
    pub value_names: Vec<String>,
    /// Whether there is a secret for one-time codes.
    pub has_totp_secret: bool,
    /// The identity provider that the values belong to. Without one they belong to the site.
    pub sso_provider: Option<String>,
}

/// The stored credential, and how it was used.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CredentialUse {
    summary: CredentialSummary,
    /// The kinds of the values that were submitted, once for each time.
    entered: Vec<FieldKind>,
    /// The kinds of the values that the site has rejected. They are not entered again.
    rejected: Vec<FieldKind>,
    /// The labels of the choices that were selected. None is selected again.
    chosen: Vec<String>,
}

impl CredentialUse {
    pub(super) fn new(summary: CredentialSummary) -> CredentialUse {
        CredentialUse {
            summary,
            ..CredentialUse::default()
        }
    }

    pub(super) fn add_entered(&mut self, kinds: impl IntoIterator<Item = FieldKind>) {
        for kind in kinds {
            if !self.is_used_up(kind) {
                self.entered.push(kind);
            }
        }
    }

    pub(super) fn add_rejected(&mut self, kinds: impl IntoIterator<Item = FieldKind>) {
        for kind in kinds {
            if !self.is_rejected(kind) {
                self.rejected.push(kind);
            }
        }
    }

    pub(super) fn add_chosen(&mut self, label: &str) {
        if !self.chosen.iter().any(|chosen| chosen == label) {
            self.chosen.push(label.to_owned());
        }
    }

    pub(super) fn is_rejected(&self, kind: FieldKind) -> bool {
        self.rejected.contains(&kind)
    }

    /// Returns the name of the value for a field, if it may be entered on such a page.
    pub(super) fn value_for(&self, field: &PageField, origin: &PageOrigin) -> Option<String> {
        let may_enter =
            self.is_for(origin) && !self.is_rejected(field.kind) && !self.is_used_up(field.kind);
        if !may_enter {
            return None;
        }
        match field.kind {
            FieldKind::Identifier => {
                let preferred: &[&str] = match field.input {
                    FieldInput::Email => &["email"],
                    FieldInput::Tel => &["phone", "tel"],
                    FieldInput::Text | FieldInput::Number | FieldInput::Url => &[],
                };
                let mut names = preferred.iter().chain(&IDENTIFIER_NAMES);
                names.find_map(|name| self.stored_name(name))
            }
            FieldKind::Password => self.stored_name(PASSWORD_NAME),
            FieldKind::Code => {
                let is_of_app = matches!(field.mfa_type, None | Some(MfaType::Totp));
                (is_of_app && self.summary.has_totp_secret).then(|| CODE_NAME.to_owned())
            }
            FieldKind::SecurityAnswer | FieldKind::Text => self.stored_name(field.value_name()),
            FieldKind::NewPassword => None,
        }
    }

    /// Returns the account of the credential, or the button of its identity provider.
    pub(super) fn account_of<'p>(&self, page: &'p PageFindings) -> Option<&'p PageChoice> {
        let provider = self.summary.sso_provider.as_deref();
        self.find_choice(page, |choice| match choice.kind {
            FlowChoiceType::Account => choice.is_of_credential,
            FlowChoiceType::SsoProvider => provider.is_some_and(|provider| {
                let offered = choice.provider.as_deref();
                offered.is_some_and(|offered| offered.eq_ignore_ascii_case(provider))
            }),
            _ => false,
        })
    }

    /// Returns a method for which the credential has the value.
    pub(super) fn method_of<'p>(&self, page: &'p PageFindings) -> Option<&'p PageChoice> {
        if !self.is_for(&page.origin) {
            return None;
        }
        let is_usable = |kind| !self.is_rejected(kind) && !self.is_used_up(kind);
        self.find_choice(page, |choice| match choice.mfa_type {
            Some(MfaType::Totp) => self.summary.has_totp_secret && is_usable(FieldKind::Code),
            Some(MfaType::Password) => {
                self.stored_name(PASSWORD_NAME).is_some() && is_usable(FieldKind::Password)
            }
            _ => false,
        })
    }

    fn find_choice<'p>(
        &self,
        page: &'p PageFindings,
        is_suitable: impl Fn(&PageChoice) -> bool,
    ) -> Option<&'p PageChoice> {
        let mut choices = page.choices.iter();
        choices.find(|choice| is_suitable(choice) && !self.chosen.contains(&choice.label))
    }

    fn is_for(&self, origin: &PageOrigin) -> bool {
        origin.is_for(self.summary.sso_provider.as_deref())
    }

    fn is_used_up(&self, kind: FieldKind) -> bool {
        let times = self.entered.iter().filter(|entered| **entered == kind);
        times.count() >= MAX_ENTRIES
    }

    /// Returns the name of a value as the credential spells it.
    fn stored_name(&self, name: &str) -> Option<String> {
        let mut names = self.summary.value_names.iter();
        names.find(|own| own.eq_ignore_ascii_case(name)).cloned()
    }
}

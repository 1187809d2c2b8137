//! A request to the person: its forms for clients, and the answers to it.

use serde::{Deserialize, Serialize};

use super::{
    effect::{AnswerEntry, CredentialEntry},
    findings::{
        ExternalAction, ExternalActionKind, FieldInput, FieldKind, PageChoice, PageField,
        PageFindings,
    },
};
use crate::api::{
    auth_flow::{
        DiscoveredField, DiscoveredFieldType, FieldReason, FlowChoice, FlowChoiceType, FlowField,
        FlowFieldType, InputMode, InteractionId, MfaOption, MfaType, RequestedInput, SignInOption,
        SsoButton, SubmittedAnswer,
    },
    credential_fill::FillValues,
};

/// A request to the person, about the page in front.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Prompt {
    /// Distinguishes the requests of a flow.
    pub(super) number: u32,
    /// Values are entered only on this host.
    pub(super) host: String,
    pub(super) fields: Vec<PromptField>,
    pub(super) choices: Vec<PageChoice>,
    pub(super) external: Option<ExternalAction>,
    /// Values of the stored credential that are entered together with the answers.
    pub(super) from_credential: Vec<CredentialEntry>,
}

/// A field that the person has to fill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PromptField {
    pub(super) field: PageField,
    pub(super) reason: FieldReason,
}

/// An answer of the person, without the values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FlowAnswer {
    /// Values for the fields of these names.
    FieldNames(Vec<String>),
    /// Values for the fields of these ids.
    FieldIds(Vec<String>),
    /// The type of a method, or the id of its choice.
    MfaOption(String),
    /// The id of any choice.
    Choice(String),
    /// The id of a choice that is neither a method nor an identity provider.
    SignInOption(String),
    /// The selector of an identity provider's button.
    SsoButton(String),
    /// An identity provider.
    SsoProvider(String),
}

/// Why an answer was refused. Nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnswerRefusal {
    #[error("the login has ended")]
    Ended,
    #[error("the login requests no input at this time")]
    NotAwaiting,
    #[error("the login has made another request since")]
    StaleInteraction,
    #[error("the answer has no value")]
    NoValue,
    #[error("{0} is not a field of the request")]
    UnknownField(String),
    #[error("a value for {0} is required")]
    MissingField(String),
    #[error("the request has no such choice")]
    UnknownChoice,
}

/// The meaning of an answer to a prompt.
pub(super) enum ResolvedAnswer {
    Values(Vec<AnswerEntry>),
    Choice(PageChoice),
}

impl From<&SubmittedAnswer> for FlowAnswer {
    fn from(answer: &SubmittedAnswer) -> FlowAnswer {
        let names = |values: &FillValues| {
            let names = values.iter().map(|(name, _)| name.as_str().to_owned());
            names.collect()
        };
        match answer {
            SubmittedAnswer::Fields(values) => FlowAnswer::FieldNames(names(values)),
            SubmittedAnswer::FieldValues(values) => FlowAnswer::FieldIds(names(values)),
            SubmittedAnswer::MfaOption(id) => FlowAnswer::MfaOption(id.as_str().to_owned()),
            SubmittedAnswer::Choice(id) => FlowAnswer::Choice(id.as_str().to_owned()),
            SubmittedAnswer::SignInOption(id) => FlowAnswer::SignInOption(id.as_str().to_owned()),
            SubmittedAnswer::SsoButton(selector) => {
                FlowAnswer::SsoButton(selector.as_str().to_owned())
            }
            SubmittedAnswer::SsoProvider(name) => FlowAnswer::SsoProvider(name.as_str().to_owned()),
        }
    }
}

impl Prompt {
    /// Returns a request for an action, which no answer can replace.
    pub(super) fn for_action(page: &PageFindings, action: ExternalAction) -> Prompt {
        Prompt {
            number: 0,
            host: page.host.clone(),
            fields: Vec::new(),
            choices: Vec::new(),
            external: Some(action),
            from_credential: Vec::new(),
        }
    }

    /// Returns whether both request the same of the person, even if the page has been rendered
    /// anew.
    pub(super) fn is_same_request(&self, other: &Prompt) -> bool {
        let kind = |prompt: &Prompt| prompt.external.as_ref().map(|action| action.kind);
        let fields = |prompt: &Prompt| -> Vec<(FieldKind, String)> {
            let fields = prompt.fields.iter();
            let fields = fields.map(|PromptField { field, .. }| (field.kind, field.name.clone()));
            fields.collect()
        };
        let choices = |prompt: &Prompt| -> Vec<(FlowChoiceType, String)> {
            let choices = prompt.choices.iter();
            let choices = choices.map(|choice| (choice.kind, choice.label.clone()));
            choices.collect()
        };
        self.host == other.host
            && kind(self) == kind(other)
            && fields(self) == fields(other)
            && choices(self) == choices(other)
    }

    /// Finds the elements of the page again, after it was rendered anew.
    pub(super) fn update_selectors(&mut self, newer: Prompt) {
        for (own, newer) in self.fields.iter_mut().zip(newer.fields) {
            own.field.selector = newer.field.selector;
        }
        for (own, newer) in self.choices.iter_mut().zip(newer.choices) {
            own.selector = newer.selector;
        }
        self.from_credential = newer.from_credential;
    }

    /// Returns the forms of the request for clients.
    pub(super) fn requested_input(&self, interaction: InteractionId) -> RequestedInput {
        let fields = || self.fields.iter().enumerate();
        let choices = || self.choices.iter().enumerate();
        let sign_in_options = choices().filter(|(_, choice)| is_sign_in_option(choice));
        RequestedInput {
            interaction_id: Some(interaction),
            fields: fields()
                .map(|(index, field)| flow_field(self.field_id(index), field))
                .collect(),
            choices: choices()
                .map(|(index, choice)| flow_choice(self.choice_id(index), choice))
                .collect(),
            discovered_fields: fields().map(|(_, field)| discovered_field(field)).collect(),
            mfa_options: choices()
                .filter_map(|(_, choice)| mfa_option(choice))
                .collect(),
            pending_sso_buttons: choices()
                .filter_map(|(_, choice)| sso_button(choice))
                .collect(),
            sign_in_options: sign_in_options
                .map(|(index, choice)| SignInOption {
                    id: self.choice_id(index),
                    label: choice.label.clone(),
                    description: choice.description.clone(),
                })
                .collect(),
            external_action_message: self.external.as_ref().map(external_action_message),
        }
    }

    /// Resolves an answer to fields or a choice of the page.
    pub(super) fn resolve(&self, answer: &FlowAnswer) -> Result<ResolvedAnswer, AnswerRefusal> {
        match answer {
            FlowAnswer::FieldNames(names) => {
                self.resolve_values(names, |_, field| field.field.name.clone())
            }
            FlowAnswer::FieldIds(ids) => self.resolve_values(ids, |index, _| self.field_id(index)),
            FlowAnswer::MfaOption(option) => self.resolve_choice(|index, choice| {
                let kind = mfa_option(choice).map(|option| option.kind.as_str());
                kind.is_some_and(|kind| kind == option || self.choice_id(index) == *option)
            }),
            FlowAnswer::Choice(id) => self.resolve_choice(|index, _| self.choice_id(index) == *id),
            FlowAnswer::SignInOption(id) => self.resolve_choice(|index, choice| {
                is_sign_in_option(choice) && self.choice_id(index) == *id
            }),
            FlowAnswer::SsoButton(selector) => self.resolve_choice(|_, choice| {
                sso_button(choice).is_some_and(|button| button.selector == *selector)
            }),
            FlowAnswer::SsoProvider(provider) => self.resolve_choice(|_, choice| {
                sso_button(choice).is_some_and(|button| button.provider == *provider)
            }),
        }
    }

    fn resolve_values(
        &self,
        keys: &[String],
        key_of: impl Fn(usize, &PromptField) -> String,
    ) -> Result<ResolvedAnswer, AnswerRefusal> {
        let fields = self.fields.iter().enumerate();
        let fields: Vec<(String, &PageField)> = fields
            .map(|(index, field)| (key_of(index, field), &field.field))
            .collect();
        let is_known = |key: &&String| fields.iter().any(|(own, _)| own == *key);
        if let Some(unknown) = keys.iter().find(|key| !is_known(key)) {
            return Err(AnswerRefusal::UnknownField(unknown.clone()));
        }
        let mut entries = Vec::new();
        for (key, field) in fields {
            if keys.contains(&key) {
                entries.push(AnswerEntry {
                    key,
                    value_name: field.value_name().to_owned(),
                    selector: field.selector.clone(),
                    kind: field.kind,
                });
            } else if field.required {
                return Err(AnswerRefusal::MissingField(key));
            }
        }
        match entries.is_empty() {
            true => Err(AnswerRefusal::NoValue),
            false => Ok(ResolvedAnswer::Values(entries)),
        }
    }

    fn resolve_choice(
        &self,
        is_selected: impl Fn(usize, &PageChoice) -> bool,
    ) -> Result<ResolvedAnswer, AnswerRefusal> {
        let mut choices = self.choices.iter().enumerate();
        let selected = choices.find(|(index, choice)| is_selected(*index, choice));
        let (_, choice) = selected.ok_or(AnswerRefusal::UnknownChoice)?;
        Ok(ResolvedAnswer::Choice(choice.clone()))
    }

    /// Returns an id that no other request of the flow has.
    fn field_id(&self, index: usize) -> String {
        format!("field_{}_{}", self.number, index + 1)
    }

    fn choice_id(&self, index: usize) -> String {
        format!("choice_{}_{}", self.number, index + 1)
    }
}

fn is_sign_in_option(choice: &PageChoice) -> bool {
    mfa_option(choice).is_none() && sso_button(choice).is_none()
}

fn mfa_option(choice: &PageChoice) -> Option<MfaOption> {
    (choice.kind == FlowChoiceType::MfaMethod).then(|| MfaOption {
        kind: choice.mfa_type.unwrap_or(MfaType::Switch),
        label: choice.label.clone(),
        target: choice.target.clone(),
        description: choice.description.clone(),
    })
}

fn sso_button(choice: &PageChoice) -> Option<SsoButton> {
    (choice.kind == FlowChoiceType::SsoProvider).then(|| SsoButton {
        label: choice.label.clone(),
        provider: choice.provider.clone().unwrap_or_default(),
        selector: choice.selector.clone(),
    })
}

fn flow_choice(id: String, choice: &PageChoice) -> FlowChoice {
    FlowChoice {
        id,
        kind: choice.kind,
        label: choice.label.clone(),
        display_text: choice.display_text.clone(),
        description: choice.description.clone(),
        context: choice.context.clone(),
        masked_destination: choice.target.clone(),
        mfa_type: choice.mfa_type,
    }
}

fn flow_field(id: String, PromptField { field, reason }: &PromptField) -> FlowField {
    FlowField {
        id,
        reference: field.value_name().to_owned(),
        kind: match field.kind {
            FieldKind::Identifier => FlowFieldType::Identifier,
            FieldKind::Password | FieldKind::NewPassword => FlowFieldType::Password,
            FieldKind::Code if field.mfa_type == Some(MfaType::Totp) => FlowFieldType::TotpCode,
            FieldKind::Code => FlowFieldType::Code,
            FieldKind::SecurityAnswer | FieldKind::Text => FlowFieldType::Text,
        },
        reason: *reason,
        label: field.label.clone(),
        hint: field.hint.clone(),
        input_mode: match field.input {
            FieldInput::Text => InputMode::Text,
            FieldInput::Email => InputMode::Email,
            FieldInput::Tel => InputMode::Tel,
            FieldInput::Number => InputMode::Numeric,
            FieldInput::Url => InputMode::Url,
        },
        required: field.required,
    }
}

fn discovered_field(PromptField { field, .. }: &PromptField) -> DiscoveredField {
    DiscoveredField {
        name: field.name.clone(),
        label: field.label.clone(),
        kind: match (field.kind, field.input) {
            (FieldKind::Password | FieldKind::NewPassword, _) => DiscoveredFieldType::Password,
            (FieldKind::Code, _) if field.mfa_type == Some(MfaType::Totp) => {
                DiscoveredFieldType::Totp
            }
            (FieldKind::Code, _) => DiscoveredFieldType::Code,
            (_, FieldInput::Text) => DiscoveredFieldType::Text,
            (_, FieldInput::Email) => DiscoveredFieldType::Email,
            (_, FieldInput::Tel) => DiscoveredFieldType::Tel,
            (_, FieldInput::Number) => DiscoveredFieldType::Number,
            (_, FieldInput::Url) => DiscoveredFieldType::Url,
        },
        selector: field.selector.clone(),
        placeholder: field.placeholder.clone(),
        hint: field.hint.clone(),
        required: field.required,
        linked_mfa_type: field.mfa_type,
    }
}

fn external_action_message(action: &ExternalAction) -> String {
    let message = match action.kind {
        ExternalActionKind::Captcha => "Complete the site's check for robots in the live view.",
        ExternalActionKind::Passkey => {
            "The site requests a passkey. Select another method in the live view."
        }
        ExternalActionKind::Push => "Approve the login on your device.",
        ExternalActionKind::EmailLink => "Open the link that the site has sent to you.",
        ExternalActionKind::Obstacle => "Close the message over the page in the live view.",
        ExternalActionKind::Unknown => "Continue on the page in the live view.",
    };
    match &action.detail {
        Some(detail) => format!("{message} The site shows: {detail}"),
        None => message.to_owned(),
    }
}

//! The values, choices and actions that a login flow requests from the person.

use deserr::{DeserializeError, Deserr, IntoValue, Value, ValuePointerRef};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::api::{field, ids::FlowId};

/// The values, choices and actions that a login flow requests from the person, in two forms that
/// name the same: `fields` and `choices`, or the other lists. Everything is absent while nothing is
/// requested.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RequestedInput {
    /// Identifies the request. An answer to an earlier one is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interaction_id: Option<InteractionId>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<FlowField>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<FlowChoice>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub discovered_fields: Vec<DiscoveredField>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mfa_options: Vec<MfaOption>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pending_sso_buttons: Vec<SsoButton>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sign_in_options: Vec<SignInOption>,
    /// The action that the person has to take on the site or on a device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_action_message: Option<String>,
}

/// The id of a request for input: 1–64 characters.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
#[schema(value_type = String)]
pub struct InteractionId(String);

impl InteractionId {
    pub const MAX: usize = 64;

    /// Returns the id of a request of a flow, by its number.
    #[must_use]
    pub fn of(flow: &FlowId, number: u32) -> Self {
        Self(format!("{flow}_{number}"))
    }

    /// Parses an id.
    ///
    /// # Errors
    /// Returns the rule for its length.
    pub fn parse(text: String) -> Result<Self, String> {
        match (1..=Self::MAX).contains(&text.chars().count()) {
            true => Ok(Self(text)),
            false => Err(format!("must have 1 to {} characters", Self::MAX)),
        }
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<E: DeserializeError> Deserr<E> for InteractionId {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        field::from_text(value, location, Self::parse)
    }
}

/// A value that the person has to enter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FlowField {
    /// Id for `field_values` of a submit.
    pub id: String,
    /// The name under which a credential stores the value.
    #[serde(rename = "ref")]
    pub reference: String,
    #[serde(rename = "type")]
    pub kind: FlowFieldType,
    pub reason: FieldReason,
    pub label: String,
    /// Text near the field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    pub input_mode: InputMode,
    pub required: bool,
}

/// The meaning of a value. `identifier`: a user name, email address or phone number. `code`: a
/// one-time code that the site has sent. `totp_code`: a one-time code of an app. `totp_secret`: the
/// secret of such codes, which this build does not request. `text`: any other value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FlowFieldType {
    Identifier,
    Password,
    Code,
    TotpCode,
    TotpSecret,
    Text,
}

/// The reason why a value is requested. `missing`: it was not entered yet. `rejected`: the site has
/// rejected the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FieldReason {
    Missing,
    Rejected,
}

/// The keyboard for a value, as `inputmode` of HTML.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum InputMode {
    Text,
    Email,
    Tel,
    Numeric,
    Url,
}

/// A choice of which the person has to select one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FlowChoice {
    /// Id for `selected_choice_id` of a submit.
    pub id: String,
    #[serde(rename = "type")]
    pub kind: FlowChoiceType,
    pub label: String,
    /// The whole text of the choice on the page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display_text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Text near the choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// Phone number or email address, as the site masks it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub masked_destination: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mfa_type: Option<MfaType>,
}

/// The meaning of a choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FlowChoiceType {
    MfaMethod,
    SsoProvider,
    SignInMethod,
    AuthMethod,
    IdentifierMethod,
    Account,
    Other,
}

/// A method of authentication. `switch`: a link to other methods that names none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum MfaType {
    Sms,
    Call,
    Email,
    Totp,
    Push,
    Password,
    Switch,
}

impl MfaType {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            MfaType::Sms => "sms",
            MfaType::Call => "call",
            MfaType::Email => "email",
            MfaType::Totp => "totp",
            MfaType::Push => "push",
            MfaType::Password => "password",
            MfaType::Switch => "switch",
        }
    }
}

/// A field of the page that the person has to fill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DiscoveredField {
    /// Name for `fields` of a submit, unique among the fields.
    pub name: String,
    pub label: String,
    #[serde(rename = "type")]
    pub kind: DiscoveredFieldType,
    /// CSS selector of the field.
    pub selector: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placeholder: Option<String>,
    /// Text near the field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    pub required: bool,
    /// The method by which the site sends or verifies the value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub linked_mfa_type: Option<MfaType>,
}

/// The type of a field of the page. `code`: a one-time code that the site has sent. `totp`: a
/// one-time code of an app.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DiscoveredFieldType {
    Text,
    Email,
    Password,
    Tel,
    Number,
    Url,
    Code,
    Totp,
}

/// A method by which the person can be verified. `mfa_option_id` of a submit is its type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MfaOption {
    #[serde(rename = "type")]
    pub kind: MfaType,
    pub label: String,
    /// Phone number or email address, as the site masks it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// A button that logs in with an identity provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SsoButton {
    pub label: String,
    /// The identity provider, such as `google`.
    pub provider: String,
    /// CSS selector of the button.
    pub selector: String,
}

/// A choice of the page that names neither a method of [`MfaOption`] nor an identity provider, such
/// as an account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SignInOption {
    /// Id for `sign_in_option_id` of a submit.
    pub id: String,
    pub label: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

//! The description of a login page, and actions on it.

use std::net::IpAddr;

use deserr::{DeserializeError, Deserr, IntoValue, Value, ValuePointerRef};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    auth_connections::LoginUrl,
    auth_flow::InputMode,
    credential_fill::{FillDomain, FillDomains, FillValue},
    field::{self, WholeNumber},
    time::Timestamp,
};

/// A request of control to describe the page in front. It cannot be printed.
#[derive(Deserr, ToSchema)]
pub struct InspectLoginRequest {
    /// Longest wait, in milliseconds, for the page to load and to stop changing: 0–5000.
    #[deserr(default)]
    #[schema(value_type = Option<u32>, maximum = 5000, default = 3000)]
    pub wait_ms: Option<WholeNumber<0, 5000>>,
    /// Time without a change, in milliseconds, after which the page is `stable`: 10–1000.
    #[deserr(default)]
    #[schema(value_type = Option<u32>, minimum = 10, maximum = 1000, default = 250)]
    pub quiet_ms: Option<WholeNumber<10, 1000>>,
    /// Values that were filled, to be removed from the texts of the response and from the path of
    /// its URL: up to 33, of 1–4096 bytes each. Shorter ones than three characters are left, as are
    /// the labels of accounts, and the names and selectors of fields and choices.
    #[deserr(default)]
    #[schema(value_type = Option<Vec<String>>, max_items = 33)]
    pub redact: Option<RedactedValues>,
}

/// Up to 33 secret values.
#[derive(Clone, Default)]
pub struct RedactedValues(Vec<FillValue>);

impl RedactedValues {
    pub const MAX: usize = 33;

    #[must_use]
    pub fn as_slice(&self) -> &[FillValue] {
        &self.0
    }
}

/// A request of control to open a login page.
#[derive(Debug, Deserr, ToSchema)]
pub struct OpenLoginRequest {
    /// Absolute URL of at most 4096 bytes.
    #[schema(value_type = String, max_length = 4096)]
    pub url: LoginUrl,
}

/// A request of control to click one element of the page that was inspected.
#[derive(Debug, Deserr, ToSchema)]
pub struct ActOnLoginRequest {
    /// `ref` of an element in the last inspection.
    #[deserr(rename = "ref")]
    #[schema(rename = "ref", value_type = String, min_length = 1, max_length = 64)]
    pub reference: ElementRef,
    /// `dismiss` for `consent`, `check` for `remember`, `click` for the others.
    pub kind: LoginActKind,
    /// Host name of the login, such as `example.com`. The frame of the element, those around it,
    /// and the target of its link or form have to be of its registrable domain, or of
    /// `allowed_domains`. To dismiss a banner, only the page has to.
    #[schema(value_type = String, min_length = 1, max_length = 253)]
    pub domain: FillDomain,
    /// Further host names, with their subdomains. Up to 32.
    #[deserr(default)]
    #[schema(value_type = Option<Vec<String>>, max_items = 32)]
    pub allowed_domains: Option<FillDomains>,
    /// Permit `http`. That of `localhost` and of loopback addresses always is.
    #[deserr(default)]
    #[schema(default = false)]
    pub allow_http: Option<bool>,
}

/// The kind of an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Deserr, ToSchema)]
#[serde(rename_all = "snake_case")]
#[deserr(rename_all = lowercase)]
pub enum LoginActKind {
    Click,
    Dismiss,
    Check,
}

/// The outcome of an action.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LoginActResponse {
    pub outcome: LoginActOutcome,
    /// URL of the page when the element was clicked, without query, fragment and user information.
    pub url: String,
}

/// `clicked`: the page got the click. `unchanged`: the box was checked before. `unknown`: the page
/// did not respond, and may have got the click.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LoginActOutcome {
    Clicked,
    Unchanged,
    Unknown,
}

/// The description of the page in front. Texts are shortened, and are those of the page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InspectedPage {
    /// URL without query, fragment and user information, cut at 2048 characters.
    pub url: String,
    /// Digest of the URL with its query and its fragment, to be compared with other inspections of
    /// the same agent.
    pub url_digest: String,
    /// Identifies the document. Another one of the same URL has another id.
    pub document: String,
    pub state: PageState,
    /// Whether Chromium shows an error page, because the site cannot be reached.
    pub unreachable: bool,
    /// Status of HTTP of the document. Known like `addresses`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_status: Option<u16>,
    /// Addresses of the machines that sent the document and the redirects to it: up to 21. Unknown
    /// for a document that was requested before the first inspection, and for one from the cache or
    /// a service worker. With a proxy it is that of the proxy.
    #[schema(value_type = Vec<String>)]
    pub addresses: Vec<IpAddr>,
    /// Fields of the login, in their order: up to 32.
    pub fields: Vec<InspectedField>,
    /// Button that sends the fields or the selected choice, or leads to the next step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub submit: Option<InspectedElement>,
    /// Alternatives, in their order: up to 48.
    pub choices: Vec<InspectedChoice>,
    /// Link or button that leads to the login, on a page without fields and choices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub login_link: Option<InspectedElement>,
    /// The source of the code that a field asks for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<InspectedCode>,
    /// A request on another device that has to be approved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub push: Option<InspectedPush>,
    /// The page's own words about a link in an email that it has sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub email_link: Option<String>,
    /// Whether a user sees a captcha that is not solved.
    pub captcha: bool,
    /// Whether the page waits for a passkey or a security key.
    pub passkey: bool,
    /// Button of a banner that asks for consent to cookies: one that rejects, or else accepts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consent: Option<InspectedElement>,
    /// A check box to remember the device or the login, or a button that agrees to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remember: Option<InspectedCheckbox>,
    /// Link or button that leads past an offer, such as to create a passkey.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skip: Option<InspectedElement>,
    /// The site's own error message, without values of fields, addresses and long numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    pub evidence: InspectedEvidence,
}

/// `navigating`: the tab waits for another document. The description is then of the document of the
/// inspection before, without findings. `loading`: the document has not been loaded completely.
/// `changing`: it changed until the end of the wait, or shows that it is busy. `stable`: it has not
/// changed for `quiet_ms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PageState {
    Navigating,
    Loading,
    Changing,
    Stable,
}

/// A field of a login.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InspectedField {
    /// Name or id of the field in the page, or else its kind.
    pub name: String,
    pub kind: InspectedFieldKind,
    /// Selector for `POST /credentials/fill`, which matches this field alone. That of a code with a
    /// field for each character is of the first one. Absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// Origin of the field's frame.
    pub origin: String,
    pub label: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placeholder: Option<String>,
    /// Description of the field. For the answer to a security question, the question.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    pub input_mode: InputMode,
    pub required: bool,
    pub has_value: bool,
    /// Whether something is in front of the field, such as a consent banner.
    pub covered: bool,
}

/// `username` may also be an email address or a phone number. `text` is any other field of the same
/// form, such as the name of an organization.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum InspectedFieldKind {
    Username,
    Email,
    Phone,
    Password,
    NewPassword,
    Code,
    SecurityAnswer,
    Text,
}

/// An element to click.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InspectedElement {
    /// Opaque. Valid for the document, until the next inspection.
    #[serde(rename = "ref")]
    pub reference: String,
    pub label: String,
}

/// An alternative to choose.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InspectedChoice {
    /// Opaque. Valid for the document, until the next inspection.
    #[serde(rename = "ref")]
    pub reference: String,
    /// CSS selector that matches no other control of its frame. Absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    pub kind: ChoiceKind,
    pub label: String,
    /// Method of an `mfa_method` or a `sign_in_option`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<LoginMethod>,
    /// Identity provider of an `sso_provider`, such as `google`, `microsoft`, `apple`, `github`,
    /// `facebook` or `okta`. `sso` for one that the label does not name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Masked email address or phone number of the label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub masked_target: Option<String>,
    /// Host name that the element's link or form leads to, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_host: Option<String>,
    /// Origin of the element's frame.
    pub origin: String,
    /// Whether it is selected, of a radio button or an option of a list: `submit` sends that.
    pub selected: bool,
}

/// `account`: an account of a list. `other_account`: one that is not in the list. `mfa_method`: a
/// way to prove the identity after the password. `sign_in_option`: another way to log in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChoiceKind {
    Account,
    OtherAccount,
    MfaMethod,
    SignInOption,
    SsoProvider,
}

/// `switch` shows other methods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LoginMethod {
    Sms,
    Call,
    Email,
    Totp,
    Push,
    Passkey,
    Password,
    Switch,
}

/// A one-time code that a field asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InspectedCode {
    pub source: CodeSource,
    /// Masked email address or phone number that the code was sent to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub masked_target: Option<String>,
}

/// The source of a code: an authenticator app, a text message, or an email.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CodeSource {
    App,
    Sms,
    Email,
    Unknown,
}

/// A request on another device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InspectedPush {
    /// The page's own words.
    pub text: String,
    /// Number to choose or to enter on the device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number: Option<String>,
}

/// A check box, or a button in its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InspectedCheckbox {
    /// Opaque. Valid for the document, until the next inspection.
    #[serde(rename = "ref")]
    pub reference: String,
    pub label: String,
    pub checked: bool,
}

/// Evidence of a page after a login, to be compared with that before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InspectedEvidence {
    /// A link or button to log out.
    pub log_out: ElementPresence,
    /// A link or button to the account of the user.
    pub account: ElementPresence,
    /// A link or button to log in.
    pub log_in: ElementPresence,
    /// Digest of the cookies of the page's registrable domain that scripts cannot read, to be
    /// compared like `url_digest`: of their domains, paths and names, without those of known bot
    /// protection, load balancers and the protection of forms.
    pub cookies: String,
    /// Description of each of these cookies: up to 64.
    #[serde(default)]
    pub session_cookies: Vec<InspectedCookie>,
}

/// A cookie that may be that of a session, without its name and its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InspectedCookie {
    /// Digest of domain, path and name, which is the same on all agents.
    pub id: String,
    /// Absent for one that ends with the browser.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

/// `hidden`: only in a part of the page that is not shown, such as a menu.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ElementPresence {
    Absent,
    Hidden,
    Visible,
}

/// The reference of an element: 1–64 characters of `a-z`, `0-9` and `-`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElementRef(String);

impl ElementRef {
    pub const MAX: usize = 64;

    /// Parses a reference.
    ///
    /// # Errors
    /// Returns the rule for references.
    pub fn parse(text: String) -> Result<Self, String> {
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if text.is_empty() || text.len() > Self::MAX || !text.chars().all(is_plain) {
            return Err(format!(
                "must be a ref of an inspection: 1 to {} characters of a-z, 0-9 and -",
                Self::MAX
            ));
        }
        Ok(Self(text))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<E: DeserializeError> Deserr<E> for ElementRef {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        field::from_text(value, location, Self::parse)
    }
}

impl<E: DeserializeError> Deserr<E> for RedactedValues {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        let values: Vec<FillValue> = Deserr::<E>::deserialize_from_value(value, location)?;
        if values.len() > Self::MAX {
            let message = format!("must have at most {} elements", Self::MAX);
            return Err(field::add(None, message, location));
        }
        Ok(Self(values))
    }
}

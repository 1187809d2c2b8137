//! The page in front of the browser, as far as a login is concerned.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::api::{
    auth_flow::{FlowChoiceType, MfaType},
    credential_fill::{FillFieldName, FillFields, FillSelector},
};

/// The most choices of a page. Those beyond are dropped.
const MAX_CHOICES: usize = 32;
/// The most characters of a label or another short text. Longer ones are cut.
const MAX_TEXT: usize = 255;
/// The most characters of the site's error message. A longer one is cut.
const MAX_ERROR: usize = 1000;
/// The most characters of a URL. A longer one is cut.
const MAX_URL: usize = 2048;

/// The findings about the page in front.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageFindings {
    /// URL without user information, query and fragment.
    pub url: String,
    /// Host of the document with the fields, or of the page if it has none.
    pub host: String,
    /// The class of that host. `Internal` also if the page was redirected by such an address.
    pub origin: PageOrigin,
    /// A part of the page that has to be confirmed before anything else.
    pub obstacle: Option<PageObstacle>,
    /// The fields of the login form.
    pub fields: Vec<PageField>,
    /// Accounts, methods and identity providers of which one can be selected.
    pub choices: Vec<PageChoice>,
    /// An action that only the person can take.
    pub external: Option<ExternalAction>,
    /// The error message that the page shows.
    pub website_error: Option<String>,
    pub evidence: LoginEvidence,
    /// The expiry of the session, if the login has set a cookie with one.
    pub session_expiry: Option<SessionExpiry>,
}

/// The known expiry of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionExpiry {
    /// The id of the cookie that ends the session.
    pub cookie: String,
    pub at: DateTime<Utc>,
}

/// The class of a page's host, which decides on the values that may be entered there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum PageOrigin {
    /// The registrable domain of the connection's domain, or a subdomain.
    Domain,
    /// A domain of the connection's `allowed_domains`, or a subdomain.
    AllowedDomain,
    /// A well-known identity provider.
    IdentityProvider { provider: String },
    /// Any other host.
    NotPermitted,
    /// An address that is not part of the public internet, or serves the metadata of a cloud.
    Internal,
}

/// A part of a page that the system confirms itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageObstacle {
    ConsentBanner,
    /// The question whether to stay logged in on this device.
    RememberDevice,
    /// An offer after the login, such as to create a passkey.
    Offer,
}

/// A field of a login form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageField {
    pub kind: FieldKind,
    /// The field's name or id.
    pub name: String,
    /// The label. That of a security question is the question.
    pub label: String,
    pub selector: String,
    pub input: FieldInput,
    pub placeholder: Option<String>,
    /// Text near the field.
    pub hint: Option<String>,
    pub required: bool,
    /// The method by which the site sends or verifies the value.
    pub mfa_type: Option<MfaType>,
}

/// The meaning of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FieldKind {
    /// A user name, email address or phone number.
    Identifier,
    Password,
    /// A password that the site has the person choose now.
    NewPassword,
    /// A one-time code.
    Code,
    /// The answer to a security question.
    SecurityAnswer,
    /// Any other value.
    Text,
}

/// The kind of text that a field takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FieldInput {
    Text,
    Email,
    Tel,
    Number,
    Url,
}

/// A choice of which a page has one selected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageChoice {
    pub kind: FlowChoiceType,
    pub label: String,
    pub selector: String,
    pub display_text: Option<String>,
    pub description: Option<String>,
    /// Text near the choice.
    pub context: Option<String>,
    /// Phone number or email address, as the site masks it.
    pub target: Option<String>,
    pub mfa_type: Option<MfaType>,
    /// The identity provider, such as `google`.
    pub provider: Option<String>,
    /// Whether this is the account of the stored credential.
    pub is_of_credential: bool,
}

/// An action that only the person can take, in the live view or on a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExternalAction {
    pub kind: ExternalActionKind,
    /// A text of the page that the person needs, such as the number to select on the device.
    pub detail: Option<String>,
}

/// The kind of an [`ExternalAction`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ExternalActionKind {
    Captcha,
    Passkey,
    /// A notification on a device.
    Push,
    /// A link that the site has sent by email.
    EmailLink,
    /// An obstacle that the system could not confirm.
    Obstacle,
    /// A page that the system does not know how to use.
    Unknown,
}

/// The evidence that the browser is logged in. The comparisons are with the page on which values
/// were submitted last, something was selected, or the person was to act. Without one they are
/// false.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoginEvidence {
    pub url_changed: bool,
    /// Whether the site has set other cookies since.
    pub cookies_changed: bool,
    pub form_absent: bool,
    /// Whether the page has content that only a logged-in page has, such as a button to log out.
    pub member_content: bool,
}

impl PageOrigin {
    /// Returns whether the page belongs to the site itself.
    #[must_use]
    pub fn is_site(&self) -> bool {
        matches!(self, PageOrigin::Domain | PageOrigin::AllowedDomain)
    }

    /// Returns whether values of a credential belong to pages of this class. Those for an identity
    /// provider are not disclosed to the site, and the reverse.
    #[must_use]
    pub fn is_for(&self, sso_provider: Option<&str>) -> bool {
        match (self, sso_provider) {
            (PageOrigin::Domain, None) | (PageOrigin::AllowedDomain, _) => true,
            (PageOrigin::IdentityProvider { provider }, Some(own)) => {
                provider.eq_ignore_ascii_case(own)
            }
            (PageOrigin::Domain, Some(_))
            | (PageOrigin::IdentityProvider { .. }, None)
            | (PageOrigin::NotPermitted | PageOrigin::Internal, _) => false,
        }
    }

    /// Returns whether values that the person submits may be entered.
    #[must_use]
    pub fn is_permitted(&self) -> bool {
        self.is_site() || matches!(self, PageOrigin::IdentityProvider { .. })
    }
}

impl FieldKind {
    /// Returns whether a value of the field proves who the person is.
    #[must_use]
    pub fn is_secret(self) -> bool {
        match self {
            FieldKind::Password
            | FieldKind::NewPassword
            | FieldKind::Code
            | FieldKind::SecurityAnswer => true,
            FieldKind::Identifier | FieldKind::Text => false,
        }
    }

    /// Returns whether a credential can store a value of the field.
    #[must_use]
    pub fn is_lasting(self) -> bool {
        self != FieldKind::Code
    }
}

impl ExternalActionKind {
    /// Returns whether the browser can be logged in when the action was taken.
    #[must_use]
    pub fn can_log_in(self) -> bool {
        match self {
            ExternalActionKind::Passkey
            | ExternalActionKind::Push
            | ExternalActionKind::EmailLink
            | ExternalActionKind::Unknown => true,
            ExternalActionKind::Captcha | ExternalActionKind::Obstacle => false,
        }
    }
}

impl PageField {
    /// Returns the name under which a credential stores the value.
    #[must_use]
    pub fn value_name(&self) -> &str {
        match (self.kind, self.input) {
            (FieldKind::Identifier, FieldInput::Email) => "email",
            (FieldKind::Identifier, FieldInput::Tel) => "phone",
            (FieldKind::Identifier, _) => "username",
            (FieldKind::Password | FieldKind::NewPassword, _) => "password",
            (FieldKind::Code, _) => "code",
            // Other questions have a field of the same name.
            (FieldKind::SecurityAnswer, _) if !self.label.is_empty() => &self.label,
            (FieldKind::SecurityAnswer | FieldKind::Text, _) => &self.name,
        }
    }
}

impl LoginEvidence {
    /// Returns whether the browser is logged in. A change of URL and cookies counts only if
    /// `may_be_logged_in`: something was submitted that can log in.
    #[must_use]
    pub fn is_sufficient(self, may_be_logged_in: bool) -> bool {
        let has_moved_on = may_be_logged_in && self.url_changed && self.cookies_changed;
        self.form_absent && (self.member_content || has_moved_on)
    }
}

impl PageFindings {
    /// Returns whether the page shows that the browser is logged in, and requests nothing more.
    #[must_use]
    pub fn is_logged_in(&self, may_be_logged_in: bool) -> bool {
        self.origin.is_site()
            && self.evidence.is_sufficient(may_be_logged_in)
            && self.requests_nothing()
            && self.website_error.is_none()
    }

    /// Returns whether the page has no field, choice or action.
    #[must_use]
    pub fn requests_nothing(&self) -> bool {
        self.fields.is_empty() && self.choices.is_empty() && self.external.is_none()
    }

    /// Limits everything that the page has control of, and makes the names of the fields unique.
    #[must_use]
    pub fn bounded(mut self) -> PageFindings {
        cut(&mut self.url, MAX_URL);
        cut_optional(&mut self.website_error, MAX_ERROR);
        self.website_error = self.website_error.filter(|text| !text.is_empty());
        // A selector that is cut would be another one.
        self.fields.retain(|field| is_selector(&field.selector));
        self.fields.truncate(FillFields::MAX);
        self.choices.retain(|choice| is_selector(&choice.selector));
        self.choices.truncate(MAX_CHOICES);
        self.choices.iter_mut().for_each(PageChoice::cut_texts);
        if let Some(action) = &mut self.external {
            cut_optional(&mut action.detail, MAX_TEXT);
        }
        let mut names: Vec<String> = Vec::new();
        for field in &mut self.fields {
            field.cut_texts();
            field.name = unique_name(field, &names);
            names.push(field.name.clone());
        }
        self
    }
}

impl PageField {
    fn cut_texts(&mut self) {
        cut(&mut self.label, MAX_TEXT);
        cut_optional(&mut self.placeholder, MAX_TEXT);
        cut_optional(&mut self.hint, MAX_TEXT);
    }
}

impl PageChoice {
    fn cut_texts(&mut self) {
        cut(&mut self.label, MAX_TEXT);
        let texts = [
            &mut self.display_text,
            &mut self.description,
            &mut self.context,
            &mut self.target,
            &mut self.provider,
        ];
        for text in texts {
            cut_optional(text, MAX_TEXT);
        }
    }
}

fn is_selector(text: &str) -> bool {
    FillSelector::parse(text.to_owned()).is_ok()
}

/// Returns a name that clients can submit and that no other field of the page has.
fn unique_name(field: &PageField, others: &[String]) -> String {
    let base = match FillFieldName::parse(field.name.clone()) {
        // Leaves space for a number.
        Ok(_) => field.name.chars().take(FillFieldName::MAX - 4).collect(),
        Err(_) => match field.kind {
            FieldKind::Identifier => "username".to_owned(),
            FieldKind::Password => "password".to_owned(),
            FieldKind::NewPassword => "new_password".to_owned(),
            FieldKind::Code => "code".to_owned(),
            FieldKind::SecurityAnswer => "answer".to_owned(),
            FieldKind::Text => "text".to_owned(),
        },
    };
    let mut name = base.clone();
    let mut number = 2;
    while others.contains(&name) {
        name = format!("{base}_{number}");
        number += 1;
    }
    name
}

/// Replaces control characters by spaces, removes spaces around the text, and cuts it.
fn cut(text: &mut String, max: usize) {
    let plain = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let plain: String = plain.collect();
    *text = plain.trim().chars().take(max).collect();
}

fn cut_optional(text: &mut Option<String>, max: usize) {
    if let Some(text) = text {
        cut(text, max);
    }
}

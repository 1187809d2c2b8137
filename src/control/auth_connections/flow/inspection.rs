//! The findings that an agent's description of a page stands for.

use std::net::IpAddr;

use chrono::{TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use url::{Host, Url};

use super::{
    event::PageFailure,
    findings::{
        ExternalAction, ExternalActionKind, FieldInput, FieldKind, LoginEvidence, PageChoice,
        PageField, PageFindings, PageObstacle, PageOrigin, SessionExpiry,
    },
};
use crate::api::{
    auth_flow::{FlowChoiceType, InputMode, MfaType},
    login_page::{
        ChoiceKind, CodeSource, ElementPresence, InspectedChoice, InspectedCode, InspectedCookie,
        InspectedEvidence, InspectedField, InspectedFieldKind, InspectedPage, LoginMethod,
        PageState,
    },
};

/// The shortest lifetime of a cookie whose expiry counts as that of a session.
const MIN_SESSION_INTERVAL: TimeDelta = TimeDelta::hours(1);

/// The parts of a page with which later pages are compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageMark {
    url_digest: String,
    cookies: String,
    had_account: bool,
    /// Marks of older programs have none.
    #[serde(default)]
    session_cookies: Vec<InspectedCookie>,
}

impl From<&InspectedPage> for PageMark {
    fn from(page: &InspectedPage) -> PageMark {
        PageMark {
            url_digest: page.url_digest.clone(),
            cookies: page.evidence.cookies.clone(),
            had_account: page.evidence.account != ElementPresence::Absent,
            session_cookies: page.evidence.session_cookies.clone(),
        }
    }
}

/// The circumstances of an inspection, of which the page has no control.
#[derive(Clone, Copy)]
pub struct InspectionContext<'a> {
    /// Returns the class of a host.
    pub class_of: &'a (dyn Fn(&str) -> PageOrigin + Sync),
    /// Whether an address is not one of the public internet, and not allowed.
    pub is_internal: &'a (dyn Fn(IpAddr) -> bool + Sync),
    /// The page on which something was submitted or selected last, or the person was to act.
    pub before: Option<&'a PageMark>,
    /// The user name and the email address of the stored credential.
    pub identifiers: &'a [&'a str],
}

impl PageFindings {
    /// Returns the findings about a page. A link to the login is none of them: the driver follows
    /// it while it looks for the login page.
    ///
    /// # Errors
    /// Returns the failure of a site that is down.
    pub fn from_inspection(
        page: &InspectedPage,
        context: InspectionContext,
    ) -> Result<PageFindings, PageFailure> {
        let is_empty = page.fields.is_empty() && page.choices.is_empty();
        if page.unreachable || is_empty && page.http_status.is_some_and(|status| status >= 500) {
            return Err(PageFailure::Unavailable);
        }
        let page_host = host_of(&page.url);
        let host = page.fields.first().map(|field| host_of(&field.origin));
        let host = host.unwrap_or_else(|| page_host.clone());
        let obstruction = obstruction_of(page, &host);
        let fields = page.fields.iter().filter(|_| obstruction.is_none());
        let choices = page.choices.iter();
        let choices = choices.filter(|choice| is_permitted(choice, context.class_of));
        Ok(PageFindings {
            url: page.url.clone(),
            origin: origin_of(page, &page_host, &host, context),
            obstacle: obstacle_of(page),
            fields: fields
                .filter_map(|field| to_field(field, page.code.as_ref()))
                .collect(),
            choices: choices
                .filter_map(|choice| to_choice(choice, context.identifiers))
                .collect(),
            external: external_action(page, obstruction),
            website_error: page.error.clone(),
            evidence: to_evidence(page, context.before),
            session_expiry: context.before.and_then(|mark| session_expiry(page, mark)),
            host,
        })
    }
}

/// Returns the host of a URL. Empty for one without a host.
#[must_use]
pub fn host_of(url: &str) -> String {
    let url = Url::parse(url).ok();
    let host = url.as_ref().and_then(Url::host_str);
    host.unwrap_or_default().to_owned()
}

/// Returns the class of the page's host, unless values are permitted there: then that of the host
/// with the fields.
fn origin_of(
    page: &InspectedPage,
    page_host: &str,
    host: &str,
    context: InspectionContext,
) -> PageOrigin {
    let literals = [page_host, host].into_iter().filter_map(address_of);
    let mut addresses = page.addresses.iter().copied().chain(literals);
    if addresses.any(|address| (context.is_internal)(address)) {
        return PageOrigin::Internal;
    }
    match (context.class_of)(page_host) {
        class if class.is_permitted() => (context.class_of)(host),
        class => class,
    }
}

/// Returns the address that a host is, instead of a name.
fn address_of(host: &str) -> Option<IpAddr> {
    match Host::parse(host).ok()? {
        Host::Domain(_) => None,
        Host::Ipv4(address) => Some(address.into()),
        Host::Ipv6(address) => Some(address.into()),
    }
}

/// Returns why the fields cannot be filled as one form, if so.
fn obstruction_of(page: &InspectedPage, host: &str) -> Option<ExternalActionKind> {
    let is_reachable =
        |field: &InspectedField| field.selector.is_some() && host_of(&field.origin) == host;
    if !page.fields.iter().all(is_reachable) {
        return Some(ExternalActionKind::Unknown);
    }
    let is_covered = page.fields.iter().any(|field| field.covered);
    (is_covered && page.consent.is_none()).then_some(ExternalActionKind::Obstacle)
}

fn obstacle_of(page: &InspectedPage) -> Option<PageObstacle> {
    let is_unchecked = page.remember.as_ref().is_some_and(|one| !one.checked);
    if page.consent.is_some() {
        Some(PageObstacle::ConsentBanner)
    } else if page.skip.is_some() {
        Some(PageObstacle::Offer)
    } else {
        is_unchecked.then_some(PageObstacle::RememberDevice)
    }
}

fn external_action(
    page: &InspectedPage,
    obstruction: Option<ExternalActionKind>,
) -> Option<ExternalAction> {
    let (kind, detail) = if page.captcha {
        (ExternalActionKind::Captcha, None)
    } else if let Some(kind) = obstruction {
        (kind, None)
    } else if let Some(push) = &page.push {
        let detail = push.number.as_ref().unwrap_or(&push.text);
        (ExternalActionKind::Push, Some(detail.clone()))
    } else if page.passkey {
        (ExternalActionKind::Passkey, None)
    } else {
        let text = page.email_link.clone()?;
        (ExternalActionKind::EmailLink, Some(text))
    };
    Some(ExternalAction { kind, detail })
}

fn to_field(field: &InspectedField, code: Option<&InspectedCode>) -> Option<PageField> {
    let kind = match field.kind {
        InspectedFieldKind::Username | InspectedFieldKind::Email | InspectedFieldKind::Phone => {
            FieldKind::Identifier
        }
        InspectedFieldKind::Password => FieldKind::Password,
        InspectedFieldKind::NewPassword => FieldKind::NewPassword,
        InspectedFieldKind::Code => FieldKind::Code,
        InspectedFieldKind::SecurityAnswer => FieldKind::SecurityAnswer,
        InspectedFieldKind::Text => FieldKind::Text,
    };
    let code = code.filter(|_| kind == FieldKind::Code);
    let is_question = kind == FieldKind::SecurityAnswer;
    let question = field.hint.as_ref().filter(|_| is_question);
    let sent_to = code.and_then(|code| code.masked_target.clone());
    Some(PageField {
        kind,
        name: field.name.clone(),
        label: question.unwrap_or(&field.label).clone(),
        selector: field.selector.clone()?,
        input: match (field.kind, field.input_mode) {
            (InspectedFieldKind::Email, _) | (_, InputMode::Email) => FieldInput::Email,
            (InspectedFieldKind::Phone, _) | (_, InputMode::Tel) => FieldInput::Tel,
            (_, InputMode::Text) => FieldInput::Text,
            (_, InputMode::Numeric) => FieldInput::Number,
            (_, InputMode::Url) => FieldInput::Url,
        },
        placeholder: field.placeholder.clone(),
        hint: field.hint.clone().filter(|_| !is_question).or(sent_to),
        required: is_required(field, kind),
        mfa_type: code.and_then(|code| match code.source {
            CodeSource::App => Some(MfaType::Totp),
            CodeSource::Sms => Some(MfaType::Sms),
            CodeSource::Email => Some(MfaType::Email),
            CodeSource::Unknown => None,
        }),
    })
}

/// Whether a form without a new value of the field is incomplete. Many pages do not mark those.
fn is_required(field: &InspectedField, kind: FieldKind) -> bool {
    let is_marked = field.required || kind == FieldKind::Identifier;
    kind.is_secret() || is_marked && !field.has_value
}

/// Whether a choice is of a permitted host, and leads to no other one as far as it is known.
fn is_permitted(choice: &InspectedChoice, class_of: &dyn Fn(&str) -> PageOrigin) -> bool {
    let target = choice.target_host.as_deref();
    class_of(&host_of(&choice.origin)).is_permitted()
        && target.is_none_or(|host| class_of(host).is_permitted())
}

fn to_choice(choice: &InspectedChoice, identifiers: &[&str]) -> Option<PageChoice> {
    let mfa_type = choice.method.and_then(|method| match method {
        LoginMethod::Sms => Some(MfaType::Sms),
        LoginMethod::Call => Some(MfaType::Call),
        LoginMethod::Email => Some(MfaType::Email),
        LoginMethod::Totp => Some(MfaType::Totp),
        LoginMethod::Push => Some(MfaType::Push),
        LoginMethod::Password => Some(MfaType::Password),
        LoginMethod::Switch => Some(MfaType::Switch),
        LoginMethod::Passkey => None,
    });
    let has_type = mfa_type.is_some();
    Some(PageChoice {
        kind: match choice.kind {
            ChoiceKind::Account => FlowChoiceType::Account,
            ChoiceKind::MfaMethod if has_type => FlowChoiceType::MfaMethod,
            ChoiceKind::SignInOption if has_type => FlowChoiceType::SignInMethod,
            ChoiceKind::SsoProvider => FlowChoiceType::SsoProvider,
            ChoiceKind::OtherAccount | ChoiceKind::MfaMethod | ChoiceKind::SignInOption => {
                FlowChoiceType::Other
            }
        },
        label: choice.label.clone(),
        selector: choice.selector.clone()?,
        display_text: None,
        description: None,
        context: None,
        target: choice.masked_target.clone(),
        mfa_type,
        provider: choice.provider.clone(),
        is_of_credential: choice.kind == ChoiceKind::Account
            && names_account(&choice.label, identifiers),
    })
}

/// Whether the label of an account has one of the identifiers as a word.
fn names_account(label: &str, identifiers: &[&str]) -> bool {
    let words = label.split(|c: char| c.is_whitespace() || "(),;<>\"".contains(c));
    let mut words = words.filter(|word| !word.is_empty());
    words.any(|word| {
        let word = word.to_lowercase();
        identifiers.iter().any(|own| own.to_lowercase() == word)
    })
}

fn to_evidence(page: &InspectedPage, before: Option<&PageMark>) -> LoginEvidence {
    let is_complete = matches!(page.state, PageState::Changing | PageState::Stable);
    LoginEvidence {
        url_changed: before.is_some_and(|mark| mark.url_digest != page.url_digest),
        cookies_changed: before.is_some_and(|mark| mark.cookies != page.evidence.cookies),
        form_absent: page.fields.is_empty() && is_complete,
        member_content: has_member_content(&page.evidence, before),
    }
}

/// Returns the earliest expiry of the cookies that were set since the page before. One of a short
/// time is that of a statistic or of a form, and is set again on each page.
fn session_expiry(page: &InspectedPage, before: &PageMark) -> Option<SessionExpiry> {
    let earliest = Utc::now() + MIN_SESSION_INTERVAL;
    let cookies = page.evidence.session_cookies.iter();
    let changed = cookies.filter(|cookie| !before.session_cookies.contains(cookie));
    let expiries = changed.filter_map(|cookie| {
        Some(SessionExpiry {
            cookie: cookie.id.clone(),
            at: cookie.expires_at?.0,
        })
    });
    let lasting = expiries.filter(|expiry| expiry.at >= earliest);
    lasting.min_by_key(|expiry| expiry.at)
}

/// Whether a page can be logged out of. A menu may hide that, and many pages have a hidden one for
/// everybody, beside the way to log in. A link to the account counts if it was not there before:
/// those of many shops lead to the login.
fn has_member_content(evidence: &InspectedEvidence, before: Option<&PageMark>) -> bool {
    let is_visible = |presence| presence == ElementPresence::Visible;
    let has_new_account =
        is_visible(evidence.account) && before.is_some_and(|mark| !mark.had_account);
    let may_be_hidden = !is_visible(evidence.log_in);
    is_visible(evidence.log_out)
        || may_be_hidden && (evidence.log_out == ElementPresence::Hidden || has_new_account)
}

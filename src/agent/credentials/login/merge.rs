//! The merge of the findings in all frames into one description.

use serde::Deserialize;

use super::displayed_url;
use crate::{
    api::login_page::{
        ElementPresence, InspectedCheckbox, InspectedChoice, InspectedCode, InspectedElement,
        InspectedEvidence, InspectedField, InspectedPage, InspectedPush, PageState,
    },
    system::cdp::main_document::MainDocument,
};

const MAX_FIELDS: usize = 32;
const MAX_CHOICES: usize = 48;

/// The result of the script's `inspect` in one frame.
#[derive(Debug, Deserialize)]
pub(super) struct FrameInspection {
    /// The start of the references of its elements.
    pub(super) token: String,
    captcha: bool,
    /// Whether a field has the token of a captcha that was solved.
    solved: bool,
    /// Absent for the frame of a captcha.
    findings: Option<FrameFindings>,
}

impl FrameInspection {
    pub(super) fn has_fields(&self) -> bool {
        let findings = self.findings.as_ref();
        findings.is_some_and(|findings| !findings.fields.is_empty())
    }

    /// Whether a frame has nothing of a login.
    pub(super) fn is_empty(&self) -> bool {
        let has_captcha = self.captcha || self.solved;
        !has_captcha && self.findings.as_ref().is_none_or(FrameFindings::is_empty)
    }
}

#[derive(Debug, Deserialize)]
struct FrameFindings {
    fields: Vec<InspectedField>,
    submit: Option<InspectedElement>,
    choices: Vec<InspectedChoice>,
    login_link: Option<InspectedElement>,
    code: Option<InspectedCode>,
    push: Option<InspectedPush>,
    email_link: Option<String>,
    passkey: bool,
    consent: Option<InspectedElement>,
    remember: Option<InspectedCheckbox>,
    skip: Option<InspectedElement>,
    error: Option<String>,
    log_out: ElementPresence,
    account: ElementPresence,
    log_in: ElementPresence,
}

impl FrameFindings {
    fn is_empty(&self) -> bool {
        let elements = [&self.submit, &self.login_link, &self.consent, &self.skip];
        let has_element = elements.into_iter().any(Option::is_some) || self.remember.is_some();
        let has_step = self.code.is_some() || self.push.is_some() || self.email_link.is_some();
        let is_absent = |presence| presence == ElementPresence::Absent;
        let has_evidence = ![self.log_out, self.account, self.log_in]
            .into_iter()
            .all(is_absent);
        self.fields.is_empty()
            && self.choices.is_empty()
            && self.error.is_none()
            && !(has_element || has_step || has_evidence || self.passkey)
    }
}

/// Returns the description of a page from the frames that a user sees, the page's own first. Where
/// one frame is to be preferred, it is one with fields.
pub(super) fn merge(
    document: &MainDocument,
    state: PageState,
    mut inspections: Vec<FrameInspection>,
) -> InspectedPage {
    let has_captcha = inspections.iter().any(|one| one.captcha);
    let is_solved = inspections.iter().any(|one| one.solved);
    let findings = inspections.iter_mut().filter_map(|one| one.findings.take());
    let mut frames: Vec<FrameFindings> = findings.collect();
    // A stable sort keeps the page's own frame before the others.
    frames.sort_by_key(|frame| frame.fields.is_empty());
    let strongest = |presence: fn(&FrameFindings) -> ElementPresence| {
        let found = frames.iter().map(presence).max();
        found.unwrap_or(ElementPresence::Absent)
    };
    let mut page = InspectedPage {
        url: displayed_url(&document.url),
        url_digest: String::new(),
        document: document.id.clone(),
        state,
        unreachable: document.has_failed,
        http_status: document.response.status,
        addresses: document.response.addresses.clone(),
        fields: Vec::new(),
        submit: None,
        choices: Vec::new(),
        login_link: None,
        code: None,
        push: None,
        email_link: None,
        captcha: has_captcha && !is_solved,
        passkey: frames.iter().any(|frame| frame.passkey),
        consent: None,
        remember: None,
        skip: None,
        error: None,
        evidence: InspectedEvidence {
            log_out: strongest(|one| one.log_out),
            account: strongest(|one| one.account),
            log_in: strongest(|one| one.log_in),
            cookies: String::new(),
            session_cookies: Vec::new(),
        },
    };
    for frame in frames {
        add(&mut page, frame);
    }
    if !page.fields.is_empty() || !page.choices.is_empty() {
        page.login_link = None;
    }
    page.fields.truncate(MAX_FIELDS);
    page.choices.truncate(MAX_CHOICES);
    page
}

fn add(page: &mut InspectedPage, frame: FrameFindings) {
    // Beside fields, a button of another frame sends none of them.
    if page.fields.is_empty() || !frame.fields.is_empty() {
        page.submit = page.submit.take().or(frame.submit);
    }
    page.fields.extend(frame.fields);
    page.choices.extend(frame.choices);
    page.login_link = page.login_link.take().or(frame.login_link);
    page.code = page.code.take().or(frame.code);
    page.push = page.push.take().or(frame.push);
    page.email_link = page.email_link.take().or(frame.email_link);
    page.consent = page.consent.take().or(frame.consent);
    page.remember = page.remember.take().or(frame.remember);
    page.skip = page.skip.take().or(frame.skip);
    page.error = page.error.take().or(frame.error);
}

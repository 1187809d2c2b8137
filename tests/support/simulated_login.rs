//! A login page that rejects each password, as an agent describes it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use berth::api::{
    auth_flow::InputMode,
    login_page::{
        ElementPresence, InspectedEvidence, InspectedField, InspectedFieldKind, InspectedPage,
        PageState,
    },
};
use serde_json::{Value, json};

/// The site of the page.
pub const DOMAIN: &str = "example.com";
pub const LOGIN_URL: &str = "https://example.com/login";
/// The password after which the site is unreachable.
pub const LAST_PASSWORD: &str = "the-last-password";
const ORIGIN: &str = "https://example.com";

/// The page in front of a browser.
#[derive(Default)]
pub struct SimulatedLogin {
    /// The number of forms that the site has received.
    submitted: AtomicUsize,
    is_down: AtomicBool,
}

impl SimulatedLogin {
    /// Returns the number of forms that the site has received.
    pub fn submitted(&self) -> usize {
        self.submitted.load(Ordering::Relaxed)
    }

    /// Returns the description of the page. Each form leads to another document.
    pub(super) fn inspected(&self) -> Value {
        let submitted = self.submitted();
        let is_down = self.is_down.load(Ordering::Relaxed);
        let page = InspectedPage {
            url: LOGIN_URL.to_owned(),
            url_digest: "the-login".to_owned(),
            document: format!("{submitted} {is_down}"),
            state: PageState::Stable,
            unreachable: is_down,
            http_status: None,
            addresses: Vec::new(),
            fields: match is_down {
                true => Vec::new(),
                false => vec![
                    field("username", InspectedFieldKind::Username),
                    field("password", InspectedFieldKind::Password),
                ],
            },
            submit: None,
            choices: Vec::new(),
            login_link: None,
            code: None,
            push: None,
            email_link: None,
            captcha: false,
            passkey: false,
            consent: None,
            remember: None,
            skip: None,
            error: (submitted > 0).then(|| "The password is wrong.".to_owned()),
            evidence: InspectedEvidence {
                log_out: ElementPresence::Absent,
                account: ElementPresence::Absent,
                log_in: ElementPresence::Absent,
                cookies: "none".to_owned(),
                session_cookies: Vec::new(),
            },
        };
        serde_json::to_value(page).unwrap()
    }

    /// Fills the form with the values of a request, and submits it.
    pub(super) fn fill(&self, request: &Value) -> Value {
        if request["values"]["password"] == LAST_PASSWORD {
            self.is_down.store(true, Ordering::Relaxed);
        }
        self.submitted.fetch_add(1, Ordering::Relaxed);
        let fields = request["fields"].as_array().unwrap().iter();
        let filled = fields.map(|field| json!({"name": field["name"], "outcome": "filled"}));
        let filled: Vec<Value> = filled.collect();
        json!({"fields": filled, "submitted": true, "url": LOGIN_URL})
    }
}

fn field(name: &str, kind: InspectedFieldKind) -> InspectedField {
    InspectedField {
        name: name.to_owned(),
        kind,
        selector: Some(format!("[name=\"{name}\"]")),
        origin: ORIGIN.to_owned(),
        label: name.to_owned(),
        placeholder: None,
        hint: None,
        input_mode: InputMode::Text,
        required: true,
        has_value: false,
        covered: false,
    }
}

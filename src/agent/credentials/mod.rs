//! Credentials: writes values into the page in front, and describes what it asks for.
//!
//! ```text
//! CredentialFiller::fill ──► Search: scripts in all frames ──inspect──► the frame with the fields
//!                                                └──────write (one turn of JavaScript)──► outcomes
//! ```
//!
//! The scripts run in an isolated world of each frame. Only the chosen one gets the values, as
//! arguments of the call that collects all evidence anew, verifies its origin, writes, and submits.
//!
//! | file | job |
//! |---|---|
//! | `permitted_hosts` | which frames may have the values |
//! | `frames` | the frames of a page as their scripts see them |
//! | `search` | the frame with the fields |
//! | `page/words.js` | words of labels and names by their meaning |
//! | `page/dom.js` | what a user sees of an element |
//! | `page/origin.js` | the origin of a frame and of the target of its form |
//! | `page/forms.js` | fields and the forms that they belong to |
//! | `page/match.js` | the field of each value |
//! | `page/mask.js` | dots in the place of filled values |
//! | `page/write.js` | writing and submitting |
//! | `page/filler.js` | the calls of the agent |
//! | `login` | what a login page asks for, and clicks on it |

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize, Serializer};
use tokio::{
    sync::Mutex,
    time::{Instant, timeout_at},
};
use url::Url;

use super::chromium::{
    Chromium, NotReady,
    front::{FrontError, FrontPage},
};
use crate::{
    api::credential_fill::{
        AgentFillRequest, FillField, FillFields, FillOutcome, FillResponse, FillValues, FilledField,
    },
    system::cdp::{
        connection::CdpError,
        frame_scripts::{FrameScript, ScriptCallError},
    },
};

mod ascii;
mod frames;
pub mod login;
mod permitted_hosts;
mod search;

use permitted_hosts::PermittedHosts;
use search::Search;

/// The longest time of a fill.
pub const FILL_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest time until the values are written. The rest is for the page to take them.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(7);

/// Why nothing was filled.
#[derive(Debug, thiserror::Error)]
pub enum FillError {
    #[error("names no entry of values")]
    UnknownField(usize),
    #[error("is not a valid selector")]
    InvalidSelector(usize),
    #[error("the origin of the page is not permitted: {0}")]
    OriginRefused(String),
    #[error("several fields match equally well: {}", .0.join(", "))]
    Ambiguous(Vec<String>),
    #[error("the page changed while its fields were looked for")]
    PageChanged,
    #[error("the page did not respond within {} s; nothing was written", SEARCH_TIMEOUT.as_secs())]
    Timeout,
    #[error(transparent)]
    Front(#[from] FrontError),
}

impl From<CdpError> for FillError {
    fn from(error: CdpError) -> Self {
        match error {
            CdpError::Timeout { .. } => Self::Timeout,
            error => Self::Front(error.into()),
        }
    }
}

impl From<ScriptCallError> for FillError {
    fn from(error: ScriptCallError) -> Self {
        match error {
            ScriptCallError::Gone => Self::PageChanged,
            ScriptCallError::Unknown(error) => error.into(),
        }
    }
}

/// The meaning of a value, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum ValueKind {
    Username,
    Email,
    Phone,
    Password,
    Code,
    /// Found by a selector, or by exactly this name.
    Other,
}

impl ValueKind {
    fn of(name: &str) -> Self {
        match name.to_ascii_lowercase().as_str() {
            "username" | "user" | "login" | "identifier" => Self::Username,
            "email" => Self::Email,
            "phone" | "tel" => Self::Phone,
            "password" => Self::Password,
            "code" | "totp" | "otp" => Self::Code,
            _ => Self::Other,
        }
    }
}

/// A value as the page's script knows it before it is written.
#[derive(Debug, Serialize)]
struct ValueSpec {
    name: String,
    kind: ValueKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    selector: Option<String>,
    /// Characters of a code, for a field that is split.
    #[serde(skip_serializing_if = "Option::is_none")]
    length: Option<usize>,
}

/// The first argument of the script's calls. It contains no value.
#[derive(Debug, Serialize)]
struct ScriptRequest {
    specs: Vec<ValueSpec>,
    policy: PermittedHosts,
}

/// The values by their names, as an argument of the script. Serialized only into that call.
struct ExposedValues<'a> {
    specs: &'a [ValueSpec],
    values: &'a FillValues,
}

impl Serialize for ExposedValues<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let is_due = |name: &str| self.specs.iter().any(|spec| spec.name == name);
        let values = self.values.iter();
        let values = values.filter(|(name, _)| is_due(name.as_str()));
        serializer.collect_map(values.map(|(name, value)| (name.as_str(), value.expose())))
    }
}

/// When the form is submitted, if all fields that were found have their values.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
enum SubmitRule {
    Never,
    /// Whatever fields were found.
    Any,
    /// If every field was found.
    All,
}

/// The result of the script's `write`.
#[derive(Debug, Deserialize)]
struct Written {
    permitted: bool,
    written: bool,
    submitted: bool,
    fields: Vec<FieldReport>,
}

#[derive(Debug, Clone, Deserialize)]
struct FieldReport {
    name: String,
    outcome: ReportedOutcome,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ReportedOutcome {
    /// A field was found and not written.
    Match,
    Filled,
    NotFound,
    Ambiguous,
    RefusedOrigin,
    Hidden,
    Unknown,
}

impl From<ReportedOutcome> for FillOutcome {
    fn from(outcome: ReportedOutcome) -> Self {
        match outcome {
            ReportedOutcome::Filled => Self::Filled,
            ReportedOutcome::NotFound => Self::NotFound,
            ReportedOutcome::Ambiguous => Self::Ambiguous,
            ReportedOutcome::RefusedOrigin => Self::RefusedOrigin,
            ReportedOutcome::Hidden => Self::Hidden,
            ReportedOutcome::Match => Self::Found,
            ReportedOutcome::Unknown => Self::Unknown,
        }
    }
}

/// Fills the page in front, one request at a time. Clones share the queue.
#[derive(Clone)]
pub struct CredentialFiller {
    chromium: Chromium,
    queue: Arc<Mutex<()>>,
}

impl CredentialFiller {
    pub fn new(chromium: Chromium) -> Self {
        Self {
            chromium,
            queue: Arc::default(),
        }
    }

    /// Writes values into their fields of the page in front, and submits their form on request.
    pub async fn fill(&self, request: AgentFillRequest) -> Result<FillResponse, FillError> {
        let start = Instant::now();
        let submits = request.submit.unwrap_or_default();
        let rule = match (submits, &request.fields) {
            (false, _) => SubmitRule::Never,
            (true, None) => SubmitRule::Any,
            (true, Some(_)) => SubmitRule::All,
        };
        let script_request = to_script_request(&request)?;
        let search = async {
            let turn = self.queue.lock().await;
            let page = self.chromium.front_page().await?;
            let found = Search::run(&page, &script_request).await?;
            Ok::<_, FillError>((turn, page, found))
        };
        let found = timeout_at(start + SEARCH_TIMEOUT, search).await;
        let (_turn, page, found) = found.map_err(|_| self.timeout_error())??;
        let url = found.page_url();
        let Some(script) = found.chosen() else {
            return Ok(found.into_response(url));
        };
        if request.dry_run.unwrap_or_default() {
            return found.into_found(url);
        }
        let values = ExposedValues {
            specs: &script_request.specs,
            values: &request.values,
        };
        let written = write(&page, script, &script_request, values, rule);
        let outcomes = match timeout_at(start + FILL_TIMEOUT, written).await {
            Ok(Err(ScriptCallError::Gone)) => return Err(FillError::PageChanged),
            Ok(Ok(written)) => written,
            Ok(Err(ScriptCallError::Unknown(error))) => {
                tracing::warn!(%error, "the outcome of a fill is unknown");
                None
            }
            Err(_) => {
                tracing::warn!("the page did not report the outcome of a fill in time");
                None
            }
        };
        match outcomes {
            Some(written) => conclude(found, written, url),
            None => Ok(found.into_unknown(url)),
        }
    }

    /// Returns the URL of the page in front, without its query, its fragment and its user
    /// information.
    pub async fn page_url(&self) -> Result<String, FillError> {
        let page = self.chromium.front_page().await?;
        Ok(without_secrets(&page.session.tab().url))
    }

    /// Returns the error about a search that took too long.
    fn timeout_error(&self) -> FillError {
        match self.chromium.current().devtools() {
            Some(_) => FillError::Timeout,
            None => FrontError::NotReady(NotReady::Timeout(SEARCH_TIMEOUT)).into(),
        }
    }
}

/// Calls the script's `write`. `None` if its result cannot be read.
async fn write(
    page: &FrontPage,
    script: &FrameScript,
    request: &ScriptRequest,
    values: ExposedValues<'_>,
    rule: SubmitRule,
) -> Result<Option<Written>, ScriptCallError> {
    let arguments = (request, values, rule);
    let call = page.session.call_script(script, "write", arguments);
    Ok(serde_json::from_value(call.await?).ok())
}

/// Returns the response, or the error if nothing was written for it.
fn conclude(mut found: Search, written: Written, url: String) -> Result<FillResponse, FillError> {
    if !written.permitted {
        return Err(FillError::PageChanged);
    }
    let ambiguous = names_of(&written.fields, ReportedOutcome::Ambiguous);
    if !written.written && !ambiguous.is_empty() {
        return Err(FillError::Ambiguous(ambiguous));
    }
    found.set_chosen(&written.fields);
    let mut response = found.into_response(url);
    response.submitted = written.submitted;
    Ok(response)
}

fn names_of(fields: &[FieldReport], outcome: ReportedOutcome) -> Vec<String> {
    let matching = fields.iter().filter(|field| field.outcome == outcome);
    matching.map(|field| field.name.clone()).collect()
}

/// Returns the script's view of a request.
fn to_script_request(request: &AgentFillRequest) -> Result<ScriptRequest, FillError> {
    let allowed = request.allowed_domains.as_ref();
    let allowed = allowed.map_or(&[][..], |domains| domains.as_slice());
    let allow_http = request.allow_http.unwrap_or_default();
    let specs = match &request.fields {
        Some(fields) => selected_specs(fields, &request.values)?,
        None => {
            let values = request.values.iter();
            values
                .map(|(name, value)| to_spec(name.as_str(), value.expose(), None))
                .collect()
        }
    };
    Ok(ScriptRequest {
        specs,
        policy: PermittedHosts::new(&request.domain, allowed, allow_http),
    })
}

fn selected_specs(fields: &FillFields, values: &FillValues) -> Result<Vec<ValueSpec>, FillError> {
    let fields = fields.as_slice().iter().enumerate();
    fields
        .map(|(index, FillField { name, selector })| {
            let value = values.get(name).ok_or(FillError::UnknownField(index))?;
            let selector = selector.as_ref().map(|selector| selector.as_str());
            Ok(to_spec(name.as_str(), value.expose(), selector))
        })
        .collect()
}

fn to_spec(name: &str, value: &str, selector: Option<&str>) -> ValueSpec {
    let kind = ValueKind::of(name);
    ValueSpec {
        name: name.to_owned(),
        kind,
        selector: selector.map(str::to_owned),
        length: (kind == ValueKind::Code).then(|| value.chars().count()),
    }
}

/// Returns a URL without its query, its fragment and its user information.
fn without_secrets(url: &str) -> String {
    let Ok(mut url) = Url::parse(url) else {
        return String::new();
    };
    url.set_query(None);
    url.set_fragment(None);
    // These fail for URLs that cannot have them.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.into()
}

impl ReportedOutcome {
    fn to_field(self, name: &str) -> FilledField {
        FilledField {
            name: name.to_owned(),
            outcome: self.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_has_no_part_that_may_be_secret() {
        for (url, expected) in [
            (
                "https://user:pass@example.com/a/b?token=1#code=2",
                "https://example.com/a/b",
            ),
            ("https://example.com", "https://example.com/"),
            ("about:blank", "about:blank"),
            ("", ""),
        ] {
            assert_eq!(without_secrets(url), expected, "{url}");
        }
    }

    #[test]
    fn kind_of_value_follows_from_its_name() {
        for (name, kind) in [
            ("username", ValueKind::Username),
            ("Login", ValueKind::Username),
            ("email", ValueKind::Email),
            ("tel", ValueKind::Phone),
            ("PASSWORD", ValueKind::Password),
            ("otp", ValueKind::Code),
            ("tenant", ValueKind::Other),
        ] {
            assert_eq!(ValueKind::of(name), kind, "{name}");
        }
    }
}

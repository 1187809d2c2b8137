//! Finds the frame with the fields.

use std::{mem, sync::LazyLock};

use futures::future::join_all;
use serde::Deserialize;
use url::Url;

use super::{
    FieldReport, FillError, ReportedOutcome, ScriptRequest, ValueKind,
    ascii::to_ascii,
    frames::{self, MAX_FRAMES},
    names_of, without_secrets,
};
use crate::{
    agent::chromium::front::FrontPage,
    api::credential_fill::FillResponse,
    system::cdp::frame_scripts::{FrameScript, ScriptSource},
};

/// The script, which has an object of calls as its value.
const SOURCE: &str = concat!(
    "(() => {\n",
    include_str!("page/words.js"),
    include_str!("page/dom.js"),
    include_str!("page/origin.js"),
    include_str!("page/forms.js"),
    include_str!("page/match.js"),
    include_str!("page/mask.js"),
    include_str!("page/write.js"),
    include_str!("page/filler.js"),
    "\nreturn filler;\n})()"
);
/// The script as it is sent. A text with other characters would have two bytes for each.
static ASCII_SOURCE: LazyLock<String> = LazyLock::new(|| to_ascii(SOURCE));
/// The isolated world of the script: a page cannot change its globals.
const WORLD: &str = "berth-credentials";

/// The result of the script's `inspect`.
#[derive(Debug, Deserialize)]
struct Inspection {
    permitted: bool,
    invalid: Vec<String>,
    fields: Vec<FieldReport>,
}

/// The frames of a page with the fields that were found in them.
pub(super) struct Search {
    scripts: Vec<FrameScript>,
    reports: Vec<FieldReport>,
    chosen: Option<usize>,
}

/// A frame that may get the values, with its fields.
struct Candidate {
    index: usize,
    fields: Vec<FieldReport>,
}

impl Candidate {
    /// Returns the number of values that have a field.
    fn count(&self) -> usize {
        self.fields.iter().filter(|field| is_found(field)).count()
    }

    fn has(&self, name: &str) -> bool {
        let mut fields = self.fields.iter();
        fields.any(|field| field.name == name && is_found(field))
    }
}

fn is_found(field: &FieldReport) -> bool {
    use ReportedOutcome::{Ambiguous, Match};
    matches!(field.outcome, Match | Ambiguous)
}

impl Search {
    /// Looks for the fields in the permitted frames of a page. Writes nothing.
    pub(super) async fn run(page: &FrontPage, request: &ScriptRequest) -> Result<Self, FillError> {
        let session = &page.session;
        // A frame without an address of its own may contain permitted ones.
        let permits = |url: &str| request.policy.permits(url) || url.starts_with("about:");
        let source = ScriptSource {
            text: &ASCII_SOURCE,
            earlier: None,
        };
        let scripts = session.frame_scripts(WORLD, source, MAX_FRAMES, &permits);
        let scripts = scripts.await?;
        let origin = scripts.first().map_or("", |script| script.url.as_str());
        if !request.policy.permits(origin) {
            return Err(FillError::OriginRefused(describe_origin(origin)));
        }
        let mut search = Self {
            scripts,
            reports: Vec::new(),
            chosen: None,
        };
        let mut candidates = search.inspect_all(page, request).await?;
        if !is_complete(&candidates, request) && search.adopt_closed_trees(page, request).await {
            candidates = search.inspect_all(page, request).await?;
        }
        let mut drawn = Vec::new();
        for mut candidate in candidates {
            if frames::is_drawn(page, &search.scripts, candidate.index).await {
                drawn.push(candidate);
            } else {
                hide(&mut candidate);
                search.set_reports(&candidate.fields);
            }
        }
        let Some(chosen) = choose(drawn, request)? else {
            return Ok(search);
        };
        search.set_chosen(&chosen.fields);
        search.chosen = Some(chosen.index);
        let is_current = session.is_current(&search.scripts[chosen.index]).await?;
        is_current.then_some(search).ok_or(FillError::PageChanged)
    }

    /// Inspects all frames. Returns those that may get values and have fields for them, and notes
    /// their outcomes. Other frames than the page's own that do not respond in time are left out.
    async fn inspect_all(
        &mut self,
        page: &FrontPage,
        request: &ScriptRequest,
    ) -> Result<Vec<Candidate>, FillError> {
        let specs = request.specs.iter();
        self.reports = specs
            .map(|spec| FieldReport {
                name: spec.name.clone(),
                outcome: ReportedOutcome::NotFound,
            })
            .collect();
        let calls = mem::take(&mut self.scripts).into_iter();
        let calls = calls.map(|script| async move {
            let call = page.session.call_script(&script, "inspect", [request]);
            let result = script.in_time(call).await;
            (script, result)
        });
        let mut candidates = Vec::new();
        for (script, result) in join_all(calls).await {
            let value = match result {
                Ok(value) => value,
                Err(_) if !self.scripts.is_empty() => continue,
                Err(error) => return Err(error.into()),
            };
            let is_permitted = request.policy.permits(&script.url);
            let index = self.scripts.len();
            self.scripts.push(script);
            let Ok(inspection) = serde_json::from_value::<Inspection>(value) else {
                continue;
            };
            if let Some(index) = first_named(request, &inspection.invalid) {
                return Err(FillError::InvalidSelector(index));
            }
            if !(inspection.permitted && is_permitted) {
                continue;
            }
            let fields = inspection.fields;
            self.set_reports(&fields);
            if fields.iter().any(is_found) {
                candidates.push(Candidate { index, fields });
            }
        }
        Ok(candidates)
    }

    /// Makes the closed shadow trees of the permitted frames accessible to their scripts. Returns
    /// whether there are any.
    async fn adopt_closed_trees(&self, page: &FrontPage, request: &ScriptRequest) -> bool {
        let scripts = self.scripts.iter();
        let permitted = scripts.filter(|script| request.policy.permits(&script.url));
        let adopted = permitted.map(|script| frames::adopt_closed_trees(page, script));
        join_all(adopted).await.contains(&true)
    }

    /// Returns the script of the frame that is to be filled.
    pub(super) fn chosen(&self) -> Option<&FrameScript> {
        self.chosen.and_then(|index| self.scripts.get(index))
    }

    pub(super) fn page_url(&self) -> String {
        let url = self.scripts.first().map(|script| script.url.as_str());
        without_secrets(url.unwrap_or_default())
    }

    /// Notes outcomes. One that names a reason is not replaced by `not_found` of another frame.
    fn set_reports(&mut self, fields: &[FieldReport]) {
        for field in fields {
            let mut reports = self.reports.iter_mut();
            let known = reports.find(|known| known.name == field.name);
            if let Some(known) = known
                && field.outcome != ReportedOutcome::NotFound
            {
                known.outcome = field.outcome;
            }
        }
    }

    /// Notes the outcomes in the frame that was chosen.
    pub(super) fn set_chosen(&mut self, fields: &[FieldReport]) {
        for known in self.reports.iter_mut().filter(|known| is_found(known)) {
            known.outcome = ReportedOutcome::NotFound;
        }
        self.set_reports(fields);
    }

    /// Returns the response about the outcomes noted.
    pub(super) fn into_response(self, url: String) -> FillResponse {
        let fields = self.reports.iter();
        FillResponse {
            fields: fields
                .map(|field| field.outcome.to_field(&field.name))
                .collect(),
            submitted: false,
            url,
        }
    }

    /// Returns the response about the fields that were found, if a write would not be refused.
    pub(super) fn into_found(self, url: String) -> Result<FillResponse, FillError> {
        let ambiguous = names_of(&self.reports, ReportedOutcome::Ambiguous);
        match ambiguous.is_empty() {
            true => Ok(self.into_response(url)),
            false => Err(FillError::Ambiguous(ambiguous)),
        }
    }

    /// Returns the response where the outcome of the write is unknown.
    pub(super) fn into_unknown(mut self, url: String) -> FillResponse {
        for report in &mut self.reports {
            if is_found(report) {
                report.outcome = ReportedOutcome::Unknown;
            }
        }
        self.into_response(url)
    }
}

fn hide(candidate: &mut Candidate) {
    for field in &mut candidate.fields {
        if is_found(field) {
            field.outcome = ReportedOutcome::Hidden;
        }
    }
}

/// Whether one of the frames has a field for every value.
fn is_complete(candidates: &[Candidate], request: &ScriptRequest) -> bool {
    let all = request.specs.len();
    candidates.iter().any(|candidate| candidate.count() == all)
}

/// Chooses the frame with the most fields, and among those one with a password.
fn choose(
    candidates: Vec<Candidate>,
    request: &ScriptRequest,
) -> Result<Option<Candidate>, FillError> {
    let most = candidates.iter().map(Candidate::count).max().unwrap_or(0);
    let mut best = candidates.into_iter().filter(|one| one.count() == most);
    let Some(mut chosen) = best.next() else {
        return Ok(None);
    };
    let names = request.specs.iter();
    let password = names.clone().find(|spec| spec.kind == ValueKind::Password);
    for other in best {
        let in_both = |name: &&str| chosen.has(name) && other.has(name);
        let names = names.clone().map(|spec| spec.name.as_str());
        let shared: Vec<String> = names.filter(in_both).map(str::to_owned).collect();
        if !shared.is_empty() {
            return Err(FillError::Ambiguous(shared));
        }
        if password.is_some_and(|spec| other.has(&spec.name)) {
            chosen = other;
        }
    }
    Ok(Some(chosen))
}

/// Returns the position of the first value with one of the names.
fn first_named(request: &ScriptRequest, names: &[String]) -> Option<usize> {
    let mut specs = request.specs.iter();
    specs.position(|spec| names.contains(&spec.name))
}

/// Returns the origin of an address, for a message.
pub(super) fn describe_origin(url: &str) -> String {
    let origin = Url::parse(url).map(|url| url.origin().ascii_serialization());
    origin.unwrap_or_else(|_| "null".to_owned())
}

//! Fills the page in front of a browser. Its agent writes the values, and verifies the page.

use std::{sync::Arc, time::Duration};

use chrono::{DateTime, TimeDelta, Utc};
use secrecy::{ExposeSecret, SecretSlice, SecretString};
use tokio::time::{Instant, timeout_at};

use super::{
    CredentialError, StoredCredentials,
    material::{self, CodeSource, ComputedCode, FillMaterial, MaterialError, Values},
    totp,
};
use crate::{
    api::{
        credential_fill::{
            FillDomains, FillField, FillFields, FillOutcome, FillResponse, FilledField,
        },
        fill::{FillCredentials, FillSource},
        ids::ProjectId,
    },
    control::{
        activity::ActivityGuard,
        browsers::{BrowserError, BrowserHandle, Browsers},
        fleet::{AgentError, AgentFill, Lease},
        providers::service::Providers,
        settings::Config,
        store::TotpOptions,
    },
};

/// The name of the value with a one-time code, unless the request names one of [`CODE_NAMES`].
pub(super) const CODE_NAME: &str = "code";
/// The names of values that are one-time codes.
const CODE_NAMES: [&str; 3] = [CODE_NAME, "totp", "otp"];
/// The least time for which a code is still valid when it is used.
const MIN_CODE_TIME: TimeDelta = TimeDelta::seconds(2);
/// The time until the values are there, the page is known to ask for a code, and there is one that
/// no other request uses. Many clients give up after 60 s, and repeat the request: nothing may be
/// written for the first one then.
pub(super) const PREPARATION_TIMEOUT: Duration = Duration::from_secs(40);

/// Why a page was not filled. Nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum FillPageError {
    #[error(transparent)]
    Browser(#[from] BrowserError),
    #[error(transparent)]
    Material(#[from] MaterialError),
    #[error(transparent)]
    Credential(#[from] CredentialError),
    /// The field of the request with that index names no value.
    #[error("the source has no such value")]
    UnknownField(usize),
    #[error("other requests use the one-time codes")]
    CodesUsed,
    #[error("the values were not available within {} s", PREPARATION_TIMEOUT.as_secs())]
    Timeout,
    #[error("the page may be of at most {} domains", FillDomains::MAX)]
    TooManyDomains,
    #[error(transparent)]
    Agent(#[from] AgentError),
}

/// The service that fills pages. Clones share its state.
#[derive(Clone)]
pub struct PageFiller {
    pub(super) credentials: StoredCredentials,
    pub(super) providers: Providers,
    browsers: Browsers,
    /// Whether pages with `http` of other machines may be filled.
    pub(super) allow_http: bool,
}

impl PageFiller {
    #[must_use]
    pub fn new(
        config: &Config,
        credentials: &StoredCredentials,
        providers: &Providers,
        browsers: &Browsers,
    ) -> PageFiller {
        PageFiller {
            credentials: credentials.clone(),
            providers: providers.clone(),
            browsers: browsers.clone(),
            allow_http: config.allow_http_logins,
        }
    }

    /// Finds the values of a request, and the browser to fill.
    pub async fn prepare(
        &self,
        project: &ProjectId,
        id_or_name: &str,
        request: FillCredentials,
    ) -> Result<PreparedFill, FillPageError> {
        let deadline = Instant::now() + PREPARATION_TIMEOUT;
        let browser = self.browsers.use_active(project, id_or_name).await?;
        let activity = browser.activity().begin();
        let page_url = match request.source {
            FillSource::Page => Some(within(deadline, browser.lease().front_page_url()).await??),
            FillSource::Credential(_) | FillSource::Item { .. } => None,
        };
        let found = material::find(
            &self.credentials,
            &self.providers,
            project,
            &request.source,
            page_url.as_deref(),
        );
        let mut material = within(deadline, found).await??;
        check_fields(request.fields.as_ref(), &material)?;
        add_hosts(&mut material, request.allowed_domains.as_ref())?;
        if let Some(fields) = &request.fields {
            material.retain(fields);
        }
        Ok(PreparedFill {
            browser,
            _activity: activity,
            material,
            fields: request.fields,
            submit: request.submit,
            deadline,
        })
    }

    /// Fills the page in front of a browser, and submits its form on request.
    pub async fn fill(&self, prepared: PreparedFill) -> Result<FillResponse, FillPageError> {
        let (browser, source) = (prepared.browser.id().clone(), prepared.source().to_owned());
        let filled = self.write(prepared).await;
        if let Ok(response) = &filled {
            let count = |outcome| {
                let fields = response.fields.iter();
                fields.filter(|field| field.outcome == outcome).count()
            };
            tracing::info!(
                %browser,
                source,
                filled = count(FillOutcome::Filled),
                submitted = response.submitted,
                "filled a page"
            );
        }
        filled
    }

    async fn write(&self, prepared: PreparedFill) -> Result<FillResponse, FillPageError> {
        let FillMaterial {
            domain,
            hosts,
            mut values,
            code,
            ..
        } = prepared.material;
        let deadline = prepared.deadline;
        let fields = prepared.fields.as_ref().map(FillFields::as_slice);
        let target = FillTarget {
            lease: prepared.browser.lease(),
            domain: &domain,
            allowed_domains: &hosts,
            submit: prepared.submit,
            deadline,
            allow_http: self.allow_http,
        };
        let code_name = code_name(fields, &values);
        let (Some(code), Some(code_name)) = (code, code_name) else {
            return Ok(target.fill(&values, fields).await?);
        };
        // A code is used up only if the page asks for one.
        let placeholders = placeholders(&values, (&code_name, code.digits()));
        let probe = within(deadline, target.probe(&placeholders, fields)).await??;
        let mut probed = probe.fields.iter().filter(|field| field.name == code_name);
        if !probed.any(|field| field.outcome == FillOutcome::Found) {
            return fill_without_code(target, &values, fields, probe, &code_name).await;
        }
        let reserved = timeout_at(deadline, self.reserve(code)).await;
        let reserved = reserved.map_err(|_| FillPageError::CodesUsed)??;
        values.push((code_name.clone(), reserved.code.clone()));
        let filled = target.fill(&values, fields).await;
        if !may_have_written(&filled, &code_name) {
            self.release(&reserved).await;
        }
        Ok(filled?)
    }

    /// Returns a code that no other request uses. Waits for the next time step if those that are
    /// possible now are used.
    async fn reserve(&self, mut code: CodeSource) -> Result<ReservedCode, FillPageError> {
        loop {
            match self.credentials.try_reserve_from(&code, Utc::now()).await? {
                Reservation::Reserved(value, end) => {
                    let step = (code.holder().to_owned(), end);
                    return Ok(ReservedCode { code: value, step });
                }
                Reservation::WaitUntil(time) => {
                    let wait = (time - Utc::now()).to_std().unwrap_or_default();
                    tokio::time::sleep(wait).await;
                    code = material::renew(&self.providers, code).await?;
                }
            }
        }
    }

    /// Makes the time step of a code usable again that was not written.
    async fn release(&self, reserved: &ReservedCode) {
        let (holder, end) = &reserved.step;
        let released = self.credentials.store.release_totp_step(holder, *end);
        if let Err(error) = released.await {
            tracing::warn!(%error, "cannot release the time step of a one-time code");
        }
    }
}

/// Runs a part of the preparation.
async fn within<T>(deadline: Instant, part: impl Future<Output = T>) -> Result<T, FillPageError> {
    let done = timeout_at(deadline, part).await;
    done.map_err(|_| FillPageError::Timeout)
}

/// A request with its values. The browser is in use until it is dropped.
pub struct PreparedFill {
    pub(super) browser: Arc<BrowserHandle>,
    pub(super) _activity: ActivityGuard,
    pub(super) material: FillMaterial,
    pub(super) fields: Option<FillFields>,
    pub(super) submit: bool,
    pub(super) deadline: Instant,
}

impl PreparedFill {
    /// Returns the id of the credential, or those of the provider and the item: `prov_…/item`.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.material.source
    }
}

/// Adds the domains that a request allows to the hosts of the values.
fn add_hosts(
    material: &mut FillMaterial,
    allowed: Option<&FillDomains>,
) -> Result<(), FillPageError> {
    let allowed = allowed.map_or(&[][..], FillDomains::as_slice);
    let allowed = allowed.iter().map(|domain| domain.host().to_string());
    material.hosts.extend(allowed);
    match material.hosts.len() {
        0..=FillDomains::MAX => Ok(()),
        _ => Err(FillPageError::TooManyDomains),
    }
}

/// Returns texts of the lengths of the values and of a code, for finding their fields.
fn placeholders(values: &Values, (code_name, digits): (&str, usize)) -> Values {
    let lengths = values.iter().map(|(name, value)| {
        let length = value.expose_secret().chars().count();
        (name.as_str(), length)
    });
    let lengths = lengths.chain([(code_name, digits)]);
    lengths
        .map(|(name, length)| (name.to_owned(), "0".repeat(length).into()))
        .collect()
}

/// The page to fill, and the conditions.
struct FillTarget<'a> {
    lease: &'a Lease,
    domain: &'a str,
    allowed_domains: &'a [String],
    submit: bool,
    /// The latest time at which values are sent.
    deadline: Instant,
    allow_http: bool,
}

impl FillTarget<'_> {
    async fn fill(
        &self,
        values: &Values,
        fields: Option<&[FillField]>,
    ) -> Result<FillResponse, AgentError> {
        self.send(values, fields, false).await
    }

    /// Finds the fields of values and writes nothing.
    async fn probe(
        &self,
        values: &Values,
        fields: Option<&[FillField]>,
    ) -> Result<FillResponse, AgentError> {
        self.send(values, fields, true).await
    }

    async fn send(
        &self,
        values: &Values,
        fields: Option<&[FillField]>,
        dry_run: bool,
    ) -> Result<FillResponse, AgentError> {
        let fill = AgentFill {
            domain: self.domain,
            values,
            fields,
            allowed_domains: self.allowed_domains,
            submit: self.submit,
            dry_run,
            allow_http: self.allow_http,
        };
        self.lease.fill_credentials(&fill, self.deadline).await
    }
}

/// Fills a page that does not ask for a one-time code, whose outcome is that of the probe. A form
/// that lacks a field the request has named is not submitted.
async fn fill_without_code(
    mut target: FillTarget<'_>,
    values: &Values,
    fields: Option<&[FillField]>,
    probe: FillResponse,
    code_name: &str,
) -> Result<FillResponse, FillPageError> {
    let others = fields.map(|fields| {
        let others = fields
            .iter()
            .filter(|field| field.name.as_str() != code_name);
        others.cloned().collect::<Vec<_>>()
    });
    if values.is_empty() || others.as_ref().is_some_and(Vec::is_empty) {
        return Ok(probe);
    }
    target.submit &= fields.is_none();
    let mut response = target.fill(values, others.as_deref()).await?;
    let mut probed = probe.fields.into_iter();
    response
        .fields
        .extend(probed.find(|field| field.name == code_name));
    Ok(response)
}

/// A code that no other request uses, and the time step that is marked as used for it.
struct ReservedCode {
    code: SecretString,
    /// The holder of the secret, and the end of the step.
    step: (String, DateTime<Utc>),
}

/// The result of an attempt to reserve a code.
pub(super) enum Reservation {
    /// The code, and the end of its time step.
    Reserved(SecretString, DateTime<Utc>),
    /// The time when the next step begins.
    WaitUntil(DateTime<Utc>),
}

impl StoredCredentials {
    async fn try_reserve_from(
        &self,
        code: &CodeSource,
        now: DateTime<Utc>,
    ) -> Result<Reservation, CredentialError> {
        match code {
            CodeSource::Secret {
                holder,
                secret,
                options,
            } => self.try_reserve(holder, secret, *options, now).await,
            CodeSource::Computed { holder, code, .. } => {
                self.try_reserve_computed(holder, code, now).await
            }
        }
    }

    /// Marks the current time step of a secret as used and returns its code, unless another request
    /// has used it or it ends too soon.
    pub(super) async fn try_reserve(
        &self,
        holder: &str,
        secret: &SecretSlice<u8>,
        options: TotpOptions,
        now: DateTime<Utc>,
    ) -> Result<Reservation, CredentialError> {
        let end = totp::step_end(options, now);
        if end - now < MIN_CODE_TIME || !self.store.use_totp_step(holder, end).await? {
            return Ok(Reservation::WaitUntil(end));
        }
        let code = totp::code_at(secret, options, now).code;
        Ok(Reservation::Reserved(code, end))
    }

    /// Does the same with a code that a provider has computed.
    pub(super) async fn try_reserve_computed(
        &self,
        holder: &str,
        code: &ComputedCode,
        now: DateTime<Utc>,
    ) -> Result<Reservation, CredentialError> {
        let next = totp::step_end(totp::DEFAULT_OPTIONS, now);
        let Some(end) = code.step_end.filter(|end| *end - now >= MIN_CODE_TIME) else {
            return Ok(Reservation::WaitUntil(next));
        };
        match self.store.use_totp_step(holder, end).await? {
            true => Ok(Reservation::Reserved(code.value.clone(), end)),
            false => Ok(Reservation::WaitUntil(next)),
        }
    }
}

impl CodeSource {
    fn digits(&self) -> usize {
        match self {
            CodeSource::Secret { options, .. } => options.digits as usize,
            CodeSource::Computed { code, .. } => code.value.expose_secret().chars().count(),
        }
    }

    fn holder(&self) -> &str {
        match self {
            CodeSource::Secret { holder, .. } | CodeSource::Computed { holder, .. } => holder,
        }
    }
}

/// Returns the name of the value with a one-time code. `None` if the request wants no code, or the
/// source has a value of that name.
fn code_name(fields: Option<&[FillField]>, values: &Values) -> Option<String> {
    let name = match fields {
        None => CODE_NAME.to_owned(),
        Some(fields) => {
            let mut names = fields.iter().map(|field| field.name.as_str());
            names.find(|name| is_code_name(name))?.to_owned()
        }
    };
    let has_value = values.iter().any(|(known, _)| *known == name);
    (!has_value).then_some(name)
}

fn is_code_name(name: &str) -> bool {
    CODE_NAMES
        .iter()
        .any(|code| code.eq_ignore_ascii_case(name))
}

/// Rejects fields that name no value of the source.
fn check_fields(fields: Option<&FillFields>, material: &FillMaterial) -> Result<(), FillPageError> {
    let fields = fields.map_or(&[][..], FillFields::as_slice);
    let mut has_code = material.code.is_some();
    let is_unknown = |field: &FillField| {
        let name = field.name.as_str();
        let is_value = material.values.iter().any(|(known, _)| known == name);
        // The code has one name.
        let is_code = !is_value && is_code_name(name) && std::mem::take(&mut has_code);
        !is_value && !is_code
    };
    match fields.iter().position(is_unknown) {
        Some(index) => Err(FillPageError::UnknownField(index)),
        None => Ok(()),
    }
}

/// Returns whether a code may have been written into the page.
fn may_have_written(filled: &Result<FillResponse, AgentError>, code_name: &str) -> bool {
    match filled {
        Ok(response) => {
            let written = [FillOutcome::Filled, FillOutcome::Unknown];
            let is_written = |field: &FilledField| written.contains(&field.outcome);
            let mut fields = response.fields.iter();
            fields.any(|field| field.name == code_name && is_written(field))
        }
        // Of an agent that has written nothing.
        Err(_) => false,
    }
}

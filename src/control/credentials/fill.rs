//! Fills the page in front of a browser. Its agent writes the values, and verifies the page.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use secrecy::{ExposeSecret, SecretSlice, SecretString};
use tokio::time::{Instant, timeout_at};

use super::{
    CredentialError, StoredCredentials,
    material::{self, CodeSource, FillMaterial, MaterialError, Values},
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
        browsers::{BrowserError, Browsers},
        fleet::{AgentError, AgentFill, Lease},
        providers::service::Providers,
        store::TotpOptions,
    },
};

/// The name of the value with a one-time code, unless the request names one of [`CODE_NAMES`].
const CODE_NAME: &str = "code";
/// The names of values that are one-time codes.
const CODE_NAMES: [&str; 3] = [CODE_NAME, "totp", "otp"];
/// The least time for which a code is still valid when it is used.
const MIN_CODE_TIME: TimeDelta = TimeDelta::seconds(2);
/// The time in which the values, and a code that no other request uses, must be there. Many clients
/// give up after 60 s, and repeat the request: nothing may be written for the first one then.
const PREPARATION_TIMEOUT: Duration = Duration::from_secs(40);

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
    credentials: StoredCredentials,
    providers: Providers,
    browsers: Browsers,
}

impl PageFiller {
    #[must_use]
    pub fn new(
        credentials: StoredCredentials,
        providers: Providers,
        browsers: Browsers,
    ) -> PageFiller {
        PageFiller {
            credentials,
            providers,
            browsers,
        }
    }

    /// Fills the page in front of a browser, and submits its form on request.
    pub async fn fill(
        &self,
        project: &ProjectId,
        id_or_name: &str,
        request: &FillCredentials,
    ) -> Result<FillResponse, FillPageError> {
        let deadline = Instant::now() + PREPARATION_TIMEOUT;
        let browser = self.browsers.use_active(project, id_or_name).await?;
        let _activity = browser.activity().begin();
        let lease = browser.lease();
        let page_url = match request.source {
            FillSource::Page => Some(lease.front_page_url().await?),
            FillSource::Credential(_) | FillSource::Item { .. } => None,
        };
        let found = material::find(
            &self.credentials,
            &self.providers,
            project,
            &request.source,
            page_url.as_deref(),
        );
        let found = timeout_at(deadline, found).await;
        let mut material = found.map_err(|_| FillPageError::Timeout)??;
        check_fields(request.fields.as_ref(), &material)?;
        let source = std::mem::take(&mut material.source);
        let allowed = request.allowed_domains.as_ref();
        let allowed = allowed.map_or(&[][..], FillDomains::as_slice);
        let allowed = allowed.iter().map(|domain| domain.host().to_string());
        let hosts: Vec<String> = material.hosts.drain(..).chain(allowed).collect();
        if hosts.len() > FillDomains::MAX {
            return Err(FillPageError::TooManyDomains);
        }
        if let Some(fields) = &request.fields {
            let is_named = |name: &str| {
                let mut fields = fields.as_slice().iter();
                fields.any(|field| field.name.as_str() == name)
            };
            material.values.retain(|(name, _)| is_named(name));
        }
        let filled = self
            .fill_from(lease, request, material, (&hosts, deadline))
            .await;
        if let Ok(response) = &filled {
            let count = |outcome| {
                let fields = response.fields.iter();
                fields.filter(|field| field.outcome == outcome).count()
            };
            tracing::info!(
                browser = %browser.id(),
                source,
                filled = count(FillOutcome::Filled),
                submitted = response.submitted,
                "filled a page"
            );
        }
        filled
    }

    async fn fill_from(
        &self,
        lease: &Lease,
        request: &FillCredentials,
        material: FillMaterial,
        (hosts, deadline): (&[String], Instant),
    ) -> Result<FillResponse, FillPageError> {
        let FillMaterial {
            domain,
            mut values,
            code,
            ..
        } = material;
        let fields = request.fields.as_ref().map(FillFields::as_slice);
        let target = FillTarget {
            lease,
            domain: &domain,
            allowed_domains: hosts,
            submit: request.submit,
        };
        let code_name = code_name(fields, &values);
        let (Some(code), Some(code_name)) = (code, code_name) else {
            return Ok(target.fill(&values, fields).await?);
        };
        // A code is used up only if the page asks for one.
        values.push((code_name.clone(), "0".repeat(code.digits()).into()));
        let probe = target.probe(&values, fields).await?;
        values.pop();
        let mut probed = probe.fields.iter().filter(|field| field.name == code_name);
        if !probed.any(|field| field.outcome == FillOutcome::Found) {
            return fill_without_code(&target, &values, fields, probe, &code_name).await;
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
    async fn reserve(&self, code: CodeSource) -> Result<ReservedCode, FillPageError> {
        let (holder, secret, options) = match code {
            CodeSource::Computed { holder, code } => {
                return self.reserve_computed(holder, code).await;
            }
            CodeSource::Secret {
                holder,
                secret,
                options,
            } => (holder, secret, options),
        };
        let credentials = &self.credentials;
        loop {
            let now = Utc::now();
            match credentials
                .try_reserve(&holder, &secret, options, now)
                .await?
            {
                Reservation::Reserved(code, end) => {
                    let step = (holder, end);
                    return Ok(ReservedCode { code, step });
                }
                Reservation::WaitUntil(time) => {
                    let wait = (time - Utc::now()).to_std().unwrap_or_default();
                    tokio::time::sleep(wait).await;
                }
            }
        }
    }

    /// Marks the time step in which a provider has computed a code as used.
    async fn reserve_computed(
        &self,
        holder: String,
        code: SecretString,
    ) -> Result<ReservedCode, FillPageError> {
        let end = totp::step_end(totp::DEFAULT_OPTIONS, Utc::now());
        let used = self.credentials.store.use_totp_step(&holder, end).await;
        match used.map_err(CredentialError::from)? {
            true => Ok(ReservedCode {
                code,
                step: (holder, end),
            }),
            false => Err(FillPageError::CodesUsed),
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

/// The page to fill, and the conditions.
struct FillTarget<'a> {
    lease: &'a Lease,
    domain: &'a str,
    allowed_domains: &'a [String],
    submit: bool,
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
        };
        self.lease.fill_credentials(&fill).await
    }
}

/// Fills a page that does not ask for a one-time code, whose outcome is that of the probe.
async fn fill_without_code(
    target: &FillTarget<'_>,
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
}

impl CodeSource {
    fn digits(&self) -> usize {
        match self {
            CodeSource::Secret { options, .. } => options.digits as usize,
            CodeSource::Computed { code, .. } => code.expose_secret().chars().count(),
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
    let is_unknown = |field: &FillField| {
        let name = field.name.as_str();
        let is_value = material.values.iter().any(|(known, _)| known == name);
        let is_code = material.code.is_some() && is_code_name(name);
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

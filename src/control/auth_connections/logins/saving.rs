//! Saves what a login has achieved: the profile, and the values that the person has submitted.

use std::time::Duration;

use chrono::Utc;
use tokio::time::sleep;

use super::{Inner, actions::Action, answers, browser::profile_of, page::PageError};
use crate::{
    api::{
        credentials::{
            CreateCredential, CredentialDomain, CredentialName, CredentialValue, CredentialValues,
            UpdateCredential,
        },
        public_suffix::is_same_site,
    },
    control::{
        auth_connections::flow::FlowEvent,
        browsers::BrowserError,
        credentials::CredentialError,
        profiles::BrowserSave,
        store::{AuthConnectionRow, CredentialReference, StoreError},
    },
};

/// The attempts to save the profile.
const MAX_ATTEMPTS: usize = 4;
const RETRY_DELAY: Duration = Duration::from_secs(2);
/// The most characters of the domain in the name of a credential.
const MAX_NAME_DOMAIN: usize = 200;

/// Why the values of a person were not saved.
#[derive(Debug, thiserror::Error)]
enum SaveAnswersError {
    #[error("{0}")]
    Invalid(String),
    #[error(transparent)]
    Credential(#[from] CredentialError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Action<'_> {
    /// Saves the profile, and the values of the person as a credential.
    pub(super) async fn save(&mut self, save_answers: bool) -> Result<FlowEvent, PageError> {
        let id = self.row.flow.browser().ok_or(PageError::BrowserLost)?;
        let Some(profile) = profile_of(self.connection) else {
            return Ok(FlowEvent::NotSaved);
        };
        let browsers = &self.services.parts.browsers;
        for attempt in 1..=MAX_ATTEMPTS {
            let (project, kind) = (&self.row.project_id, BrowserSave::Closed);
            let saving = browsers.save_profile(project, id.as_str(), &profile, kind);
            match saving.await {
                Ok(_) => break,
                Err(BrowserError::NotFound) => return Err(PageError::BrowserLost),
                Err(error) => {
                    tracing::warn!(flow = %self.row.id(), %error, "cannot save a profile that is logged in");
                    if attempt == MAX_ATTEMPTS {
                        return Ok(FlowEvent::NotSaved);
                    }
                    sleep(RETRY_DELAY).await;
                }
            }
        }
        if save_answers {
            self.save_answers().await;
        }
        Ok(FlowEvent::Saved)
    }

    /// Saves the values of the person as the credential of the connection. The login has succeeded
    /// even if that fails.
    async fn save_answers(&self) {
        let parts = &self.services.parts;
        let answers = match answers::open(&parts.secrets, self.row).await {
            Ok(answers) => answers,
            Err(error) => {
                tracing::warn!(flow = %self.row.id(), %error, "cannot read the values of a login");
                return;
            }
        };
        let values = answers.lasting().map(|(name, value)| {
            let value = CredentialValue::from_secret(value.clone());
            (name.to_owned(), value)
        });
        let values = CredentialValues(values.take(CredentialValues::MAX).collect());
        if values.0.is_empty() {
            return;
        }
        let saved = self.services.save_credential(self.connection, values).await;
        if let Err(error) = saved {
            tracing::warn!(connection = %self.connection.id, %error, "cannot save the values of a login");
        }
    }
}

impl Inner {
    /// Stores values as the credential of a connection: adds them to that of the project which it
    /// has, or creates one. Values for a provider's item are not stored.
    async fn save_credential(
        &self,
        connection: &AuthConnectionRow,
        values: CredentialValues,
    ) -> Result<(), SaveAnswersError> {
        let (project, credentials) = (&connection.project_id, &self.parts.credentials);
        match &connection.settings.credential {
            Some(CredentialReference::Credential(name)) => {
                let row = credentials.get(project, name).await?;
                // Its values are for another site, or for an identity provider.
                if is_same_site(&row.domain, &connection.domain) && row.sso_provider.is_none() {
                    let request = UpdateCredential::of_values(values);
                    credentials
                        .update(project, row.id.as_str(), request)
                        .await?;
                }
                return Ok(());
            }
            Some(_) => return Ok(()),
            None => {}
        }
        let name = credential_name(connection)?;
        let domain = CredentialDomain::parse(&connection.domain);
        let domain = domain.map_err(SaveAnswersError::Invalid)?;
        let name_text = name.as_str().to_owned();
        match credentials.get(project, &name_text).await {
            Ok(_) => {
                let request = UpdateCredential::of_values(values);
                credentials.update(project, &name_text, request).await?;
            }
            Err(CredentialError::NotFound) => {
                let request = CreateCredential::of_values(name, domain, values);
                credentials.create(project, request).await?;
            }
            Err(error) => return Err(error.into()),
        }
        let reference = CredentialReference::Credential(name_text);
        Ok(self.set_credential(connection, reference).await?)
    }

    /// Sets the credential of a connection that has none.
    async fn set_credential(
        &self,
        connection: &AuthConnectionRow,
        reference: CredentialReference,
    ) -> Result<(), StoreError> {
        let store = &self.parts.store;
        for _ in 0..MAX_ATTEMPTS {
            let found = store.find_auth_connection(&connection.project_id, &connection.id);
            let Some(mut row) = found.await?.filter(|row| row.settings.credential.is_none()) else {
                return Ok(());
            };
            row.settings.credential = Some(reference.clone());
            row.revision += 1;
            row.updated_at = Utc::now();
            if store.update_auth_connection(&row).await? {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// Returns the name of the credential with the values that were submitted to a connection.
fn credential_name(connection: &AuthConnectionRow) -> Result<CredentialName, SaveAnswersError> {
    let domain: String = connection.domain.chars().take(MAX_NAME_DOMAIN).collect();
    let name = CredentialName::parse(format!("{domain}-{}", connection.id));
    name.map_err(SaveAnswersError::Invalid)
}

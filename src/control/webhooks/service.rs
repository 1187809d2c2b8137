//! Creates, changes, deletes and tests webhooks, whose secrets are sealed.

use chrono::Utc;
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;
use url::Url;

use super::{Inner, Webhooks, attempt::Endpoint};
use crate::{
    api::{
        ids::{WebhookEventId, WebhookId},
        webhooks::{
            CreateWebhook, TestEvent, UpdateWebhook, WebhookDisabledReason, WebhookPayload,
            WebhookUrl,
        },
    },
    control::{
        secret_token::random_hex,
        secrets::{Sealed, SealedPlace, SecretError, SecretScope, to_text},
        store::{
            CreateWebhookOutcome, StoreError, WebhookDeliveryListing, WebhookDeliveryRow,
            WebhookRow,
        },
    },
};

/// The most webhooks of the organization.
pub const MAX_WEBHOOKS: u64 = 20;
/// The most attempts of a change while other requests change the webhook, too.
const MAX_UPDATE_ATTEMPTS: usize = 8;
/// The field of the sealed secret.
const SECRET_FIELD: &str = "secret";
/// The start of generated secrets, for programs that search for leaked ones.
const SECRET_PREFIX: &str = "whsec_";
const SECRET_BYTES: usize = 32;

/// Why an operation on a webhook failed.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    #[error("no webhook with that id")]
    NotFound,
    #[error("webhook limit reached ({0})")]
    TooMany(u64),
    #[error("the URL must be https: the server's settings allow no network without TLS")]
    HttpsRequired,
    #[error("secret is required for another scheme, host or port")]
    SecretRequired,
    #[error("the webhook is being changed by other requests")]
    Contended,
    #[error("too many tests of webhooks are in progress")]
    Busy,
    #[error(transparent)]
    Secret(#[from] SecretError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Webhooks {
    /// Creates a webhook, without a request to it. Returns its secret too, if it is generated.
    pub async fn create(
        &self,
        request: CreateWebhook,
    ) -> Result<(WebhookRow, Option<SecretString>), WebhookError> {
        self.inner.check_url(&request.url)?;
        let (secret, generated) = match request.secret {
            Some(given) => (given.into(), None),
            None => {
                let secret = generate_secret();
                (secret.clone(), Some(secret))
            }
        };
        let now = Utc::now();
        let mut row = WebhookRow {
            id: WebhookId::generate(),
            url: request.url.url().to_string(),
            events: request.events.into(),
            disabled_reason: None,
            revision: 1,
            secret_revision: 1,
            secret_key_version: 0,
            sealed_secret: Vec::new(),
            created_at: now,
            updated_at: now,
        };
        self.inner.seal_secret(&mut row, &secret).await?;
        match self.inner.store.create_webhook(&row, MAX_WEBHOOKS).await? {
            CreateWebhookOutcome::Created => Ok((row, generated)),
            CreateWebhookOutcome::LimitReached => Err(WebhookError::TooMany(MAX_WEBHOOKS)),
        }
    }

    /// Finds a webhook by its id.
    pub async fn get(&self, id: &str) -> Result<WebhookRow, WebhookError> {
        let id: WebhookId = id.parse().map_err(|_| WebhookError::NotFound)?;
        let found = self.inner.store.find_webhook(&id).await?;
        found.ok_or(WebhookError::NotFound)
    }

    /// Lists webhooks, newest first, with one more than the limit if there are more.
    pub async fn list(&self, offset: u64, limit: u64) -> Result<Vec<WebhookRow>, WebhookError> {
        Ok(self.inner.store.list_webhooks(offset, limit).await?)
    }

    /// Changes a webhook.
    pub async fn update(
        &self,
        id: &str,
        request: UpdateWebhook,
    ) -> Result<WebhookRow, WebhookError> {
        let Self { inner } = self;
        if let Some(url) = &request.url {
            inner.check_url(url)?;
        }
        let secret = request.secret.clone().map(SecretString::from);
        for _ in 0..MAX_UPDATE_ATTEMPTS {
            let row = self.get(id).await?;
            let mut changed = changed(&row, &request);
            match &secret {
                Some(secret) => inner.seal_secret(&mut changed, secret).await?,
                // The right to change a webhook does not include its secret.
                None if origin(&changed.url) != origin(&row.url) => {
                    return Err(WebhookError::SecretRequired);
                }
                None => {}
            }
            if inner.store.update_webhook(&changed).await? {
                return Ok(changed);
            }
        }
        Err(WebhookError::Contended)
    }

    /// Deletes a webhook with its deliveries. An attempt in progress goes on.
    pub async fn delete(&self, id: &str) -> Result<(), WebhookError> {
        let id: WebhookId = id.parse().map_err(|_| WebhookError::NotFound)?;
        let store = &self.inner.store;
        if !store.delete_webhook(&id).await? {
            return Err(WebhookError::NotFound);
        }
        // The purge deletes the others.
        if let Err(error) = store.delete_webhook_deliveries(&id).await {
            tracing::warn!(webhook = %id, %error, "cannot delete all deliveries of a webhook yet");
        }
        Ok(())
    }

    /// Sends a test to a webhook, also if it is disabled. Returns the delivery, which has one
    /// attempt and whose failure is a result.
    pub async fn test(&self, id: &str) -> Result<WebhookDeliveryRow, WebhookError> {
        let Self { inner } = self;
        let webhook = self.get(id).await?;
        let _permit = inner.tests.try_acquire().map_err(|_| WebhookError::Busy)?;
        let test = TestEvent {
            webhook_id: webhook.id.clone(),
        };
        let payload = WebhookPayload {
            id: WebhookEventId::generate(),
            event_type: TestEvent::TYPE.to_owned(),
            created_at: Utc::now().into(),
            project_id: None,
            data: json!(test),
        };
        let delivery = WebhookDeliveryRow::new(&webhook.id, &payload)?;
        let endpoint = inner.endpoint(&webhook).await;
        let endpoint = endpoint.as_ref().map_err(String::as_str);
        let outcome = inner.attempt(endpoint, &delivery).await;
        let attempt = inner.record_of(outcome, &delivery, false);
        let delivery = delivery.after(attempt);
        // The request was sent, and must not be repeated because of the log.
        if let Err(error) = inner.store.add_webhook_delivery(&delivery).await {
            tracing::warn!(webhook = %webhook.id, %error, "cannot record the test of a webhook");
        }
        Ok(delivery)
    }

    /// Lists deliveries of a webhook, newest first, with one more than the limit if there are more.
    pub async fn deliveries(
        &self,
        id: &str,
        listing: WebhookDeliveryListing,
    ) -> Result<Vec<WebhookDeliveryRow>, WebhookError> {
        let webhook = self.get(id).await?;
        let store = &self.inner.store;
        Ok(store.list_webhook_deliveries(&webhook.id, listing).await?)
    }
}

impl Inner {
    /// Refuses a URL without TLS if no address could be reached that way.
    fn check_url(&self, url: &WebhookUrl) -> Result<(), WebhookError> {
        match url.url().scheme() {
            "https" => Ok(()),
            _ if self.allows_http => Ok(()),
            _ => Err(WebhookError::HttpsRequired),
        }
    }

    /// Returns the endpoint of a webhook, or why there is none.
    pub(super) async fn endpoint(&self, webhook: &WebhookRow) -> Result<Endpoint, String> {
        let url = Url::parse(&webhook.url).map_err(|_| "the URL is not usable".to_owned())?;
        let secret = self.open_secret(webhook).await.map_err(|error| {
            tracing::error!(webhook = %webhook.id, %error, "cannot open the secret of a webhook");
            "the secret of the webhook cannot be opened".to_owned()
        })?;
        Ok(Endpoint { url, secret })
    }

    /// Seals the secret of a row, for its revision and the origin of its URL.
    async fn seal_secret(
        &self,
        row: &mut WebhookRow,
        secret: &SecretString,
    ) -> Result<(), SecretError> {
        row.secret_revision = row.revision;
        let keys = self.secrets.keys_of(&SecretScope::Organization).await?;
        let origin = origin(&row.url);
        let sealed = keys.seal(&place(row, &origin), secret.expose_secret().as_bytes())?;
        row.secret_key_version = sealed.key_version;
        row.sealed_secret = sealed.bytes;
        Ok(())
    }

    async fn open_secret(&self, row: &WebhookRow) -> Result<SecretString, SecretError> {
        let keys = self.secrets.keys_of(&SecretScope::Organization).await?;
        let sealed = Sealed {
            key_version: row.secret_key_version,
            bytes: row.sealed_secret.clone(),
        };
        to_text(&keys.open(&place(row, &origin(&row.url)), &sealed)?)
    }
}

/// Returns a row with the changes of a request but that of the secret, and the next revision.
fn changed(row: &WebhookRow, request: &UpdateWebhook) -> WebhookRow {
    let url = request.url.as_ref().map(|url| url.url().as_str());
    let events = request.events.clone().map(Into::into);
    WebhookRow {
        url: url.unwrap_or(&row.url).to_owned(),
        events: events.unwrap_or_else(|| row.events.clone()),
        disabled_reason: match request.enabled {
            Some(true) => None,
            Some(false) => Some(WebhookDisabledReason::Request),
            None => row.disabled_reason,
        },
        revision: row.revision + 1,
        updated_at: Utc::now(),
        ..row.clone()
    }
}

/// Returns the place of a secret. It opens only for the origin that it was entered for.
fn place<'a>(row: &'a WebhookRow, origin: &'a str) -> SealedPlace<'a> {
    SealedPlace {
        record: row.id.as_str(),
        purpose: origin,
        field: SECRET_FIELD,
        revision: row.secret_revision,
    }
}

/// Returns scheme, host and port of a URL.
fn origin(url: &str) -> String {
    let url = Url::parse(url);
    url.map(|url| url.origin().ascii_serialization())
        .unwrap_or_default()
}

fn generate_secret() -> SecretString {
    let secret = random_hex::<SECRET_BYTES>();
    SecretString::from(format!("{SECRET_PREFIX}{secret}"))
}

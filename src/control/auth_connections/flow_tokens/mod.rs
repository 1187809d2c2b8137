//! Tokens of login flows: JSON Web Tokens for the person who logs in, each valid for one flow of
//! one connection.
//!
//! An Ed25519 key of the database signs them. Its public part is published, so that other programs
//! can verify them as well. A token names the API key that the flow was started with, and ends with
//! it.
//!
//! A key signs for 30 days ([`signing_key`]). Any process creates the next one: the database
//! accepts one of several.

use std::{sync::Arc, time::Duration};

use chrono::{DateTime, SubsecRound, TimeDelta, Utc};
use jsonwebtoken::{Algorithm, Header, Validation, decode, decode_header, encode};
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use tokio::{sync::Mutex, time::Instant};

use self::signing_key::{MAX_AGE, ROTATION_AGE, VerificationKey, is_kid};
use crate::{
    api::{
        ids::{AuthConnectionId, FlowId, ProjectId},
        jwks::JsonWebKeySet,
    },
    control::{
        secrets::{SecretError, Secrets},
        session_token::Issuer,
        store::{SigningKeyRow, Store, StoreError},
    },
    shutdown::Shutdown,
};

mod signing_key;
#[cfg(test)]
mod tests;

/// The lifetime of a token, unless its API key expires before.
pub const LIFETIME: TimeDelta = TimeDelta::minutes(30);
/// The most bytes of a token. Longer ones are rejected without parsing.
const MAX_LENGTH: usize = 2048;
/// The shortest time between two reads of the keys because of an unknown key id.
const RELOAD_INTERVAL: Duration = Duration::from_secs(1);
/// The interval at which a new key is created if it is due, and old ones are deleted.
const ROTATION_INTERVAL: Duration = Duration::from_hours(1);

const ISSUER: &str = "berth";
/// Distinguishes these tokens from others that are signed with the same key.
const AUDIENCE: &str = "berth:auth-flow";

/// The content of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowGrant {
    pub connection: AuthConnectionId,
    pub flow: FlowId,
    pub project: ProjectId,
    /// The API key of the flow, with its expiry, or in a token that was verified with that of the
    /// token. The caller must verify the key.
    pub issuer: Issuer,
}

/// Why a token is not accepted.
#[derive(Debug, thiserror::Error)]
pub enum FlowTokenError {
    /// The token is malformed, modified, expired or of an unknown key. Does not distinguish them,
    /// so that an attacker learns nothing.
    #[error("the token is not valid")]
    Invalid,
    #[error(transparent)]
    Store(#[from] StoreError),
}

#[derive(Serialize, Deserialize)]
struct Claims {
    iss: String,
    aud: String,
    /// The connection.
    sub: String,
    flow: String,
    project: String,
    /// The public part of the API key.
    key: String,
    iat: i64,
    exp: i64,
}

/// Issues and verifies tokens of login flows. Clones share the known public keys.
#[derive(Clone)]
pub struct FlowTokens {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
    secrets: Secrets,
    validation: Validation,
    /// Newest first.
    known: RwLock<Vec<VerificationKey>>,
    /// When the keys were read last. Locked while they are read.
    read_at: Mutex<Option<Instant>>,
}

impl FlowTokens {
    #[must_use]
    pub fn new(store: Store, secrets: Secrets) -> FlowTokens {
        let mut validation = Validation::new(Algorithm::EdDSA);
        validation.set_issuer(&[ISSUER]);
        validation.set_audience(&[AUDIENCE]);
        validation.set_required_spec_claims(&["iss", "aud", "sub", "exp"]);
        // Compared with the time of the caller.
        validation.validate_exp = false;
        FlowTokens {
            inner: Arc::new(Inner {
                store,
                secrets,
                validation,
                known: RwLock::default(),
                read_at: Mutex::default(),
            }),
        }
    }

    /// Issues a token, and returns it with its expiry, which is no later than that of the issuer.
    ///
    /// # Errors
    /// If the database is not available, or the private key cannot be opened.
    pub async fn issue(
        &self,
        grant: &FlowGrant,
        now: DateTime<Utc>,
    ) -> Result<(String, DateTime<Utc>), SecretError> {
        let inner = &self.inner;
        let keys = inner.rotate(now).await?;
        let row = signing_key::signer(&keys, now).ok_or(SecretError::Damaged)?;
        let private = signing_key::open(&inner.secrets, row).await?;
        let longest = now + LIFETIME;
        let expiry = grant
            .issuer
            .expires_at
            .map_or(longest, |at| at.min(longest));
        let expiry = expiry.trunc_subsecs(0);
        let claims = Claims {
            iss: ISSUER.to_owned(),
            aud: AUDIENCE.to_owned(),
            sub: grant.connection.to_string(),
            flow: grant.flow.to_string(),
            project: grant.project.to_string(),
            key: grant.issuer.key.clone(),
            iat: now.timestamp(),
            exp: expiry.timestamp(),
        };
        let header = Header {
            kid: Some(row.kid.clone()),
            ..Header::new(Algorithm::EdDSA)
        };
        let token = encode(&header, &claims, &private).map_err(|_| SecretError::Damaged)?;
        Ok((token, expiry))
    }

    /// Verifies a token and returns its content.
    ///
    /// # Errors
    /// If it is not valid, or the database is not available.
    pub async fn verify(&self, token: &str) -> Result<FlowGrant, FlowTokenError> {
        self.verify_at(token, Utc::now()).await
    }

    async fn verify_at(
        &self,
        token: &str,
        now: DateTime<Utc>,
    ) -> Result<FlowGrant, FlowTokenError> {
        if token.len() > MAX_LENGTH {
            return Err(FlowTokenError::Invalid);
        }
        let header = decode_header(token).map_err(|_| FlowTokenError::Invalid)?;
        let kid = header.kid.filter(|kid| is_kid(kid));
        let (Algorithm::EdDSA, Some(kid)) = (header.alg, kid) else {
            return Err(FlowTokenError::Invalid);
        };
        let key = self.inner.find(&kid, now).await?;
        let key = key.ok_or(FlowTokenError::Invalid)?;
        let decoded = decode::<Claims>(token, &key.decoding, &self.inner.validation);
        let claims = decoded.map_err(|_| FlowTokenError::Invalid)?.claims;
        claims.into_grant(now).ok_or(FlowTokenError::Invalid)
    }

    /// Returns the published keys, newest first.
    ///
    /// # Errors
    /// If the database is not available.
    pub async fn public_keys(&self) -> Result<JsonWebKeySet, StoreError> {
        self.public_keys_at(Utc::now()).await
    }

    async fn public_keys_at(&self, now: DateTime<Utc>) -> Result<JsonWebKeySet, StoreError> {
        self.inner.refresh().await?;
        let known = self.inner.known.read();
        let valid = known.iter().filter(|key| key.is_valid(now));
        Ok(JsonWebKeySet {
            keys: valid.map(VerificationKey::to_jwk).collect(),
        })
    }

    /// Creates keys before the earlier ones are too old and deletes those that are, until shutdown.
    pub async fn maintain(self, shutdown: Shutdown) {
        let mut ticks = tokio::time::interval(ROTATION_INTERVAL);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = shutdown.requested() => return,
            }
            if let Err(error) = self.maintain_at(Utc::now()).await {
                tracing::error!(%error, "cannot renew the keys that sign tokens of login flows");
            }
        }
    }

    async fn maintain_at(&self, now: DateTime<Utc>) -> Result<(), SecretError> {
        self.inner.rotate(now).await?;
        self.inner.store.delete_signing_keys(now - MAX_AGE).await?;
        Ok(())
    }
}

impl Inner {
    /// Returns the keys, newest first. Creates one if the newest is too old.
    async fn rotate(&self, now: DateTime<Utc>) -> Result<Vec<SigningKeyRow>, SecretError> {
        let keys = self.read(&mut *self.read_at.lock().await).await?;
        if !signing_key::is_rotation_due(&keys, now) {
            return Ok(keys);
        }
        let fresh = signing_key::generate(&self.secrets, now).await?;
        // Unless another process has done it.
        self.store
            .add_signing_key(&fresh, now - ROTATION_AGE)
            .await?;
        Ok(self.read(&mut *self.read_at.lock().await).await?)
    }

    /// Finds a public key that is valid.
    async fn find(
        &self,
        kid: &str,
        now: DateTime<Utc>,
    ) -> Result<Option<VerificationKey>, StoreError> {
        if let Some(key) = self.known_key(kid) {
            return Ok(key.is_valid(now).then_some(key));
        }
        self.refresh().await?;
        Ok(self.known_key(kid).filter(|key| key.is_valid(now)))
    }

    fn known_key(&self, kid: &str) -> Option<VerificationKey> {
        let known = self.known.read();
        known.iter().find(|key| key.kid == kid).cloned()
    }

    /// Reads the keys, unless that was done within [`RELOAD_INTERVAL`]. So requests with arbitrary
    /// key ids do not cause a query each.
    async fn refresh(&self) -> Result<(), StoreError> {
        let mut read_at = self.read_at.lock().await;
        if read_at.is_none_or(|at| at.elapsed() >= RELOAD_INTERVAL) {
            self.read(&mut read_at).await?;
        }
        Ok(())
    }

    async fn read(&self, read_at: &mut Option<Instant>) -> Result<Vec<SigningKeyRow>, StoreError> {
        let rows = self.store.signing_keys().await?;
        *self.known.write() = rows.iter().map(VerificationKey::from).collect();
        *read_at = Some(Instant::now());
        Ok(rows)
    }
}

impl Claims {
    /// Returns the content of a token with a valid signature, unless it has expired.
    fn into_grant(self, now: DateTime<Utc>) -> Option<FlowGrant> {
        let expires_at = DateTime::from_timestamp(self.exp, 0)?;
        if expires_at <= now {
            return None;
        }
        Some(FlowGrant {
            connection: self.sub.parse().ok()?,
            flow: self.flow.parse().ok()?,
            project: self.project.parse().ok()?,
            issuer: Issuer {
                key: self.key,
                expires_at: Some(expires_at),
            },
        })
    }
}

impl std::fmt::Debug for FlowTokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FlowTokens")
    }
}

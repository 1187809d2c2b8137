//! Join tokens. One buys an identity for a host that control does not know, and nothing else.
//!
//! A token has a number of uses. Each is taken in the transaction that stores the host.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use secrecy::SecretString;

use crate::{
    api::ids::JoinTokenId,
    control::{
        keys::{ApiKeys, Identity, KeyError},
        secret_token::{self, TokenFormat},
        store::{JoinTokenRow, KeyCreator, NewJoinToken, Store, StoreError},
    },
};

/// The form of a join token.
pub const FORMAT: TokenFormat = TokenFormat {
    prefix: "berth_join_",
};

/// Why an operation on a join token failed.
#[derive(Debug, thiserror::Error)]
pub enum JoinTokenError {
    #[error("no join token with that id")]
    NotFound,
    /// Does not tell the reason, so that an attacker learns nothing.
    #[error("the join token is not valid")]
    Invalid,
    /// The key of the request is not sufficient.
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The service that creates and verifies join tokens.
#[derive(Clone)]
pub struct JoinTokens {
    store: Store,
    keys: ApiKeys,
}

impl JoinTokens {
    pub fn new(store: Store, keys: ApiKeys) -> JoinTokens {
        JoinTokens { store, keys }
    }

    /// Creates a token on behalf of `caller`, whose expiry it does not exceed. Its text is returned
    /// only here.
    pub async fn create(
        &self,
        caller: &Identity,
        max_uses: u32,
        expires_at: Option<DateTime<Utc>>,
        labels: BTreeMap<String, String>,
    ) -> Result<(JoinTokenRow, SecretString), JoinTokenError> {
        let expires_at = expires_at.or(caller.expires_at);
        caller.check_lifetime(expires_at)?;
        let generated = FORMAT.generate();
        let new = NewJoinToken {
            public_part: generated.public_part,
            digest: generated.digest,
            max_uses,
            labels,
            created_by: KeyCreator::from(caller),
            expires_at,
        };
        let caller = self.keys.undenied(caller)?;
        let created = self
            .store
            .create_join_token_for(&caller, new, Utc::now())
            .await?;
        Ok((created.done()?, generated.token))
    }

    /// Lists tokens, newest first, with one more than the limit if there are more.
    pub async fn list(&self, offset: u64, limit: u64) -> Result<Vec<JoinTokenRow>, JoinTokenError> {
        Ok(self.store.list_join_tokens(offset, limit).await?)
    }

    /// Deletes a token on behalf of `caller`. The hosts that have registered with it stay.
    pub async fn delete(&self, caller: &Identity, id: &JoinTokenId) -> Result<(), JoinTokenError> {
        let caller = self.keys.undenied(caller)?;
        let deleted = self
            .store
            .delete_join_token_for(&caller, id, Utc::now())
            .await?;
        match deleted.done()? {
            true => Ok(()),
            false => Err(JoinTokenError::NotFound),
        }
    }

    /// Verifies a token. Returns `Invalid` for any text that is not a token with a use.
    pub async fn authenticate(&self, presented: &str) -> Result<JoinTokenRow, JoinTokenError> {
        let public_part = FORMAT
            .public_part(presented)
            .ok_or(JoinTokenError::Invalid)?;
        let found = self.store.find_join_token_by_public_part(public_part);
        let row = found.await?.ok_or(JoinTokenError::Invalid)?;
        let is_secret = secret_token::matches(presented, &row.digest);
        let is_expired = row.expires_at.is_some_and(|expiry| expiry <= Utc::now());
        match is_secret && !is_expired && row.uses < row.max_uses {
            true => Ok(row),
            false => Err(JoinTokenError::Invalid),
        }
    }
}

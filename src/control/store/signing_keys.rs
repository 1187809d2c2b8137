//! The table of the keys that sign tokens of login flows.

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use chrono::{DateTime, Utc};
use sea_orm::{
    ActiveModelTrait, ColumnTrait, EntityTrait, PaginatorTrait, QueryFilter, QueryOrder,
    QuerySelect, TransactionTrait,
};

use super::{
    Store, StoreError, corrupt, entity::signing_key, from_millis, projects::lock_organization,
    to_millis,
};

/// The length of a public key in bytes.
pub const PUBLIC_KEY_BYTES: usize = 32;
/// The most keys that are read. There are never more than a few.
const MAX_READ: u64 = 16;

/// A key that signs tokens of login flows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SigningKeyRow {
    /// Names the key in the header of a token.
    pub kid: String,
    pub public_key: [u8; PUBLIC_KEY_BYTES],
    /// The version of the data key that opens the private key.
    pub key_version: u32,
    pub sealed_key: Vec<u8>,
    pub created_at: DateTime<Utc>,
}

impl TryFrom<signing_key::Model> for SigningKeyRow {
    type Error = StoreError;

    fn try_from(row: signing_key::Model) -> Result<Self, StoreError> {
        let decoded = BASE64_URL_SAFE_NO_PAD.decode(&row.public_key).ok();
        let public_key = decoded.and_then(|bytes| bytes.try_into().ok());
        Ok(SigningKeyRow {
            public_key: public_key.ok_or_else(|| corrupt("public key", &row.public_key))?,
            kid: row.kid,
            key_version: row
                .key_version
                .try_into()
                .map_err(|_| corrupt("key version", row.key_version))?,
            sealed_key: row.sealed_key,
            created_at: from_millis(row.created_at)?,
        })
    }
}

impl Store {
    /// Returns the keys that sign tokens of login flows, newest first.
    pub async fn signing_keys(&self) -> Result<Vec<SigningKeyRow>, StoreError> {
        let rows = signing_key::Entity::find()
            .order_by_desc(signing_key::Column::CreatedAt)
            .order_by_desc(signing_key::Column::Kid)
            .limit(MAX_READ)
            .all(&self.db)
            .await?;
        rows.into_iter().map(TryInto::try_into).collect()
    }

    /// Adds a key, unless there is one that was created after `newest_before`. Returns whether it
    /// was added.
    pub async fn add_signing_key(
        &self,
        row: &SigningKeyRow,
        newest_before: DateTime<Utc>,
    ) -> Result<bool, StoreError> {
        let insert = signing_key::Model {
            kid: row.kid.clone(),
            public_key: BASE64_URL_SAFE_NO_PAD.encode(row.public_key),
            key_version: row.key_version.into(),
            sealed_key: row.sealed_key.clone(),
            created_at: to_millis(row.created_at),
        };
        let transaction = self.writer.begin().await?;
        // Until the commit, no other process adds a key.
        lock_organization(&transaction).await?;
        let newer = signing_key::Entity::find()
            .filter(signing_key::Column::CreatedAt.gt(to_millis(newest_before)))
            .count(&transaction)
            .await?;
        if newer > 0 {
            return Ok(false);
        }
        signing_key::Entity::insert(signing_key::ActiveModel::from(insert).reset_all())
            .exec_without_returning(&transaction)
            .await?;
        transaction.commit().await?;
        Ok(true)
    }

    /// Deletes the keys that were created before `created_before`. Returns their number.
    pub async fn delete_signing_keys(
        &self,
        created_before: DateTime<Utc>,
    ) -> Result<u64, StoreError> {
        let deleted = signing_key::Entity::delete_many()
            .filter(signing_key::Column::CreatedAt.lt(to_millis(created_before)))
            .exec(&self.writer)
            .await?;
        Ok(deleted.rows_affected)
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;
    use crate::control::store::test_database::TestDatabase;

    fn key(number: u8, created_at: DateTime<Utc>) -> SigningKeyRow {
        SigningKeyRow {
            kid: format!("{number:016x}"),
            public_key: [number; PUBLIC_KEY_BYTES],
            key_version: 3,
            sealed_key: vec![number, 0, 255],
            created_at,
        }
    }

    fn time(day: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::days(day)
    }

    #[tokio::test]
    async fn signing_keys_are_added_listed_and_deleted() {
        let database = TestDatabase::create();
        let store = database.open().await;
        store.default_project("default", Utc::now()).await.unwrap();
        let (old, new) = (key(1, time(1)), key(2, time(31)));
        assert!(store.add_signing_key(&old, time(0)).await.unwrap());
        // A key of that age is there.
        assert!(!store.add_signing_key(&new, time(0)).await.unwrap());
        let first = store.signing_keys().await.unwrap();
        assert_eq!(first, std::slice::from_ref(&old));
        assert!(store.add_signing_key(&new, time(1)).await.unwrap());
        let stored = store.signing_keys().await.unwrap();
        assert_eq!(stored, [new.clone(), old]);
        assert_eq!(store.delete_signing_keys(time(1)).await.unwrap(), 0);
        assert_eq!(store.delete_signing_keys(time(2)).await.unwrap(), 1);
        assert_eq!(store.signing_keys().await.unwrap(), [new]);
    }

    #[tokio::test]
    async fn one_of_several_signing_keys_at_once_is_added() {
        let database = TestDatabase::create();
        let store = database.open().await;
        store.default_project("default", Utc::now()).await.unwrap();
        let adding = (1..=6).map(|number| {
            let (store, row) = (store.clone(), key(number, time(31)));
            async move { store.add_signing_key(&row, time(1)).await.unwrap() }
        });
        let added = futures::future::join_all(adding).await;
        assert_eq!(added.iter().filter(|is_added| **is_added).count(), 1);
        assert_eq!(store.signing_keys().await.unwrap().len(), 1);
    }

    #[tokio::test]
    async fn public_key_of_another_length_is_an_error() {
        let database = TestDatabase::create();
        let store = database.open().await;
        store.default_project("default", Utc::now()).await.unwrap();
        let row = key(1, time(1));
        assert!(store.add_signing_key(&row, time(0)).await.unwrap());
        let statement = "UPDATE signing_keys SET public_key = 'AAAA'";
        database.execute(statement).await;
        let error = store.signing_keys().await.unwrap_err();
        assert!(matches!(error, StoreError::Corrupt { .. }), "{error:?}");
    }
}

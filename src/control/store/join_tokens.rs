//! The table of join tokens.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use sea_orm::{
    ActiveModelTrait, ColumnTrait, Condition, ConnectionTrait, EntityTrait, ExprTrait, QueryFilter,
    QueryOrder, QuerySelect, sea_query::Expr,
};

use super::{
    Authorized, CallerKey, KeyCreator, Store, StoreError, corrupt, entity::join_token, from_millis,
    to_millis,
};
use crate::api::ids::JoinTokenId;

/// A row of the table of join tokens. It has the digest of the token, never the token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinTokenRow {
    pub id: JoinTokenId,
    pub public_part: String,
    pub digest: [u8; 32],
    pub max_uses: u32,
    /// At most `max_uses`.
    pub uses: u32,
    pub labels: BTreeMap<String, String>,
    pub created_by: KeyCreator,
    pub created_at: DateTime<Utc>,
    pub last_used_at: Option<DateTime<Utc>>,
    pub expires_at: Option<DateTime<Utc>>,
}

/// The values of a new row.
#[derive(Debug, Clone)]
pub struct NewJoinToken {
    pub public_part: String,
    pub digest: [u8; 32],
    pub max_uses: u32,
    pub labels: BTreeMap<String, String>,
    pub created_by: KeyCreator,
    pub expires_at: Option<DateTime<Utc>>,
}

impl TryFrom<join_token::Model> for JoinTokenRow {
    type Error = StoreError;

    fn try_from(row: join_token::Model) -> Result<Self, StoreError> {
        let count = |value: i32| u32::try_from(value).map_err(|_| corrupt("token uses", value));
        let creator = row.created_by.parse();
        Ok(JoinTokenRow {
            digest: row
                .digest
                .try_into()
                .map_err(|_| corrupt("token digest", &row.id))?,
            id: row
                .id
                .parse()
                .map_err(|_| corrupt("join token id", &row.id))?,
            public_part: row.public_part,
            max_uses: count(row.max_uses)?,
            uses: count(row.uses)?,
            labels: parse_labels(&row.labels)?,
            created_by: KeyCreator {
                id: creator.map_err(|_| corrupt("key id", &row.created_by))?,
                name: row.created_by_name,
            },
            created_at: from_millis(row.created_at)?,
            last_used_at: row.last_used_at.map(from_millis).transpose()?,
            expires_at: row.expires_at.map(from_millis).transpose()?,
        })
    }
}

impl Store {
    /// Creates a join token on behalf of `caller`.
    pub async fn create_join_token_for(
        &self,
        caller: &CallerKey,
        new: NewJoinToken,
        now: DateTime<Utc>,
    ) -> Result<Authorized<JoinTokenRow>, StoreError> {
        let row = join_token::Model {
            id: JoinTokenId::generate().to_string(),
            public_part: new.public_part,
            digest: new.digest.to_vec(),
            max_uses: i32::try_from(new.max_uses).unwrap_or(i32::MAX),
            uses: 0,
            labels: labels_text(&new.labels),
            created_by: new.created_by.id.to_string(),
            created_by_name: new.created_by.name,
            created_at: to_millis(now),
            last_used_at: None,
            expires_at: new.expires_at.map(to_millis),
        };
        let Some(transaction) = self.begin_as(caller, now).await? else {
            return Ok(Authorized::CallerInvalid);
        };
        let insert = join_token::ActiveModel::from(row.clone()).reset_all();
        join_token::Entity::insert(insert)
            .exec_without_returning(&transaction)
            .await?;
        transaction.commit().await?;
        Ok(Authorized::Done(row.try_into()?))
    }

    /// Finds the token with that public part.
    pub async fn find_join_token_by_public_part(
        &self,
        public_part: &str,
    ) -> Result<Option<JoinTokenRow>, StoreError> {
        join_token::Entity::find()
            .filter(join_token::Column::PublicPart.eq(public_part))
            .one(&self.db)
            .await?
            .map(TryInto::try_into)
            .transpose()
    }

    /// Lists tokens, newest first, with one more than the limit if there are more.
    pub async fn list_join_tokens(
        &self,
        offset: u64,
        limit: u64,
    ) -> Result<Vec<JoinTokenRow>, StoreError> {
        join_token::Entity::find()
            .order_by_desc(join_token::Column::Id)
            .offset(offset)
            .limit(limit + 1)
            .all(&self.db)
            .await?
            .into_iter()
            .map(TryInto::try_into)
            .collect()
    }

    /// Deletes a token on behalf of `caller`. Returns whether there was one.
    pub async fn delete_join_token_for(
        &self,
        caller: &CallerKey,
        id: &JoinTokenId,
        now: DateTime<Utc>,
    ) -> Result<Authorized<bool>, StoreError> {
        let Some(transaction) = self.begin_as(caller, now).await? else {
            return Ok(Authorized::CallerInvalid);
        };
        let deletion = join_token::Entity::delete_by_id(id.as_str());
        let deleted = deletion.exec(&transaction).await?.rows_affected > 0;
        transaction.commit().await?;
        self.checkpoint().await;
        Ok(Authorized::Done(deleted))
    }

    /// Deletes the tokens that expired, or were used for the last time, before `before`. Returns
    /// how many.
    pub async fn purge_join_tokens(&self, before: DateTime<Utc>) -> Result<u64, StoreError> {
        let is_used_up = Condition::all()
            .add(join_token::Column::LastUsedAt.lt(to_millis(before)))
            .add(has_uses().not());
        let purged = join_token::Entity::delete_many()
            .filter(
                Condition::any()
                    .add(join_token::Column::ExpiresAt.lt(to_millis(before)))
                    .add(is_used_up),
            )
            .exec(&self.writer)
            .await?;
        Ok(purged.rows_affected)
    }
}

/// Takes one use of a token. Returns false if the token has none, has expired or is deleted.
///
/// The update decides, so that concurrent ones never take more uses than the token has.
pub(super) async fn take_join_token_use(
    db: &impl ConnectionTrait,
    id: &JoinTokenId,
    now: DateTime<Utc>,
) -> Result<bool, StoreError> {
    let unexpired = Condition::any()
        .add(join_token::Column::ExpiresAt.is_null())
        .add(join_token::Column::ExpiresAt.gt(to_millis(now)));
    let taken = join_token::Entity::update_many()
        .col_expr(
            join_token::Column::Uses,
            Expr::col(join_token::Column::Uses).add(1),
        )
        .col_expr(join_token::Column::LastUsedAt, Expr::value(to_millis(now)))
        .filter(join_token::Column::Id.eq(id.as_str()))
        .filter(has_uses())
        .filter(unexpired)
        .exec(db)
        .await?;
    Ok(taken.rows_affected > 0)
}

fn has_uses() -> Condition {
    let uses = Expr::col(join_token::Column::Uses);
    Condition::all().add(uses.lt(Expr::col(join_token::Column::MaxUses)))
}

pub(super) fn labels_text(labels: &BTreeMap<String, String>) -> String {
    serde_json::json!(labels).to_string()
}

pub(super) fn parse_labels(text: &str) -> Result<BTreeMap<String, String>, StoreError> {
    serde_json::from_str(text).map_err(|_| corrupt("labels", text))
}

#[cfg(test)]
mod tests;

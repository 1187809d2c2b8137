//! The table of credential providers.

use sea_orm::entity::prelude::*;

#[sea_orm::model]
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "credential_providers")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    #[sea_orm(unique)]
    pub name: String,
    pub kind: String,
    /// The sealed token is bound to it.
    pub base_url: String,
    pub enabled: bool,
    /// Providers with a lower number are asked first.
    pub priority: i64,
    pub cache_ttl_seconds: i64,
    /// Grows with each change.
    pub revision: i64,
    /// The revision in which the token was sealed.
    pub token_revision: i64,
    /// The version of the organization's data key that seals the token.
    pub token_key_version: i64,
    pub sealed_token: Vec<u8>,
    pub created_at: i64,
    pub updated_at: i64,
}

impl ActiveModelBehavior for ActiveModel {}

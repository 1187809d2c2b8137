//! The table of the keys that sign tokens of login flows.

use sea_orm::entity::prelude::*;

#[sea_orm::model]
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "signing_keys")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub kid: String,
    /// The bytes of the Ed25519 key as base64url.
    pub public_key: String,
    /// The version of the data key that opens the private key.
    pub key_version: i64,
    pub sealed_key: Vec<u8>,
    pub created_at: i64,
}

impl ActiveModelBehavior for ActiveModel {}

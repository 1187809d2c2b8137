//! The table of the sealed fields of credentials.

use sea_orm::entity::prelude::*;

#[sea_orm::model]
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "credential_fields")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub credential_id: String,
    #[sea_orm(primary_key, auto_increment = false)]
    pub field: String,
    /// The revision of the credential in which the field was written.
    pub revision: i64,
    /// The version of the project's data key that seals the field.
    pub key_version: i64,
    pub sealed: Vec<u8>,
}

impl ActiveModelBehavior for ActiveModel {}

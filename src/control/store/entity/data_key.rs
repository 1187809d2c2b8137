//! The table of the keys that seal secrets, each wrapped with a key of the operator.

use sea_orm::entity::prelude::*;

#[sea_orm::model]
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "data_keys")]
pub struct Model {
    /// The project, or the organization.
    #[sea_orm(primary_key, auto_increment = false)]
    pub scope: String,
    #[sea_orm(primary_key, auto_increment = false)]
    pub version: i64,
    /// The id of the key of the operator.
    pub key_id: String,
    pub wrapped: Vec<u8>,
    pub created_at: i64,
}

impl ActiveModelBehavior for ActiveModel {}

//! The table of API keys.

use sea_orm::entity::prelude::*;

#[sea_orm::model]
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "api_keys")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    pub name: String,
    /// The part of the key that may be shown. A presented key is found by it.
    pub public_part: String,
    /// SHA-256 of the complete key.
    pub digest: Vec<u8>,
    /// NULL if the key is valid for every project.
    pub project_id: Option<String>,
    pub created_at: i64,
    pub updated_at: i64,
    pub expires_at: Option<i64>,
    /// The id of the key that created this one. NULL if it was created on the command line.
    pub created_by: Option<String>,
    /// The name that the creating key had.
    pub created_by_name: Option<String>,
    pub deleted_at: Option<i64>,
}

impl ActiveModelBehavior for ActiveModel {}

//! The table of join tokens, with which hosts register.

use sea_orm::entity::prelude::*;

#[sea_orm::model]
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "join_tokens")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    /// The part of the token that may be shown. A presented token is found by it.
    pub public_part: String,
    /// SHA-256 of the complete token.
    pub digest: Vec<u8>,
    pub max_uses: i32,
    /// At most `max_uses`.
    pub uses: i32,
    /// A JSON object of strings.
    pub labels: String,
    /// The id of the API key that created the token.
    pub created_by: String,
    /// The name that the key had.
    pub created_by_name: String,
    pub created_at: i64,
    pub last_used_at: Option<i64>,
    pub expires_at: Option<i64>,
}

impl ActiveModelBehavior for ActiveModel {}

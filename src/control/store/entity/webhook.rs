//! The table of webhooks.

use sea_orm::entity::prelude::*;

#[sea_orm::model]
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "webhooks")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    /// The sealed secret is bound to its origin.
    pub url: String,
    /// The names of the events, separated by spaces.
    pub events: String,
    /// Why it receives no events. NULL if it does.
    pub disabled_reason: Option<String>,
    /// Grows with each change.
    pub revision: i64,
    /// The revision in which the secret was sealed.
    pub secret_revision: i64,
    /// The version of the organization's data key that seals the secret.
    pub secret_key_version: i64,
    pub sealed_secret: Vec<u8>,
    /// The process that makes its deliveries now.
    pub claimed_by: Option<String>,
    /// When the claim ends if it is not extended.
    pub claimed_until: Option<i64>,
    pub created_at: i64,
    pub updated_at: i64,
}

impl ActiveModelBehavior for ActiveModel {}

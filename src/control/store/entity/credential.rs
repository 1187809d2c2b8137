//! The table of credentials. Their secrets are fields of their own.

use sea_orm::entity::prelude::*;

#[sea_orm::model]
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "credentials")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    pub project_id: String,
    /// Unique in its project.
    pub name: String,
    /// Never changes, as the sealed fields are bound to it.
    pub domain: String,
    pub sso_provider: Option<String>,
    pub totp_algorithm: Option<String>,
    pub totp_digits: Option<i64>,
    /// In seconds.
    pub totp_period: Option<i64>,
    /// Grows with each change.
    pub revision: i64,
    pub created_at: i64,
    pub updated_at: i64,
}

impl ActiveModelBehavior for ActiveModel {}

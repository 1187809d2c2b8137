//! The table of the organization, which has one row.

use sea_orm::entity::prelude::*;

#[sea_orm::model]
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "organization")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    /// NULL if projects without a limit of their own have none.
    pub default_project_max_concurrent_sessions: Option<i32>,
}

impl ActiveModelBehavior for ActiveModel {}

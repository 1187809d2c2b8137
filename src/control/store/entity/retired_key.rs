//! The table of the keys of the operator that wrap nothing any more, and never will.

use sea_orm::entity::prelude::*;

#[sea_orm::model]
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "retired_keys")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub key_id: String,
    pub retired_at: i64,
}

impl ActiveModelBehavior for ActiveModel {}

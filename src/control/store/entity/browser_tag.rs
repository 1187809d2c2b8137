//! The table of tags of browsers.

use sea_orm::entity::prelude::*;

#[sea_orm::model]
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "browser_tags")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub browser_id: String,
    #[sea_orm(primary_key, auto_increment = false)]
    pub key: String,
    pub value: String,
}

impl ActiveModelBehavior for ActiveModel {}

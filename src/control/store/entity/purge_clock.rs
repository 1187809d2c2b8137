//! The table of the purge clock, which has one row.

use sea_orm::entity::prelude::*;

#[sea_orm::model]
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "purge_clock")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: i32,
    pub wall: i64,
    pub boot_id: String,
    pub uptime_millis: i64,
    pub suspended_millis: i64,
}

impl ActiveModelBehavior for ActiveModel {}

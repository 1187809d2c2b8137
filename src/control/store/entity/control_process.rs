//! The table of the control process that serves from the database, which has one row.

use sea_orm::entity::prelude::*;

#[sea_orm::model]
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "control_process")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: i32,
    /// A random id of the latest start.
    pub run: String,
    /// The id of its state directory, which has the files that belong to the rows.
    pub state_dir: String,
    /// The host name and the path of the state directory, for messages.
    pub location: String,
    pub started_at: i64,
}

impl ActiveModelBehavior for ActiveModel {}

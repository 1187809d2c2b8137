//! The table of control processes: one row for each start.

use sea_orm::entity::prelude::*;

#[sea_orm::model]
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "control_processes")]
pub struct Model {
    /// Grows with each start. The running process holds an advisory lock with this number.
    #[sea_orm(primary_key)]
    pub id: i32,
    /// Whether no other process may serve beside it.
    pub exclusive: bool,
    /// The id of its state directory, if that has files that belong to the rows.
    pub state_dir: Option<String>,
    /// A digest of the settings that all processes have in common.
    pub common: String,
    /// The host name and the path of the state directory, for messages.
    pub location: String,
    pub started_at: i64,
}

impl ActiveModelBehavior for ActiveModel {}

//! The table of profiles that are being loaded into active browsers, which have them afterwards.
//!
//! Not a column of browsers: older programs would end such a load without knowing of it.

use sea_orm::entity::prelude::*;

#[sea_orm::model]
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "profile_attachments")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    /// Unique: a browser has one load at a time.
    pub browser_id: String,
    pub profile_id: String,
    /// Whether the browser is to save the profile.
    pub save_changes: bool,
    /// The control process that loads the profile.
    pub process_id: Option<i32>,
    pub started_at: i64,
}

impl ActiveModelBehavior for ActiveModel {}

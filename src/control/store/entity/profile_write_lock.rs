//! The table of browsers with the exclusive right to save a profile.
//!
//! Not a column of browsers: a unique one there would be a rule that older programs do not know.

use sea_orm::entity::prelude::*;

#[sea_orm::model]
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "profile_write_locks")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub profile_id: String,
    /// The row counts only until the browser has ended.
    pub browser_id: String,
}

impl ActiveModelBehavior for ActiveModel {}

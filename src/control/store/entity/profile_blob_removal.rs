//! The table of the blobs of profiles that are about to be removed.

use sea_orm::entity::prelude::*;

#[sea_orm::model]
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "profile_blob_removals")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub blob: String,
    /// The control process that removes the blob.
    pub process_id: Option<i32>,
    pub started_at: i64,
}

impl ActiveModelBehavior for ActiveModel {}

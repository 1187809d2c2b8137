//! The table of the last time step whose one-time code was used, of each secret.

use sea_orm::entity::prelude::*;

#[sea_orm::model]
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "totp_steps")]
pub struct Model {
    /// The credential, or the item of a provider.
    #[sea_orm(primary_key, auto_increment = false)]
    pub holder: String,
    /// The end of the step.
    pub ends_at: i64,
}

impl ActiveModelBehavior for ActiveModel {}

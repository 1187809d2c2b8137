//! The table of launched hosts: one row for each machine that the engine may have.

use sea_orm::entity::prelude::*;

#[sea_orm::model]
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "host_launches")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    /// A number below the limit of launched hosts. Unique, so that processes together never exceed
    /// the limit. NULL if the row was restored, when its slot may have another row.
    pub slot: Option<i32>,
    pub state: String,
    /// The id that the engine has given to the machine.
    pub engine_id: Option<String>,
    /// The host that has joined with the token.
    pub host_id: Option<String>,
    pub headless: bool,
    pub kiosk_mode: bool,
    pub width: i32,
    pub height: i32,
    pub refresh_rate: i32,
    /// The join token, from the start of the launch command on. The part that may be shown.
    pub token_public_part: Option<String>,
    /// SHA-256 of the complete token.
    pub token_digest: Option<Vec<u8>>,
    pub token_expires_at: Option<i64>,
    pub created_at: i64,
    /// When the state last changed.
    pub changed_at: i64,
}

impl ActiveModelBehavior for ActiveModel {}

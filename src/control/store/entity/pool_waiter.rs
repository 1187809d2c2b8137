//! The table of the clients that wait for a browser of a pool.

use sea_orm::entity::prelude::*;

#[sea_orm::model]
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "pool_waiters")]
pub struct Model {
    /// Grows with each waiter. The lowest one of a pool is served first.
    #[sea_orm(primary_key)]
    pub ticket: i64,
    pub pool_id: String,
    /// The control process that the client is connected to.
    pub process_id: Option<i32>,
}

impl ActiveModelBehavior for ActiveModel {}

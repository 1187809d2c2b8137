//! The table of the states of login flows, as clients see them: the events of their streams.

use sea_orm::entity::prelude::*;

#[sea_orm::model]
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "auth_flow_states")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub flow_id: String,
    /// Grows with each state of the flow.
    #[sea_orm(primary_key, auto_increment = false)]
    pub number: i64,
    /// The state as JSON, without URLs for the person.
    pub state: String,
}

impl ActiveModelBehavior for ActiveModel {}

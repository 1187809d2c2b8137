//! Adds to hosts whether the last session of a retiring one is settled, which any process may do.

use sea_orm_migration::{prelude::*, schema::*};

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[derive(DeriveIden)]
enum Hosts {
    Table,
    Settled,
}

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let table = Table::alter()
            .table(Hosts::Table)
            .add_column(boolean(Hosts::Settled).default(false))
            .to_owned();
        manager.alter_table(table).await
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let table = Table::alter()
            .table(Hosts::Table)
            .drop_column(Hosts::Settled)
            .to_owned();
        manager.alter_table(table).await
    }
}

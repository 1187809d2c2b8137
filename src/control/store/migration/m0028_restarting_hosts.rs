//! Adds to hosts whether their agents take no session until they have started again.

use sea_orm_migration::{prelude::*, schema::*};

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[derive(DeriveIden)]
enum Hosts {
    Table,
    Restarting,
}

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let table = Table::alter()
            .table(Hosts::Table)
            .add_column(boolean(Hosts::Restarting).default(false))
            .to_owned();
        manager.alter_table(table).await
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let table = Table::alter()
            .table(Hosts::Table)
            .drop_column(Hosts::Restarting)
            .to_owned();
        manager.alter_table(table).await
    }
}

//! Creates the table of the control process that serves from the database.

use sea_orm_migration::{prelude::*, schema::*};

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[derive(DeriveIden)]
enum ControlProcess {
    Table,
    Id,
    Run,
    StateDir,
    Location,
    StartedAt,
}

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let table = Table::create()
            .table(ControlProcess::Table)
            .col(integer(ControlProcess::Id).primary_key())
            .col(text(ControlProcess::Run))
            .col(text(ControlProcess::StateDir))
            .col(text(ControlProcess::Location))
            .col(big_integer(ControlProcess::StartedAt))
            .to_owned();
        manager.create_table(table).await
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let table = Table::drop().table(ControlProcess::Table).to_owned();
        manager.drop_table(table).await
    }
}

//! Creates the table of the purge clock.

use sea_orm_migration::{prelude::*, schema::*};

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[derive(DeriveIden)]
enum PurgeClock {
    Table,
    Id,
    Wall,
    BootId,
    UptimeMillis,
    SuspendedMillis,
}

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let table = Table::create()
            .table(PurgeClock::Table)
            .col(integer(PurgeClock::Id).primary_key())
            .col(big_integer(PurgeClock::Wall))
            .col(text(PurgeClock::BootId))
            .col(big_integer(PurgeClock::UptimeMillis))
            .col(big_integer(PurgeClock::SuspendedMillis))
            .to_owned();
        manager.create_table(table).await
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let table = Table::drop().table(PurgeClock::Table).to_owned();
        manager.drop_table(table).await
    }
}

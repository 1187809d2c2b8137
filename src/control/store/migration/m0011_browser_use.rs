//! Adds to browsers the time when they were last in use, which outlives the process of control.

use sea_orm_migration::{prelude::*, schema::*};

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[derive(DeriveIden)]
enum Browsers {
    Table,
    UsedAt,
}

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let table = Table::alter()
            .table(Browsers::Table)
            .add_column(big_integer_null(Browsers::UsedAt))
            .to_owned();
        manager.alter_table(table).await
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let table = Table::alter()
            .table(Browsers::Table)
            .drop_column(Browsers::UsedAt)
            .to_owned();
        manager.alter_table(table).await
    }
}

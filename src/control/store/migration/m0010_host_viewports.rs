//! Adds to hosts the largest viewport, by which they are selected.

use sea_orm_migration::{prelude::*, schema::*};

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[derive(DeriveIden)]
enum Hosts {
    Table,
    MaxWidth,
    MaxHeight,
}

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        // SQLite adds one column per statement.
        for column in [
            integer_null(Hosts::MaxWidth),
            integer_null(Hosts::MaxHeight),
        ] {
            let table = Table::alter()
                .table(Hosts::Table)
                .add_column(column)
                .to_owned();
            manager.alter_table(table).await?;
        }
        Ok(())
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        for column in [Hosts::MaxWidth, Hosts::MaxHeight] {
            let table = Table::alter()
                .table(Hosts::Table)
                .drop_column(column)
                .to_owned();
            manager.alter_table(table).await?;
        }
        Ok(())
    }
}

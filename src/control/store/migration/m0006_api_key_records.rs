//! Adds to API keys who created them, and when they were deleted.

use sea_orm_migration::{prelude::*, schema::*};

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[derive(DeriveIden)]
enum ApiKeys {
    Table,
    CreatedBy,
    CreatedByName,
    DeletedAt,
}

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        // SQLite adds one column per statement.
        for column in [
            text_null(ApiKeys::CreatedBy),
            text_null(ApiKeys::CreatedByName),
            big_integer_null(ApiKeys::DeletedAt),
        ] {
            let table = Table::alter()
                .table(ApiKeys::Table)
                .add_column(column)
                .to_owned();
            manager.alter_table(table).await?;
        }
        Ok(())
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        for column in [
            ApiKeys::CreatedBy,
            ApiKeys::CreatedByName,
            ApiKeys::DeletedAt,
        ] {
            let table = Table::alter()
                .table(ApiKeys::Table)
                .drop_column(column)
                .to_owned();
            manager.alter_table(table).await?;
        }
        Ok(())
    }
}

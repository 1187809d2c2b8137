//! Creates the tables of the keys that seal stored secrets.

use sea_orm_migration::{prelude::*, schema::*};

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[derive(DeriveIden)]
enum DataKeys {
    Table,
    Scope,
    Version,
    KeyId,
    Wrapped,
    CreatedAt,
}

#[derive(DeriveIden)]
enum RetiredKeys {
    Table,
    KeyId,
    RetiredAt,
}

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let data_keys = Table::create()
            .table(DataKeys::Table)
            .col(text(DataKeys::Scope))
            .col(big_integer(DataKeys::Version))
            .col(text(DataKeys::KeyId))
            .col(blob(DataKeys::Wrapped))
            .col(big_integer(DataKeys::CreatedAt))
            .primary_key(Index::create().col(DataKeys::Scope).col(DataKeys::Version))
            .to_owned();
        manager.create_table(data_keys).await?;
        let by_key = Index::create()
            .name("data_keys_by_key")
            .table(DataKeys::Table)
            .col(DataKeys::KeyId)
            .to_owned();
        manager.create_index(by_key).await?;
        let retired = Table::create()
            .table(RetiredKeys::Table)
            .col(text(RetiredKeys::KeyId).primary_key())
            .col(big_integer(RetiredKeys::RetiredAt))
            .to_owned();
        manager.create_table(retired).await
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        for table in [
            Table::drop().table(RetiredKeys::Table).to_owned(),
            Table::drop().table(DataKeys::Table).to_owned(),
        ] {
            manager.drop_table(table).await?;
        }
        Ok(())
    }
}

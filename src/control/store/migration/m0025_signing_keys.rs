//! Creates the table of the keys that sign tokens of login flows.

use sea_orm_migration::{prelude::*, schema::*};

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[derive(DeriveIden)]
enum SigningKeys {
    Table,
    Kid,
    PublicKey,
    KeyVersion,
    SealedKey,
    CreatedAt,
}

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let table = Table::create()
            .table(SigningKeys::Table)
            .col(text(SigningKeys::Kid).primary_key())
            .col(text(SigningKeys::PublicKey))
            .col(big_integer(SigningKeys::KeyVersion))
            .col(blob(SigningKeys::SealedKey))
            .col(big_integer(SigningKeys::CreatedAt))
            .to_owned();
        manager.create_table(table).await
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let table = Table::drop().table(SigningKeys::Table).to_owned();
        manager.drop_table(table).await
    }
}

//! Creates the table of join tokens.

use sea_orm_migration::{prelude::*, schema::*};

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[derive(DeriveIden)]
enum JoinTokens {
    Table,
    Id,
    PublicPart,
    Digest,
    MaxUses,
    Uses,
    Labels,
    CreatedBy,
    CreatedByName,
    CreatedAt,
    LastUsedAt,
    ExpiresAt,
}

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let table = Table::create()
            .table(JoinTokens::Table)
            .col(text(JoinTokens::Id).primary_key())
            .col(text(JoinTokens::PublicPart).unique_key())
            .col(blob(JoinTokens::Digest))
            .col(integer(JoinTokens::MaxUses))
            .col(integer(JoinTokens::Uses))
            .col(text(JoinTokens::Labels))
            // No foreign key: the row of the key may be purged before that of the token.
            .col(text(JoinTokens::CreatedBy))
            .col(text(JoinTokens::CreatedByName))
            .col(big_integer(JoinTokens::CreatedAt))
            .col(big_integer_null(JoinTokens::LastUsedAt))
            .col(big_integer_null(JoinTokens::ExpiresAt))
            .to_owned();
        manager.create_table(table).await
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let table = Table::drop().table(JoinTokens::Table).to_owned();
        manager.drop_table(table).await
    }
}

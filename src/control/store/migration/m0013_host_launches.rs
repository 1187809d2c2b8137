//! Creates the table of launched hosts.

use sea_orm_migration::{prelude::*, schema::*};

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[derive(DeriveIden)]
enum HostLaunches {
    Table,
    Id,
    Slot,
    State,
    EngineId,
    HostId,
    Headless,
    KioskMode,
    Width,
    Height,
    RefreshRate,
    TokenPublicPart,
    TokenDigest,
    TokenExpiresAt,
    CreatedAt,
    ChangedAt,
}

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let table = Table::create()
            .table(HostLaunches::Table)
            .col(text(HostLaunches::Id).primary_key())
            .col(integer_null(HostLaunches::Slot).unique_key())
            .col(text(HostLaunches::State))
            .col(text_null(HostLaunches::EngineId))
            // No foreign key: the row of a host that is gone may be purged first.
            .col(text_null(HostLaunches::HostId))
            .col(boolean(HostLaunches::Headless))
            .col(boolean(HostLaunches::KioskMode))
            .col(integer(HostLaunches::Width))
            .col(integer(HostLaunches::Height))
            .col(integer(HostLaunches::RefreshRate))
            .col(text_null(HostLaunches::TokenPublicPart).unique_key())
            .col(blob_null(HostLaunches::TokenDigest))
            .col(big_integer_null(HostLaunches::TokenExpiresAt))
            .col(big_integer(HostLaunches::CreatedAt))
            .col(big_integer(HostLaunches::ChangedAt))
            .to_owned();
        manager.create_table(table).await
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let table = Table::drop().table(HostLaunches::Table).to_owned();
        manager.drop_table(table).await
    }
}

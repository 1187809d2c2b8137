//! Creates the table of profiles that are being loaded into active browsers.

use sea_orm_migration::{prelude::*, schema::*};

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[derive(DeriveIden)]
enum ProfileAttachments {
    Table,
    Id,
    BrowserId,
    ProfileId,
    SaveChanges,
    ProcessId,
    StartedAt,
}

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let attachments = Table::create()
            .table(ProfileAttachments::Table)
            .col(text(ProfileAttachments::Id).primary_key())
            .col(text(ProfileAttachments::BrowserId).unique_key())
            .col(text(ProfileAttachments::ProfileId))
            .col(boolean(ProfileAttachments::SaveChanges))
            .col(integer_null(ProfileAttachments::ProcessId))
            .col(big_integer(ProfileAttachments::StartedAt))
            .to_owned();
        manager.create_table(attachments).await
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let table = Table::drop().table(ProfileAttachments::Table).to_owned();
        manager.drop_table(table).await
    }
}

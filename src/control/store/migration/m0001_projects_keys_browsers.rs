//! Creates the tables of projects, API keys, browsers and tags.

use sea_orm_migration::{prelude::*, schema::*};

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[derive(DeriveIden)]
enum Projects {
    Table,
    Id,
    Name,
    LiveName,
    Status,
    DefaultMarker,
    CreatedAt,
    UpdatedAt,
    DeletedAt,
}

#[derive(DeriveIden)]
enum ApiKeys {
    Table,
    Id,
    Name,
    PublicPart,
    Digest,
    ProjectId,
    CreatedAt,
    UpdatedAt,
    ExpiresAt,
}

#[derive(DeriveIden)]
enum Browsers {
    Table,
    Id,
    ProjectId,
    Name,
    LiveName,
    State,
    EndReason,
    Headless,
    KioskMode,
    TimeoutSeconds,
    ViewportWidth,
    ViewportHeight,
    RefreshRate,
    StartUrl,
    IdempotencyKey,
    RequestDigest,
    CreatedAt,
    DeletedAt,
}

#[derive(DeriveIden)]
enum BrowserTags {
    Table,
    BrowserId,
    Key,
    Value,
}

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    #[expect(
        clippy::too_many_lines,
        reason = "one statement per table, read as a list"
    )]
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        manager
            .create_table(
                Table::create()
                    .table(Projects::Table)
                    .col(text(Projects::Id).primary_key())
                    .col(text(Projects::Name))
                    .col(text_null(Projects::LiveName).unique_key())
                    .col(text(Projects::Status))
                    .col(integer_null(Projects::DefaultMarker).unique_key())
                    .col(big_integer(Projects::CreatedAt))
                    .col(big_integer(Projects::UpdatedAt))
                    .col(big_integer_null(Projects::DeletedAt))
                    .to_owned(),
            )
            .await?;
        manager
            .create_table(
                Table::create()
                    .table(ApiKeys::Table)
                    .col(text(ApiKeys::Id).primary_key())
                    .col(text(ApiKeys::Name))
                    .col(text(ApiKeys::PublicPart).unique_key())
                    .col(blob(ApiKeys::Digest))
                    .col(text_null(ApiKeys::ProjectId))
                    .col(big_integer(ApiKeys::CreatedAt))
                    .col(big_integer(ApiKeys::UpdatedAt))
                    .col(big_integer_null(ApiKeys::ExpiresAt))
                    .foreign_key(
                        ForeignKey::create()
                            .from(ApiKeys::Table, ApiKeys::ProjectId)
                            .to(Projects::Table, Projects::Id)
                            .on_delete(ForeignKeyAction::Cascade),
                    )
                    .to_owned(),
            )
            .await?;
        manager
            .create_table(
                Table::create()
                    .table(Browsers::Table)
                    .col(text(Browsers::Id).primary_key())
                    .col(text(Browsers::ProjectId))
                    .col(text_null(Browsers::Name))
                    .col(text_null(Browsers::LiveName))
                    .col(text(Browsers::State))
                    .col(text_null(Browsers::EndReason))
                    .col(boolean(Browsers::Headless))
                    .col(boolean(Browsers::KioskMode))
                    .col(big_integer(Browsers::TimeoutSeconds))
                    .col(integer(Browsers::ViewportWidth))
                    .col(integer(Browsers::ViewportHeight))
                    .col(integer(Browsers::RefreshRate))
                    .col(text_null(Browsers::StartUrl))
                    .col(text_null(Browsers::IdempotencyKey))
                    .col(blob_null(Browsers::RequestDigest))
                    .col(big_integer(Browsers::CreatedAt))
                    .col(big_integer_null(Browsers::DeletedAt))
                    .foreign_key(
                        ForeignKey::create()
                            .from(Browsers::Table, Browsers::ProjectId)
                            .to(Projects::Table, Projects::Id)
                            .on_delete(ForeignKeyAction::Restrict),
                    )
                    .to_owned(),
            )
            .await?;
        for index in [
            Index::create()
                .name("browsers_live_name")
                .table(Browsers::Table)
                .col(Browsers::ProjectId)
                .col(Browsers::LiveName)
                .unique()
                .to_owned(),
            Index::create()
                .name("browsers_idempotency_key")
                .table(Browsers::Table)
                .col(Browsers::ProjectId)
                .col(Browsers::IdempotencyKey)
                .unique()
                .to_owned(),
            Index::create()
                .name("browsers_listing")
                .table(Browsers::Table)
                .col(Browsers::ProjectId)
                .col(Browsers::State)
                .col(Browsers::Id)
                .to_owned(),
        ] {
            manager.create_index(index).await?;
        }
        manager
            .create_table(
                Table::create()
                    .table(BrowserTags::Table)
                    .col(text(BrowserTags::BrowserId))
                    .col(text(BrowserTags::Key))
                    .col(text(BrowserTags::Value))
                    .primary_key(
                        Index::create()
                            .col(BrowserTags::BrowserId)
                            .col(BrowserTags::Key),
                    )
                    .foreign_key(
                        ForeignKey::create()
                            .from(BrowserTags::Table, BrowserTags::BrowserId)
                            .to(Browsers::Table, Browsers::Id)
                            .on_delete(ForeignKeyAction::Cascade),
                    )
                    .to_owned(),
            )
            .await
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        for table in [
            Table::drop().table(BrowserTags::Table).to_owned(),
            Table::drop().table(Browsers::Table).to_owned(),
            Table::drop().table(ApiKeys::Table).to_owned(),
            Table::drop().table(Projects::Table).to_owned(),
        ] {
            manager.drop_table(table).await?;
        }
        Ok(())
    }
}

//! Creates the table of replays.

use sea_orm_migration::{prelude::*, schema::*};

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[derive(DeriveIden)]
enum Projects {
    Table,
    Id,
}

#[derive(DeriveIden)]
enum Replays {
    Table,
    Id,
    ProjectId,
    BrowserId,
    State,
    EndReason,
    DurationMillis,
    SizeBytes,
    StartedAt,
    FinishedAt,
}

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        manager
            .create_table(
                Table::create()
                    .table(Replays::Table)
                    .col(text(Replays::Id).primary_key())
                    .col(text(Replays::ProjectId))
                    // No foreign key: a replay may be retained for longer than its browser's row.
                    .col(text(Replays::BrowserId))
                    .col(text(Replays::State))
                    .col(text_null(Replays::EndReason))
                    .col(big_integer_null(Replays::DurationMillis))
                    .col(big_integer_null(Replays::SizeBytes))
                    .col(big_integer(Replays::StartedAt))
                    .col(big_integer_null(Replays::FinishedAt))
                    .foreign_key(
                        ForeignKey::create()
                            .from(Replays::Table, Replays::ProjectId)
                            .to(Projects::Table, Projects::Id)
                            .on_delete(ForeignKeyAction::Restrict),
                    )
                    .to_owned(),
            )
            .await?;
        for index in [
            Index::create()
                .name("replays_of_a_browser")
                .table(Replays::Table)
                .col(Replays::BrowserId)
                .col(Replays::Id)
                .to_owned(),
            Index::create()
                .name("replays_by_state")
                .table(Replays::Table)
                .col(Replays::State)
                .col(Replays::FinishedAt)
                .to_owned(),
        ] {
            manager.create_index(index).await?;
        }
        Ok(())
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let table = Table::drop().table(Replays::Table).to_owned();
        manager.drop_table(table).await
    }
}

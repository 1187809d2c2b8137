//! Creates the table of hosts, and adds to browsers the host that they run on.

use sea_orm_migration::{prelude::*, schema::*};

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[derive(DeriveIden)]
enum Hosts {
    Table,
    Id,
    Fleet,
    State,
    Generation,
    SessionId,
    Draining,
    Headless,
    KioskMode,
    Address,
    BootId,
    Version,
    Labels,
    Capabilities,
    PublicKey,
    HeartbeatAt,
    CreatedAt,
    ChangedAt,
}

#[derive(DeriveIden)]
enum Browsers {
    Table,
    HostId,
    HostGeneration,
}

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        // No foreign key to the browser: it reserves a host before its own row is complete.
        let table = Table::create()
            .table(Hosts::Table)
            .col(text(Hosts::Id).primary_key())
            .col(text(Hosts::Fleet))
            .col(text(Hosts::State))
            .col(big_integer(Hosts::Generation))
            .col(text_null(Hosts::SessionId).unique_key())
            .col(boolean(Hosts::Draining))
            .col(boolean(Hosts::Headless))
            .col(boolean(Hosts::KioskMode))
            .col(text_null(Hosts::Address))
            .col(text_null(Hosts::BootId))
            .col(text_null(Hosts::Version))
            .col(text_null(Hosts::Labels))
            .col(text_null(Hosts::Capabilities))
            .col(blob_null(Hosts::PublicKey))
            .col(big_integer_null(Hosts::HeartbeatAt))
            .col(big_integer(Hosts::CreatedAt))
            .col(big_integer(Hosts::ChangedAt))
            .to_owned();
        manager.create_table(table).await?;
        let by_state = Index::create()
            .name("hosts_by_state")
            .table(Hosts::Table)
            .col(Hosts::Fleet)
            .col(Hosts::State)
            .col(Hosts::ChangedAt)
            .to_owned();
        manager.create_index(by_state).await?;
        let by_public_key = Index::create()
            .name("hosts_public_key")
            .table(Hosts::Table)
            .col(Hosts::PublicKey)
            .unique()
            .to_owned();
        manager.create_index(by_public_key).await?;
        // SQLite adds one column per statement.
        for column in [
            text_null(Browsers::HostId),
            big_integer_null(Browsers::HostGeneration),
        ] {
            let table = Table::alter()
                .table(Browsers::Table)
                .add_column(column)
                .to_owned();
            manager.alter_table(table).await?;
        }
        Ok(())
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        for column in [Browsers::HostId, Browsers::HostGeneration] {
            let table = Table::alter()
                .table(Browsers::Table)
                .drop_column(column)
                .to_owned();
            manager.alter_table(table).await?;
        }
        let table = Table::drop().table(Hosts::Table).to_owned();
        manager.drop_table(table).await
    }
}

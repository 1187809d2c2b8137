//! Creates the table of the control processes that serve from the database, and records which of
//! them is changing a browser or a host.
//!
//! The table of the only process stays, because processes of the version before may still read it.

use sea_orm_migration::{prelude::*, schema::*};

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[derive(DeriveIden)]
enum ControlProcesses {
    Table,
    Id,
    Exclusive,
    StateDir,
    Common,
    Location,
    StartedAt,
}

#[derive(DeriveIden)]
enum Browsers {
    Table,
    ProcessId,
}

#[derive(DeriveIden)]
enum Hosts {
    Table,
    ProcessId,
}

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let table = Table::create()
            .table(ControlProcesses::Table)
            .col(pk_auto(ControlProcesses::Id))
            .col(boolean(ControlProcesses::Exclusive))
            .col(text_null(ControlProcesses::StateDir))
            .col(text(ControlProcesses::Common))
            .col(text(ControlProcesses::Location))
            .col(big_integer(ControlProcesses::StartedAt))
            .to_owned();
        manager.create_table(table).await?;
        // The last process knows which state directory has the files.
        let copy = "INSERT INTO control_processes \
             (exclusive, state_dir, common, location, started_at) \
             SELECT TRUE, state_dir, '', location, started_at FROM control_process";
        manager.get_connection().execute_unprepared(copy).await?;
        let browsers = Table::alter()
            .table(Browsers::Table)
            .add_column(integer_null(Browsers::ProcessId))
            .to_owned();
        manager.alter_table(browsers).await?;
        let hosts = Table::alter()
            .table(Hosts::Table)
            .add_column(integer_null(Hosts::ProcessId))
            .to_owned();
        manager.alter_table(hosts).await
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let hosts = Table::alter()
            .table(Hosts::Table)
            .drop_column(Hosts::ProcessId)
            .to_owned();
        manager.alter_table(hosts).await?;
        let browsers = Table::alter()
            .table(Browsers::Table)
            .drop_column(Browsers::ProcessId)
            .to_owned();
        manager.alter_table(browsers).await?;
        let table = Table::drop().table(ControlProcesses::Table).to_owned();
        manager.drop_table(table).await
    }
}

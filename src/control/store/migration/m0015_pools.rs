//! Creates the tables of pools, of their idle browsers and of the clients that wait for one. Adds
//! to hosts the pool that they are reserved for, and to browsers the pool that they were leased
//! from.

use sea_orm_migration::{prelude::*, schema::*};

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[derive(DeriveIden)]
enum Pools {
    Table,
    Id,
    ProjectId,
    Name,
    Size,
    FillRatePerMinute,
    TimeoutSeconds,
    MaxAgeSeconds,
    MaxLeases,
    Config,
    ConfigHash,
    CreatedAt,
    UpdatedAt,
}

#[derive(DeriveIden)]
enum PoolBrowsers {
    Table,
    Id,
    PoolId,
    State,
    ConfigHash,
    HostId,
    HostGeneration,
    ProcessId,
    ChangedAt,
}

#[derive(DeriveIden)]
enum PoolWaiters {
    Table,
    Ticket,
    PoolId,
    ProcessId,
}

#[derive(DeriveIden)]
enum Hosts {
    Table,
    PoolId,
    LeaseCount,
}

#[derive(DeriveIden)]
enum Browsers {
    Table,
    PoolId,
    PoolName,
    State,
}

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        create_pools(manager).await?;
        create_pool_browsers(manager).await?;
        create_pool_waiters(manager).await?;
        // No foreign keys: what a pool had is released after its row is deleted.
        for column in [
            text_null(Hosts::PoolId),
            big_integer(Hosts::LeaseCount).default(0).to_owned(),
        ] {
            let table = Table::alter()
                .table(Hosts::Table)
                .add_column(column)
                .to_owned();
            manager.alter_table(table).await?;
        }
        for column in [text_null(Browsers::PoolId), text_null(Browsers::PoolName)] {
            let table = Table::alter()
                .table(Browsers::Table)
                .add_column(column)
                .to_owned();
            manager.alter_table(table).await?;
        }
        let hosts = Index::create()
            .name("hosts_by_pool")
            .table(Hosts::Table)
            .col(Hosts::PoolId)
            .to_owned();
        manager.create_index(hosts).await?;
        let browsers = Index::create()
            .name("browsers_by_pool")
            .table(Browsers::Table)
            .col(Browsers::PoolId)
            .col(Browsers::State)
            .to_owned();
        manager.create_index(browsers).await
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        for (index, table) in [
            ("browsers_by_pool", Browsers::Table.into_iden()),
            ("hosts_by_pool", Hosts::Table.into_iden()),
        ] {
            let index = Index::drop().name(index).table(table).to_owned();
            manager.drop_index(index).await?;
        }
        for column in [Browsers::PoolName.into_iden(), Browsers::PoolId.into_iden()] {
            let table = Table::alter()
                .table(Browsers::Table)
                .drop_column(column)
                .to_owned();
            manager.alter_table(table).await?;
        }
        for column in [Hosts::LeaseCount.into_iden(), Hosts::PoolId.into_iden()] {
            let table = Table::alter()
                .table(Hosts::Table)
                .drop_column(column)
                .to_owned();
            manager.alter_table(table).await?;
        }
        for table in [
            PoolWaiters::Table.into_iden(),
            PoolBrowsers::Table.into_iden(),
            Pools::Table.into_iden(),
        ] {
            let table = Table::drop().table(table).to_owned();
            manager.drop_table(table).await?;
        }
        Ok(())
    }
}

async fn create_pools(manager: &SchemaManager<'_>) -> Result<(), DbErr> {
    let table = Table::create()
        .table(Pools::Table)
        .col(text(Pools::Id).primary_key())
        // No foreign key: programs before this one delete projects without regard to pools.
        .col(text(Pools::ProjectId))
        .col(text_null(Pools::Name))
        .col(integer(Pools::Size))
        .col(integer(Pools::FillRatePerMinute))
        .col(big_integer(Pools::TimeoutSeconds))
        .col(big_integer_null(Pools::MaxAgeSeconds))
        .col(big_integer_null(Pools::MaxLeases))
        // JSON: what a browser of the pool is started with.
        .col(text(Pools::Config))
        .col(text(Pools::ConfigHash))
        .col(big_integer(Pools::CreatedAt))
        .col(big_integer(Pools::UpdatedAt))
        .to_owned();
    manager.create_table(table).await?;
    let names = Index::create()
        .name("pools_name")
        .table(Pools::Table)
        .col(Pools::ProjectId)
        .col(Pools::Name)
        .unique()
        .to_owned();
    manager.create_index(names).await
}

async fn create_pool_browsers(manager: &SchemaManager<'_>) -> Result<(), DbErr> {
    let table = Table::create()
        .table(PoolBrowsers::Table)
        .col(text(PoolBrowsers::Id).primary_key())
        .col(text(PoolBrowsers::PoolId))
        .col(text(PoolBrowsers::State))
        .col(text(PoolBrowsers::ConfigHash))
        .col(text_null(PoolBrowsers::HostId))
        .col(big_integer_null(PoolBrowsers::HostGeneration))
        .col(integer_null(PoolBrowsers::ProcessId))
        .col(big_integer(PoolBrowsers::ChangedAt))
        .to_owned();
    manager.create_table(table).await?;
    let by_pool = Index::create()
        .name("pool_browsers_by_pool")
        .table(PoolBrowsers::Table)
        .col(PoolBrowsers::PoolId)
        .col(PoolBrowsers::State)
        .col(PoolBrowsers::ChangedAt)
        .to_owned();
    manager.create_index(by_pool).await
}

async fn create_pool_waiters(manager: &SchemaManager<'_>) -> Result<(), DbErr> {
    let table = Table::create()
        .table(PoolWaiters::Table)
        .col(big_pk_auto(PoolWaiters::Ticket))
        .col(text(PoolWaiters::PoolId))
        .col(integer_null(PoolWaiters::ProcessId))
        .to_owned();
    manager.create_table(table).await?;
    let by_pool = Index::create()
        .name("pool_waiters_by_pool")
        .table(PoolWaiters::Table)
        .col(PoolWaiters::PoolId)
        .col(PoolWaiters::Ticket)
        .to_owned();
    manager.create_index(by_pool).await
}

//! Adds to pools a profile and a count of flushes, and to their browsers the version of the profile
//! and the count with which they were started. Adds the index of a project's list of pools.

use sea_orm_migration::{prelude::*, schema::*};

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[derive(DeriveIden)]
enum Pools {
    Table,
    Id,
    ProjectId,
    ProfileId,
    RefreshOnProfileUpdate,
    FlushCount,
}

#[derive(DeriveIden)]
enum PoolBrowsers {
    Table,
    ProfileVersion,
    FlushCount,
}

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        // SQLite adds one column at a time.
        for column in [
            text_null(Pools::ProfileId),
            boolean(Pools::RefreshOnProfileUpdate).default(false).take(),
            big_integer(Pools::FlushCount).default(0).take(),
        ] {
            let table = Table::alter()
                .table(Pools::Table)
                .add_column(column)
                .to_owned();
            manager.alter_table(table).await?;
        }
        for column in [PoolBrowsers::ProfileVersion, PoolBrowsers::FlushCount] {
            let table = Table::alter()
                .table(PoolBrowsers::Table)
                .add_column(big_integer(column).default(0))
                .to_owned();
            manager.alter_table(table).await?;
        }
        let by_profile = Index::create()
            .name("pools_by_profile")
            .table(Pools::Table)
            .col(Pools::ProfileId)
            .to_owned();
        manager.create_index(by_profile).await?;
        let of_a_project = Index::create()
            .name("pools_of_a_project")
            .table(Pools::Table)
            .col(Pools::ProjectId)
            .col(Pools::Id)
            .to_owned();
        manager.create_index(of_a_project).await
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        for index in ["pools_of_a_project", "pools_by_profile"] {
            let index = Index::drop().name(index).table(Pools::Table).to_owned();
            manager.drop_index(index).await?;
        }
        for column in [PoolBrowsers::FlushCount, PoolBrowsers::ProfileVersion] {
            let table = Table::alter()
                .table(PoolBrowsers::Table)
                .drop_column(column)
                .to_owned();
            manager.alter_table(table).await?;
        }
        for column in [
            Pools::FlushCount,
            Pools::RefreshOnProfileUpdate,
            Pools::ProfileId,
        ] {
            let table = Table::alter()
                .table(Pools::Table)
                .drop_column(column)
                .to_owned();
            manager.alter_table(table).await?;
        }
        Ok(())
    }
}

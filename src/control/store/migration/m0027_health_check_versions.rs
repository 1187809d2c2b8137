//! Marks the versions of profiles that health checks have saved.

use sea_orm_migration::{prelude::*, schema::boolean};

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[derive(DeriveIden)]
enum ProfileVersions {
    Table,
    IsHealthCheck,
}

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let column = boolean(ProfileVersions::IsHealthCheck)
            .default(false)
            .take();
        let table = Table::alter()
            .table(ProfileVersions::Table)
            .add_column(column)
            .to_owned();
        manager.alter_table(table).await
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let table = Table::alter()
            .table(ProfileVersions::Table)
            .drop_column(ProfileVersions::IsHealthCheck)
            .to_owned();
        manager.alter_table(table).await
    }
}

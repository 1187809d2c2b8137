//! Creates the table of the organization with its row, and adds limits to projects.

use sea_orm_migration::{prelude::*, schema::*};

use crate::api::ids::OrganizationId;

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[derive(DeriveIden)]
enum Organization {
    Table,
    Id,
    DefaultProjectMaxConcurrentSessions,
}

#[derive(DeriveIden)]
enum Projects {
    Table,
    MaxConcurrentSessions,
    MaxConcurrentInvocations,
}

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let organization = Table::create()
            .table(Organization::Table)
            .col(text(Organization::Id).primary_key())
            .col(integer_null(
                Organization::DefaultProjectMaxConcurrentSessions,
            ))
            .to_owned();
        manager.create_table(organization).await?;
        let row = Query::insert()
            .into_table(Organization::Table)
            .columns([Organization::Id])
            .values_panic([OrganizationId::generate().as_str().into()])
            .to_owned();
        manager.execute(row).await?;
        // SQLite adds one column per statement.
        for column in [
            integer_null(Projects::MaxConcurrentSessions),
            integer_null(Projects::MaxConcurrentInvocations),
        ] {
            let table = Table::alter()
                .table(Projects::Table)
                .add_column(column)
                .to_owned();
            manager.alter_table(table).await?;
        }
        Ok(())
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        for column in [
            Projects::MaxConcurrentSessions,
            Projects::MaxConcurrentInvocations,
        ] {
            let table = Table::alter()
                .table(Projects::Table)
                .drop_column(column)
                .to_owned();
            manager.alter_table(table).await?;
        }
        let table = Table::drop().table(Organization::Table).to_owned();
        manager.drop_table(table).await
    }
}

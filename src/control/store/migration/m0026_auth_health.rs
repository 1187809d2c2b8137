//! Adds the schedule of the health checks of auth connections.

use sea_orm_migration::{prelude::*, schema::*};

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[derive(DeriveIden, Clone, Copy)]
enum AuthConnections {
    Table,
    CheckAt,
    FailedChecks,
    ReauthAt,
    ReauthFailures,
    ReauthFailingSince,
    ReauthStopped,
    SessionCookie,
    SessionExpiresAt,
    WarnAt,
    HealthRevision,
}

const INDEXES: [(&str, AuthConnections); 3] = [
    ("auth_connections_by_check", AuthConnections::CheckAt),
    ("auth_connections_by_reauth", AuthConnections::ReauthAt),
    ("auth_connections_by_warning", AuthConnections::WarnAt),
];

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        // SQLite adds one column per statement.
        for column in columns() {
            let table = Table::alter()
                .table(AuthConnections::Table)
                .add_column(column)
                .to_owned();
            manager.alter_table(table).await?;
        }
        // Those that are logged in are checked soon.
        let check =
            "UPDATE auth_connections SET check_at = last_auth_at WHERE last_auth_at IS NOT NULL";
        manager.get_connection().execute_unprepared(check).await?;
        for (name, column) in INDEXES {
            let index = Index::create()
                .name(name)
                .table(AuthConnections::Table)
                .col(column)
                .to_owned();
            manager.create_index(index).await?;
        }
        Ok(())
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        for (name, _) in INDEXES {
            let index = Index::drop()
                .name(name)
                .table(AuthConnections::Table)
                .to_owned();
            manager.drop_index(index).await?;
        }
        for column in columns() {
            let table = Table::alter()
                .table(AuthConnections::Table)
                .drop_column(column.get_column_name())
                .to_owned();
            manager.alter_table(table).await?;
        }
        Ok(())
    }
}

fn columns() -> [ColumnDef; 10] {
    [
        big_integer_null(AuthConnections::CheckAt),
        big_integer(AuthConnections::FailedChecks).default(0).take(),
        big_integer_null(AuthConnections::ReauthAt),
        big_integer(AuthConnections::ReauthFailures)
            .default(0)
            .take(),
        big_integer_null(AuthConnections::ReauthFailingSince),
        text_null(AuthConnections::ReauthStopped),
        text_null(AuthConnections::SessionCookie),
        big_integer_null(AuthConnections::SessionExpiresAt),
        big_integer_null(AuthConnections::WarnAt),
        big_integer(AuthConnections::HealthRevision)
            .default(0)
            .take(),
    ]
}

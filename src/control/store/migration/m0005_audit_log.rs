//! Creates the table of the audit log.

use sea_orm_migration::{prelude::*, schema::*};

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[derive(DeriveIden)]
enum AuditLogs {
    Table,
    Id,
    CreatedAt,
    Method,
    Path,
    Route,
    Service,
    Status,
    DurationMillis,
    ClientIp,
    UserAgent,
    Domain,
    AuthStrategy,
    UserId,
    ApiKeyId,
    ProjectId,
    RequestId,
    Action,
    Resource,
}

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        // No foreign keys: a record is retained for longer than the rows that it names.
        let table = Table::create()
            .table(AuditLogs::Table)
            .col(text(AuditLogs::Id).primary_key())
            .col(big_integer(AuditLogs::CreatedAt))
            .col(text(AuditLogs::Method))
            .col(text(AuditLogs::Path))
            .col(text(AuditLogs::Route))
            .col(text(AuditLogs::Service))
            .col(integer(AuditLogs::Status))
            .col(big_integer(AuditLogs::DurationMillis))
            .col(text(AuditLogs::ClientIp))
            .col(text(AuditLogs::UserAgent))
            .col(text(AuditLogs::Domain))
            .col(text(AuditLogs::AuthStrategy))
            .col(text_null(AuditLogs::UserId))
            .col(text_null(AuditLogs::ApiKeyId))
            .col(text_null(AuditLogs::ProjectId))
            .col(text(AuditLogs::RequestId))
            .col(text(AuditLogs::Action))
            .col(text_null(AuditLogs::Resource))
            .to_owned();
        manager.create_table(table).await?;
        let by_time = Index::create()
            .name("audit_logs_by_time")
            .table(AuditLogs::Table)
            .col(AuditLogs::CreatedAt)
            .col(AuditLogs::Id)
            .to_owned();
        manager.create_index(by_time).await
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let table = Table::drop().table(AuditLogs::Table).to_owned();
        manager.drop_table(table).await
    }
}

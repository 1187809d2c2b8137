//! Creates the table of auth connections.

use sea_orm_migration::{prelude::*, schema::*};

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[derive(DeriveIden)]
enum AuthConnections {
    Table,
    Id,
    ProjectId,
    Domain,
    ProfileName,
    Status,
    CredentialName,
    CredentialProvider,
    CredentialPath,
    AllowedDomains,
    LoginUrl,
    PostLoginUrl,
    HealthChecks,
    HealthCheckIntervalSeconds,
    AutoReauth,
    SaveCredentials,
    RecordSession,
    LastAuthAt,
    LastAuthCheckAt,
    BrowserId,
    Revision,
    CreatedAt,
    UpdatedAt,
}

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let connections = Table::create()
            .table(AuthConnections::Table)
            .col(text(AuthConnections::Id).primary_key())
            // No foreign key, which would be a rule for older programs.
            .col(text(AuthConnections::ProjectId))
            .col(text(AuthConnections::Domain))
            .col(text(AuthConnections::ProfileName))
            .col(text(AuthConnections::Status))
            .col(text_null(AuthConnections::CredentialName))
            .col(text_null(AuthConnections::CredentialProvider))
            .col(text_null(AuthConnections::CredentialPath))
            .col(text(AuthConnections::AllowedDomains))
            .col(text_null(AuthConnections::LoginUrl))
            .col(text_null(AuthConnections::PostLoginUrl))
            .col(boolean(AuthConnections::HealthChecks))
            .col(big_integer(AuthConnections::HealthCheckIntervalSeconds))
            .col(boolean(AuthConnections::AutoReauth))
            .col(boolean(AuthConnections::SaveCredentials))
            .col(boolean(AuthConnections::RecordSession))
            .col(big_integer_null(AuthConnections::LastAuthAt))
            .col(big_integer_null(AuthConnections::LastAuthCheckAt))
            .col(text_null(AuthConnections::BrowserId))
            .col(big_integer(AuthConnections::Revision))
            .col(big_integer(AuthConnections::CreatedAt))
            .col(big_integer(AuthConnections::UpdatedAt))
            .to_owned();
        manager.create_table(connections).await?;
        for index in indexes() {
            manager.create_index(index).await?;
        }
        Ok(())
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let table = Table::drop().table(AuthConnections::Table).to_owned();
        manager.drop_table(table).await
    }
}

fn indexes() -> [IndexCreateStatement; 4] {
    let index = |name: &str| {
        Index::create()
            .name(name)
            .table(AuthConnections::Table)
            .col(AuthConnections::ProjectId)
            .to_owned()
    };
    [
        index("auth_connections_domain_and_profile")
            .col(AuthConnections::Domain)
            .col(AuthConnections::ProfileName)
            .unique()
            .to_owned(),
        index("auth_connections_of_a_project")
            .col(AuthConnections::Id)
            .to_owned(),
        index("auth_connections_by_domain")
            .col(AuthConnections::Domain)
            .col(AuthConnections::Id)
            .to_owned(),
        index("auth_connections_by_profile")
            .col(AuthConnections::ProfileName)
            .col(AuthConnections::Id)
            .to_owned(),
    ]
}

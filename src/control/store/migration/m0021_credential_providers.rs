//! Creates the table of credential providers.

use sea_orm_migration::{prelude::*, schema::*};

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[derive(DeriveIden)]
enum CredentialProviders {
    Table,
    Id,
    Name,
    Kind,
    BaseUrl,
    Enabled,
    Priority,
    CacheTtlSeconds,
    Revision,
    TokenRevision,
    TokenKeyVersion,
    SealedToken,
    CreatedAt,
    UpdatedAt,
}

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let providers = Table::create()
            .table(CredentialProviders::Table)
            .col(text(CredentialProviders::Id).primary_key())
            .col(text(CredentialProviders::Name).unique_key())
            .col(text(CredentialProviders::Kind))
            .col(text(CredentialProviders::BaseUrl))
            .col(boolean(CredentialProviders::Enabled))
            .col(big_integer(CredentialProviders::Priority))
            .col(big_integer(CredentialProviders::CacheTtlSeconds))
            .col(big_integer(CredentialProviders::Revision))
            .col(big_integer(CredentialProviders::TokenRevision))
            .col(big_integer(CredentialProviders::TokenKeyVersion))
            .col(blob(CredentialProviders::SealedToken))
            .col(big_integer(CredentialProviders::CreatedAt))
            .col(big_integer(CredentialProviders::UpdatedAt))
            .to_owned();
        manager.create_table(providers).await
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let table = Table::drop().table(CredentialProviders::Table).to_owned();
        manager.drop_table(table).await
    }
}

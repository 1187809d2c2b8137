//! Creates the tables of credentials, of their sealed fields, and of used one-time codes.

use sea_orm_migration::{prelude::*, schema::*};

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[derive(DeriveIden)]
enum Credentials {
    Table,
    Id,
    ProjectId,
    Name,
    Domain,
    SsoProvider,
    TotpAlgorithm,
    TotpDigits,
    TotpPeriod,
    Revision,
    CreatedAt,
    UpdatedAt,
}

#[derive(DeriveIden)]
enum CredentialFields {
    Table,
    CredentialId,
    Field,
    Revision,
    KeyVersion,
    Sealed,
}

#[derive(DeriveIden)]
enum TotpSteps {
    Table,
    Holder,
    EndsAt,
}

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let credentials = Table::create()
            .table(Credentials::Table)
            .col(text(Credentials::Id).primary_key())
            // No foreign key, which would be a rule for older programs.
            .col(text(Credentials::ProjectId))
            .col(text(Credentials::Name))
            .col(text(Credentials::Domain))
            .col(text_null(Credentials::SsoProvider))
            .col(text_null(Credentials::TotpAlgorithm))
            .col(big_integer_null(Credentials::TotpDigits))
            .col(big_integer_null(Credentials::TotpPeriod))
            .col(big_integer(Credentials::Revision))
            .col(big_integer(Credentials::CreatedAt))
            .col(big_integer(Credentials::UpdatedAt))
            .to_owned();
        manager.create_table(credentials).await?;
        let fields = Table::create()
            .table(CredentialFields::Table)
            .col(text(CredentialFields::CredentialId))
            .col(text(CredentialFields::Field))
            .col(big_integer(CredentialFields::Revision))
            .col(big_integer(CredentialFields::KeyVersion))
            .col(blob(CredentialFields::Sealed))
            .primary_key(
                Index::create()
                    .col(CredentialFields::CredentialId)
                    .col(CredentialFields::Field),
            )
            .foreign_key(
                ForeignKey::create()
                    .from(CredentialFields::Table, CredentialFields::CredentialId)
                    .to(Credentials::Table, Credentials::Id)
                    .on_delete(ForeignKeyAction::Cascade),
            )
            .to_owned();
        manager.create_table(fields).await?;
        let steps = Table::create()
            .table(TotpSteps::Table)
            .col(text(TotpSteps::Holder).primary_key())
            .col(big_integer(TotpSteps::EndsAt))
            .to_owned();
        manager.create_table(steps).await?;
        for index in indexes() {
            manager.create_index(index).await?;
        }
        Ok(())
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        for table in [
            Table::drop().table(TotpSteps::Table).to_owned(),
            Table::drop().table(CredentialFields::Table).to_owned(),
            Table::drop().table(Credentials::Table).to_owned(),
        ] {
            manager.drop_table(table).await?;
        }
        Ok(())
    }
}

fn indexes() -> [IndexCreateStatement; 3] {
    [
        Index::create()
            .name("credentials_name")
            .table(Credentials::Table)
            .col(Credentials::ProjectId)
            .col(Credentials::Name)
            .unique()
            .to_owned(),
        Index::create()
            .name("credentials_of_a_project")
            .table(Credentials::Table)
            .col(Credentials::ProjectId)
            .col(Credentials::Id)
            .to_owned(),
        Index::create()
            .name("credentials_by_domain")
            .table(Credentials::Table)
            .col(Credentials::ProjectId)
            .col(Credentials::Domain)
            .to_owned(),
    ]
}

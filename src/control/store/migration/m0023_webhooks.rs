//! Creates the tables of webhooks and of deliveries to them.

use sea_orm_migration::{prelude::*, schema::*};

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[derive(DeriveIden)]
enum Webhooks {
    Table,
    Id,
    Url,
    Events,
    DisabledReason,
    Revision,
    SecretRevision,
    SecretKeyVersion,
    SealedSecret,
    ClaimedBy,
    ClaimedUntil,
    CreatedAt,
    UpdatedAt,
}

#[derive(DeriveIden)]
enum WebhookDeliveries {
    Table,
    Id,
    WebhookId,
    EventType,
    Payload,
    Status,
    Attempts,
    NextAttemptAt,
    LastAttemptAt,
    DurationMillis,
    ResponseStatus,
    ResponseBody,
    Error,
    CreatedAt,
}

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let webhooks = Table::create()
            .table(Webhooks::Table)
            .col(text(Webhooks::Id).primary_key())
            .col(text(Webhooks::Url))
            .col(text(Webhooks::Events))
            .col(text_null(Webhooks::DisabledReason))
            .col(big_integer(Webhooks::Revision))
            .col(big_integer(Webhooks::SecretRevision))
            .col(big_integer(Webhooks::SecretKeyVersion))
            .col(blob(Webhooks::SealedSecret))
            .col(text_null(Webhooks::ClaimedBy))
            .col(big_integer_null(Webhooks::ClaimedUntil))
            .col(big_integer(Webhooks::CreatedAt))
            .col(big_integer(Webhooks::UpdatedAt))
            .to_owned();
        manager.create_table(webhooks).await?;
        let deliveries = Table::create()
            .table(WebhookDeliveries::Table)
            .col(text(WebhookDeliveries::Id).primary_key())
            // No foreign key: a state change with an event must not fail because a webhook is
            // being deleted.
            .col(text(WebhookDeliveries::WebhookId))
            .col(text(WebhookDeliveries::EventType))
            .col(text(WebhookDeliveries::Payload))
            .col(text(WebhookDeliveries::Status))
            .col(big_integer(WebhookDeliveries::Attempts))
            .col(big_integer_null(WebhookDeliveries::NextAttemptAt))
            .col(big_integer_null(WebhookDeliveries::LastAttemptAt))
            .col(big_integer_null(WebhookDeliveries::DurationMillis))
            .col(big_integer_null(WebhookDeliveries::ResponseStatus))
            .col(text_null(WebhookDeliveries::ResponseBody))
            .col(text_null(WebhookDeliveries::Error))
            .col(big_integer(WebhookDeliveries::CreatedAt))
            .to_owned();
        manager.create_table(deliveries).await?;
        for index in indexes() {
            manager.create_index(index).await?;
        }
        Ok(())
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        for table in [
            Table::drop().table(WebhookDeliveries::Table).to_owned(),
            Table::drop().table(Webhooks::Table).to_owned(),
        ] {
            manager.drop_table(table).await?;
        }
        Ok(())
    }
}

fn indexes() -> [IndexCreateStatement; 3] {
    let index = |name: &str| {
        Index::create()
            .name(name)
            .table(WebhookDeliveries::Table)
            .to_owned()
    };
    [
        index("webhook_deliveries_due")
            .col(WebhookDeliveries::WebhookId)
            .col(WebhookDeliveries::NextAttemptAt)
            .to_owned(),
        index("webhook_deliveries_of_a_webhook")
            .col(WebhookDeliveries::WebhookId)
            .col(WebhookDeliveries::Id)
            .to_owned(),
        index("webhook_deliveries_by_status")
            .col(WebhookDeliveries::WebhookId)
            .col(WebhookDeliveries::Status)
            .col(WebhookDeliveries::Id)
            .to_owned(),
    ]
}

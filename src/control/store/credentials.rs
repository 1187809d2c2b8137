//! The tables of credentials and of their sealed fields.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use sea_orm::{
    ActiveModelTrait, ColumnTrait, Condition, ConnectionTrait, DatabaseTransaction, EntityTrait,
    PaginatorTrait, QueryFilter, QueryOrder, QuerySelect, Select, TransactionTrait,
    sea_query::Expr,
};

use super::{
    Store, StoreError,
    auth_connections::{rename_credential_of_connections, resume_reauth},
    corrupt,
    entity::{credential, credential_field},
    from_millis,
    projects::lock_active_project,
    revision_column,
    search::{contains, ends_with},
    to_millis,
    totp_steps::delete_totp_step,
};
use crate::api::{
    credentials::TotpAlgorithm,
    ids::{CredentialId, ProjectId},
};

/// A row of the table of credentials, with the names of its fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialRow {
    pub id: CredentialId,
    pub project_id: ProjectId,
    pub name: String,
    pub domain: String,
    pub sso_provider: Option<String>,
    /// Present if there is a secret for one-time codes.
    pub totp: Option<TotpOptions>,
    /// Grows with each change.
    pub revision: u64,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
    /// The names of the sealed fields, sorted.
    pub fields: Vec<String>,
}

/// The parameters of one-time codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TotpOptions {
    pub algorithm: TotpAlgorithm,
    pub digits: u32,
    /// In seconds.
    pub period: u32,
}

/// A sealed field of a credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedField {
    pub field: String,
    /// The revision of the credential in which the field was written.
    pub revision: u64,
    pub key_version: u32,
    pub sealed: Vec<u8>,
}

/// A change of a credential. Absent values are not changed.
#[derive(Debug, Clone, Default)]
pub struct CredentialChange {
    pub name: Option<String>,
    pub sso_provider: Option<Option<String>>,
    pub totp: Option<Option<TotpOptions>>,
    /// Whether the secret for one-time codes is another one, of which no code was used.
    pub has_new_totp_secret: bool,
    pub removed_fields: Vec<String>,
    pub written_fields: Vec<SealedField>,
}

/// A page of the list of credentials, with its filters.
#[derive(Debug, Clone, Default)]
pub struct CredentialListing {
    pub name: Option<String>,
    pub domain: Option<String>,
    /// Searched in the id and the name, ignoring case.
    pub query: Option<String>,
    pub offset: u64,
    pub limit: u64,
}

/// Why the row of a credential was not inserted.
#[derive(Debug, thiserror::Error)]
pub enum CreateCredentialError {
    #[error("the project is archived or deleted")]
    ProjectInactive,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl CredentialRow {
    fn of(row: credential::Model, fields: Vec<String>) -> Result<CredentialRow, StoreError> {
        let totp = match (&row.totp_algorithm, row.totp_digits, row.totp_period) {
            (Some(algorithm), Some(digits), Some(period)) => Some(TotpOptions {
                algorithm: TotpAlgorithm::parse(algorithm)
                    .ok_or_else(|| corrupt("algorithm", algorithm))?,
                digits: digits.try_into().map_err(|_| corrupt("digits", digits))?,
                period: period.try_into().map_err(|_| corrupt("period", period))?,
            }),
            _ => None,
        };
        Ok(CredentialRow {
            id: row
                .id
                .parse()
                .map_err(|_| corrupt("credential id", &row.id))?,
            project_id: row
                .project_id
                .parse()
                .map_err(|_| corrupt("project id", &row.project_id))?,
            name: row.name,
            domain: row.domain,
            sso_provider: row.sso_provider,
            totp,
            revision: row
                .revision
                .try_into()
                .map_err(|_| corrupt("revision", row.revision))?,
            created_at: from_millis(row.created_at)?,
            updated_at: from_millis(row.updated_at)?,
            fields,
        })
    }
}

impl TryFrom<credential_field::Model> for SealedField {
    type Error = StoreError;

    fn try_from(row: credential_field::Model) -> Result<Self, StoreError> {
        let (revision, key_version) = (row.revision, row.key_version);
        Ok(SealedField {
            field: row.field,
            revision: revision
                .try_into()
                .map_err(|_| corrupt("revision", revision))?,
            key_version: key_version
                .try_into()
                .map_err(|_| corrupt("key version", key_version))?,
            sealed: row.sealed,
        })
    }
}

impl Store {
    /// Creates a credential, if its project is active. The name must be unique in the project.
    pub async fn create_credential(
        &self,
        row: &CredentialRow,
        fields: Vec<SealedField>,
    ) -> Result<(), CreateCredentialError> {
        let insert = credential::Model {
            id: row.id.to_string(),
            project_id: row.project_id.to_string(),
            name: row.name.clone(),
            domain: row.domain.clone(),
            sso_provider: row.sso_provider.clone(),
            totp_algorithm: row.totp.map(|totp| totp.algorithm.as_str().to_owned()),
            totp_digits: row.totp.map(|totp| totp.digits.into()),
            totp_period: row.totp.map(|totp| totp.period.into()),
            revision: revision_column(row.revision)?,
            created_at: to_millis(row.created_at),
            updated_at: to_millis(row.updated_at),
        };
        let transaction = self.writer.begin().await.map_err(StoreError::from)?;
        // Until the commit, the project is neither archived nor deleted.
        let active = lock_active_project(&transaction, &row.project_id).await?;
        active.ok_or(CreateCredentialError::ProjectInactive)?;
        credential::Entity::insert(credential::ActiveModel::from(insert).reset_all())
            .exec_without_returning(&transaction)
            .await
            .map_err(StoreError::from)?;
        insert_fields(&transaction, &row.id, fields).await?;
        transaction.commit().await.map_err(StoreError::from)?;
        Ok(())
    }

    /// Finds a credential of `project` by its id.
    pub async fn find_credential(
        &self,
        project: &ProjectId,
        id: &CredentialId,
    ) -> Result<Option<CredentialRow>, StoreError> {
        let query = of_project(project).filter(credential::Column::Id.eq(id.as_str()));
        self.one_credential(query).await
    }

    /// Finds a credential of `project` by its name.
    pub async fn find_credential_named(
        &self,
        project: &ProjectId,
        name: &str,
    ) -> Result<Option<CredentialRow>, StoreError> {
        let query = of_project(project).filter(credential::Column::Name.eq(name));
        self.one_credential(query).await
    }

    async fn one_credential(
        &self,
        query: Select<credential::Entity>,
    ) -> Result<Option<CredentialRow>, StoreError> {
        let Some(row) = query.one(&self.db).await? else {
            return Ok(None);
        };
        let mut names = self.field_names(&[row.id.as_str()]).await?;
        let fields = names.remove(&row.id).unwrap_or_default();
        CredentialRow::of(row, fields).map(Some)
    }

    /// Lists credentials, newest first, with one row more than the limit if there are more.
    pub async fn list_credentials(
        &self,
        project: &ProjectId,
        listing: &CredentialListing,
    ) -> Result<Vec<CredentialRow>, StoreError> {
        let mut query = of_project(project);
        if let Some(name) = &listing.name {
            query = query.filter(credential::Column::Name.eq(name));
        }
        if let Some(domain) = &listing.domain {
            query = query.filter(credential::Column::Domain.eq(domain));
        }
        if let Some(text) = &listing.query {
            let columns = [credential::Column::Id, credential::Column::Name];
            query = query.filter(contains(text, &columns));
        }
        let rows = query
            .order_by_desc(credential::Column::Id)
            .offset(listing.offset)
            .limit(listing.limit + 1)
            .all(&self.db)
            .await?;
        self.with_field_names(rows).await
    }

    async fn with_field_names(
        &self,
        rows: Vec<credential::Model>,
    ) -> Result<Vec<CredentialRow>, StoreError> {
        let ids: Vec<&str> = rows.iter().map(|row| row.id.as_str()).collect();
        let mut names = self.field_names(&ids).await?;
        let rows = rows.into_iter().map(|row| {
            let fields = names.remove(&row.id).unwrap_or_default();
            CredentialRow::of(row, fields)
        });
        rows.collect()
    }

    /// Returns the names of the fields of credentials, sorted, by their ids.
    async fn field_names(&self, ids: &[&str]) -> Result<HashMap<String, Vec<String>>, StoreError> {
        if ids.is_empty() {
            return Ok(HashMap::new());
        }
        let rows: Vec<(String, String)> = credential_field::Entity::find()
            .select_only()
            .column(credential_field::Column::CredentialId)
            .column(credential_field::Column::Field)
            .filter(credential_field::Column::CredentialId.is_in(ids.iter().copied()))
            .into_tuple()
            .all(&self.db)
            .await?;
        let mut names: HashMap<String, Vec<String>> = HashMap::new();
        for (id, field) in rows {
            names.entry(id).or_default().push(field);
        }
        // Not by the database, whose order depends on its collation.
        for fields in names.values_mut() {
            fields.sort();
        }
        Ok(names)
    }

    /// Returns up to `limit` credentials of `project` for a domain.
    pub async fn credentials_of_domain(
        &self,
        project: &ProjectId,
        domain: &str,
        limit: u64,
    ) -> Result<Vec<CredentialRow>, StoreError> {
        let condition = Condition::all().add(credential::Column::Domain.eq(domain));
        self.credentials_where(project, condition, limit).await
    }

    /// Returns up to `limit` credentials of `project` for domains below one.
    pub async fn credentials_below(
        &self,
        project: &ProjectId,
        domain: &str,
        limit: u64,
    ) -> Result<Vec<CredentialRow>, StoreError> {
        let condition = ends_with(&format!(".{domain}"), credential::Column::Domain);
        self.credentials_where(project, condition, limit).await
    }

    /// Returns up to `limit` credentials of `project` that fulfil a condition, by name.
    async fn credentials_where(
        &self,
        project: &ProjectId,
        condition: Condition,
        limit: u64,
    ) -> Result<Vec<CredentialRow>, StoreError> {
        let rows = of_project(project)
            .filter(condition)
            .order_by_asc(credential::Column::Name)
            .limit(limit)
            .all(&self.db)
            .await?;
        self.with_field_names(rows).await
    }

    /// Returns the credentials of `project` that have one of the names.
    pub async fn credentials_named(
        &self,
        project: &ProjectId,
        names: &[&str],
    ) -> Result<Vec<CredentialRow>, StoreError> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let names = names.iter().copied();
        let rows = of_project(project)
            .filter(credential::Column::Name.is_in(names))
            .all(&self.db)
            .await?;
        self.with_field_names(rows).await
    }

    /// Returns the sealed fields of a credential.
    pub async fn sealed_fields(&self, id: &CredentialId) -> Result<Vec<SealedField>, StoreError> {
        let rows = credential_field::Entity::find()
            .filter(credential_field::Column::CredentialId.eq(id.as_str()))
            .all(&self.db)
            .await?;
        rows.into_iter().map(TryInto::try_into).collect()
    }

    /// Changes a credential that has the revision of `row`, which grows by one. Returns whether
    /// there is one.
    pub async fn update_credential(
        &self,
        row: &CredentialRow,
        change: CredentialChange,
        now: DateTime<Utc>,
    ) -> Result<bool, StoreError> {
        let transaction = self.writer.begin().await?;
        let (id, revision) = (&row.id, revision_column(row.revision)?);
        let mut update = credential::Entity::update_many()
            .col_expr(credential::Column::Revision, Expr::value(revision + 1))
            .col_expr(credential::Column::UpdatedAt, Expr::value(to_millis(now)));
        if let Some(name) = &change.name {
            update = update.col_expr(credential::Column::Name, Expr::value(name));
        }
        if let Some(sso_provider) = change.sso_provider {
            update = update.col_expr(credential::Column::SsoProvider, Expr::value(sso_provider));
        }
        if let Some(totp) = change.totp {
            let algorithm = totp.map(|totp| totp.algorithm.as_str());
            let digits = totp.map(|totp| i64::from(totp.digits));
            let period = totp.map(|totp| i64::from(totp.period));
            update = update
                .col_expr(credential::Column::TotpAlgorithm, Expr::value(algorithm))
                .col_expr(credential::Column::TotpDigits, Expr::value(digits))
                .col_expr(credential::Column::TotpPeriod, Expr::value(period));
        }
        let updated = update
            .filter(credential::Column::Id.eq(id.as_str()))
            .filter(credential::Column::Revision.eq(revision))
            .exec(&transaction)
            .await?;
        if updated.rows_affected == 0 {
            return Ok(false);
        }
        if let Some(name) = &change.name {
            let names = (row.name.as_str(), name.as_str());
            rename_credential_of_connections(&transaction, &row.project_id, names).await?;
        }
        if !change.written_fields.is_empty() {
            let name = change.name.as_ref().unwrap_or(&row.name);
            resume_reauth(&transaction, &row.project_id, name, now).await?;
        }
        if change.has_new_totp_secret {
            delete_totp_step(&transaction, id.as_str()).await?;
        }
        let written = change.written_fields.iter().map(|field| &field.field);
        let replaced: Vec<&String> = change.removed_fields.iter().chain(written).collect();
        if !replaced.is_empty() {
            credential_field::Entity::delete_many()
                .filter(credential_field::Column::CredentialId.eq(id.as_str()))
                .filter(credential_field::Column::Field.is_in(replaced))
                .exec(&transaction)
                .await?;
        }
        insert_fields(&transaction, id, change.written_fields).await?;
        transaction.commit().await?;
        Ok(true)
    }

    /// Deletes a credential with its fields. Returns whether there was one.
    pub async fn delete_credential(
        &self,
        project: &ProjectId,
        id: &CredentialId,
    ) -> Result<bool, StoreError> {
        let transaction = self.writer.begin().await?;
        let deleted = credential::Entity::delete_many()
            .filter(credential::Column::Id.eq(id.as_str()))
            .filter(credential::Column::ProjectId.eq(project.as_str()))
            .exec(&transaction)
            .await?;
        if deleted.rows_affected == 0 {
            return Ok(false);
        }
        delete_totp_step(&transaction, id.as_str()).await?;
        transaction.commit().await?;
        Ok(true)
    }
}

async fn insert_fields(
    transaction: &DatabaseTransaction,
    id: &CredentialId,
    fields: Vec<SealedField>,
) -> Result<(), StoreError> {
    if fields.is_empty() {
        return Ok(());
    }
    let mut rows = Vec::with_capacity(fields.len());
    for field in fields {
        let row = credential_field::Model {
            credential_id: id.to_string(),
            field: field.field,
            revision: revision_column(field.revision)?,
            key_version: field.key_version.into(),
            sealed: field.sealed,
        };
        rows.push(credential_field::ActiveModel::from(row).reset_all());
    }
    credential_field::Entity::insert_many(rows)
        .exec_without_returning(transaction)
        .await?;
    Ok(())
}

fn of_project(project: &ProjectId) -> Select<credential::Entity> {
    credential::Entity::find().filter(credential::Column::ProjectId.eq(project.as_str()))
}

/// Returns how many credentials a project has.
pub(super) async fn count_credentials(
    db: &impl ConnectionTrait,
    project: &ProjectId,
) -> Result<u64, StoreError> {
    Ok(of_project(project).count(db).await?)
}

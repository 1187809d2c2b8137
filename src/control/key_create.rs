//! The command `berth key create`.

use chrono::Utc;
use secrecy::SecretString;

use super::{
    ControlError,
    database::open_store,
    keys::{ApiKeys, KeyError},
    secret_token,
    settings::{DatabaseSettings, SettingsError, StateSettings},
    state_dir::StateDir,
    store::{ApiKeyRow, ProjectRow, Store, StoreError},
    stored_files::local_blobs,
};
use crate::{
    api::{api_keys::Days, name},
    shutdown::Shutdown,
};

/// Options of `berth key create`.
#[derive(Debug, Clone, clap::Args)]
pub struct KeyCreate {
    /// Name of the key, for people
    #[arg(long, value_parser = key_name, value_name = "NAME")]
    pub name: String,

    /// Project that the key is valid for, created if it does not exist [default: every project]
    #[arg(long, value_parser = project_name, value_name = "NAME")]
    pub project: Option<String>,

    /// Days until the key expires (1–3650) [default: never]
    #[arg(long, value_name = "DAYS")]
    pub expires_in_days: Option<Days>,

    #[command(flatten)]
    pub state: StateSettings,

    #[command(flatten)]
    pub database: DatabaseSettings,
}

/// A new key and, if it had to be created, its project.
pub struct CreatedKey {
    pub record: ApiKeyRow,
    pub key: SecretString,
    pub created_project: Option<ProjectRow>,
}

/// Why a key was not created.
#[derive(Debug, thiserror::Error)]
pub enum KeyCreateError {
    #[error(transparent)]
    Control(#[from] ControlError),
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error("cannot use the database: {0}")]
    Store(#[from] StoreError),
}

/// Creates a key in control's database. A running server accepts it at once.
pub async fn create(options: &KeyCreate) -> Result<CreatedKey, KeyCreateError> {
    let path = options.state.path().map_err(ControlError::StateDir)?;
    let database = options.database.check().map_err(SettingsError::from);
    let database = database.map_err(ControlError::Settings)?;
    let state_dir = StateDir::open(&path).map_err(ControlError::StateDir)?;
    let store = open_store(&state_dir, &database, local_blobs(&state_dir)).await?;
    let created = create_in(&store, options).await;
    store.close().await?;
    created
}

async fn create_in(store: &Store, options: &KeyCreate) -> Result<CreatedKey, KeyCreateError> {
    let (project, created_project) = match &options.project {
        None => (None, None),
        Some(name) => match store.find_project_named(name).await? {
            Some(found) => (Some(found.id), None),
            None => {
                let created = store.create_project(name, Utc::now()).await?;
                (Some(created.id.clone()), Some(created))
            }
        },
    };
    let expiry = options.expires_in_days.map(|days| days.after(Utc::now()));
    let keys = ApiKeys::new(store.clone(), Shutdown::new());
    let (record, key) = keys.create(&options.name, project, expiry).await?;
    Ok(CreatedKey {
        record,
        key,
        created_project,
    })
}

impl CreatedKey {
    /// Prints the key on standard output, for scripts, and everything else on standard error.
    pub fn print(&self) {
        if let Some(project) = &self.created_project {
            eprintln!("created project {} ({})", project.name, project.id);
        }
        let scope = match &self.record.project_id {
            Some(project) => format!("project {project}"),
            None => "every project".to_owned(),
        };
        eprintln!(
            "created key {} ({}) for {scope}; it is shown only once:",
            self.record.name, self.record.id
        );
        println!("{}", secret_token::reveal(&self.key));
    }
}

fn key_name(text: &str) -> Result<String, String> {
    name::ApiKeyName::parse(text.to_owned()).map(Into::into)
}

fn project_name(text: &str) -> Result<String, String> {
    name::ProjectName::parse(text.to_owned()).map(Into::into)
}

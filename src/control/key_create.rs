//! `berth key create`.

use chrono::Utc;
use secrecy::SecretString;

use super::{
    ControlError, keys,
    keys::{ApiKeys, KeyError},
    open_store,
    settings::StateSettings,
    state_dir::StateDir,
    store::{ApiKeyRow, ProjectRow, Store, StoreError},
};
use crate::api::{api_keys::Days, name};

/// Options of `berth key create`.
#[derive(Debug, Clone, clap::Args)]
pub struct KeyCreate {
    /// What the key is for
    #[arg(long, value_parser = key_name, value_name = "NAME")]
    pub name: String,

    /// The one project it is good for, made where it is missing [default: every project]
    #[arg(long, value_parser = project_name, value_name = "NAME")]
    pub project: Option<String>,

    /// Days after which it stops working (1–3650) [default: never]
    #[arg(long, value_name = "DAYS")]
    pub expires_in_days: Option<Days>,

    #[command(flatten)]
    pub state: StateSettings,
}

/// A new key, and what was done for it.
pub struct CreatedKey {
    pub record: ApiKeyRow,
    pub key: SecretString,
    /// The project that was missing and has been made.
    pub made_project: Option<ProjectRow>,
}

#[derive(Debug, thiserror::Error)]
pub enum KeyCreateError {
    #[error(transparent)]
    Control(#[from] ControlError),
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error("cannot use the database: {0}")]
    Store(#[from] StoreError),
}

/// Makes a key in the state directory's database; a server that runs there takes it at once.
pub async fn create(options: &KeyCreate) -> Result<CreatedKey, KeyCreateError> {
    let path = options.state.path().map_err(ControlError::StateDir)?;
    let state_dir = StateDir::open(&path).map_err(ControlError::StateDir)?;
    let (store, _) = open_store(&state_dir).await?;
    let created = create_in(&store, options).await;
    store.close().await?;
    created
}

async fn create_in(store: &Store, options: &KeyCreate) -> Result<CreatedKey, KeyCreateError> {
    let (project, made_project) = match &options.project {
        None => (None, None),
        Some(name) => match store.find_project_named(name).await? {
            Some(found) => (Some(found.id), None),
            None => {
                let made = store.create_project(name, Utc::now()).await?;
                (Some(made.id.clone()), Some(made))
            }
        },
    };
    let expiry = options.expires_in_days.map(|days| days.after(Utc::now()));
    let keys = ApiKeys::new(store.clone());
    let (record, key) = keys.create(&options.name, project, expiry).await?;
    Ok(CreatedKey {
        record,
        key,
        made_project,
    })
}

impl CreatedKey {
    /// The key itself, alone on standard output so that a script can take it; what is to be said on standard error.
    pub fn print(&self) {
        if let Some(project) = &self.made_project {
            eprintln!("made the project {} ({})", project.name, project.id);
        }
        let scope = match &self.record.project_id {
            Some(project) => format!("the project {project}"),
            None => "every project".to_owned(),
        };
        eprintln!(
            "made the key {} ({}) for {scope}; it is shown this once:",
            self.record.name, self.record.id
        );
        println!("{}", keys::reveal(&self.key));
    }
}

fn key_name(text: &str) -> Result<String, String> {
    name::Name::parse(text.to_owned()).map(Into::into)
}

fn project_name(text: &str) -> Result<String, String> {
    name::check_project_name(text).map(|()| text.to_owned())
}

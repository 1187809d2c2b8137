//! The project service: creates, finds, changes and deletes projects, and decides whether a request
//! may use one.
//!
//! [`limits`] reads and changes the limits of projects and of the organization.
//!
//! Whether a project is active is cached for a short time ([`AccessCache`]). A change by this
//! process clears the cache.

use std::{sync::Arc, time::Duration};

use chrono::Utc;

use super::{
    access_cache::AccessCache,
    browsers::Browsers,
    store::{
        Hint, ProjectChange, ProjectListing, ProjectOutcome, ProjectRow, Store, StoreError,
        UniqueConstraint,
    },
};
use crate::{
    api::{ids::ProjectId, name::ProjectName, projects::ProjectStatus},
    request_scope::inherit,
    shutdown::Shutdown,
};

mod limits;

/// The interval of checks whether another process has archived a project with active browsers.
const ARCHIVE_CHECK_INTERVAL: Duration = Duration::from_secs(2);

pub use limits::OrganizationUsage;

/// Why an operation on a project failed.
#[derive(Debug, thiserror::Error)]
pub enum ProjectError {
    #[error("no project with that id or name")]
    NotFound,
    #[error("the project is archived")]
    Archived,
    #[error("another project has that name")]
    NameTaken,
    #[error("the project has active browsers, pools, profiles, credentials or auth connections")]
    NotEmpty,
    #[error("the last active project cannot be archived or deleted")]
    LastActive,
    #[error("the API key of the request belongs to one project")]
    KeyBound,
    #[error("must not exceed the limit of the organization ({0})")]
    ExceedsOrganization(u32),
    #[error(transparent)]
    Store(StoreError),
    #[error("background task failed: {0}")]
    Task(#[from] tokio::task::JoinError),
}

impl From<StoreError> for ProjectError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::UniqueViolation(UniqueConstraint::ProjectLiveName) => {
                ProjectError::NameTaken
            }
            other => ProjectError::Store(other),
        }
    }
}

/// The projects that the key of a request gives access to: all, or the one that it is bound to.
#[derive(Debug, Clone, Copy)]
pub struct ProjectScope<'a>(pub Option<&'a ProjectId>);

impl ProjectScope<'_> {
    fn includes(self, id: &ProjectId) -> bool {
        self.0.is_none_or(|bound| bound == id)
    }

    fn check_all(self) -> Result<(), ProjectError> {
        match self.0 {
            None => Ok(()),
            Some(_) => Err(ProjectError::KeyBound),
        }
    }
}

/// The project service. Clones share its cache.
#[derive(Clone)]
pub struct Projects {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
    browsers: Browsers,
    shutdown: Shutdown,
    cache: AccessCache<CachedProject, ProjectRow>,
}

/// The key of a cached project.
#[derive(Debug, PartialEq, Eq, Hash)]
enum CachedProject {
    Default,
    Id(ProjectId),
}

impl Projects {
    /// Returns the service. `shutdown` owns its background tasks.
    pub fn new(store: Store, browsers: Browsers, shutdown: Shutdown) -> Projects {
        Projects {
            inner: Arc::new(Inner {
                store,
                browsers,
                shutdown,
                cache: AccessCache::default(),
            }),
        }
    }

    /// Checks that requests may use the project `id`: that it exists and is not archived.
    pub async fn check_active(&self, id: &ProjectId) -> Result<(), ProjectError> {
        match self.cached(CachedProject::Id(id.clone())).await? {
            None => Err(ProjectError::NotFound),
            Some(row) => match row.status {
                ProjectStatus::Active => Ok(()),
                ProjectStatus::Archived => Err(ProjectError::Archived),
            },
        }
    }

    /// Returns the id of the default project, which is always active.
    pub async fn default_id(&self) -> Result<ProjectId, ProjectError> {
        let row = self.cached(CachedProject::Default).await?;
        row.map(|row| row.id).ok_or(ProjectError::NotFound)
    }

    async fn cached(&self, project: CachedProject) -> Result<Option<ProjectRow>, StoreError> {
        let Inner { store, cache, .. } = &*self.inner;
        if let Some(row) = cache.get(&project) {
            return Ok(Some(row));
        }
        let generation = cache.generation();
        let row = match &project {
            CachedProject::Default => store.find_default_project().await?,
            CachedProject::Id(id) => store.find_project(id).await?,
        };
        // Unknown ids are not cached, so that requests with random ones do not fill the cache.
        if let Some(row) = &row {
            cache.insert(project, row.clone(), generation);
        }
        Ok(row)
    }

    /// Finds the project with that name.
    pub async fn find_named(&self, name: &str) -> Result<ProjectId, ProjectError> {
        let found = self.inner.store.find_project_named(name).await?;
        found.map(|row| row.id).ok_or(ProjectError::NotFound)
    }

    /// Creates a project.
    pub async fn create(
        &self,
        scope: ProjectScope<'_>,
        name: &ProjectName,
    ) -> Result<ProjectRow, ProjectError> {
        scope.check_all()?;
        let store = &self.inner.store;
        Ok(store.create_project(name.as_str(), Utc::now()).await?)
    }

    /// Finds a project by its id or its name.
    pub async fn get(
        &self,
        scope: ProjectScope<'_>,
        id_or_name: &str,
    ) -> Result<ProjectRow, ProjectError> {
        let store = &self.inner.store;
        let found = match id_or_name.parse::<ProjectId>() {
            Ok(id) => store.find_project(&id).await?,
            Err(_) => match ProjectName::parse(id_or_name.to_owned()) {
                Ok(name) => store.find_project_named(name.as_str()).await?,
                Err(_) => None,
            },
        };
        let found = found.filter(|row| scope.includes(&row.id));
        found.ok_or(ProjectError::NotFound)
    }

    /// Lists projects, newest first, with one more than the limit if there are more.
    pub async fn list(
        &self,
        scope: ProjectScope<'_>,
        listing: ProjectListing,
    ) -> Result<Vec<ProjectRow>, ProjectError> {
        let listing = ProjectListing {
            scope: scope.0.cloned(),
            ..listing
        };
        Ok(self.inner.store.list_projects(&listing).await?)
    }

    /// Changes a project. If it is archived now, ends its browsers and returns when their hosts are
    /// stopped. Completes even if the client disconnects.
    pub async fn update(
        &self,
        scope: ProjectScope<'_>,
        id_or_name: &str,
        change: ProjectChange,
    ) -> Result<ProjectRow, ProjectError> {
        let row = self.get(scope, id_or_name).await?;
        scope.check_all()?;
        if change == ProjectChange::default() {
            return Ok(row);
        }
        let this = self.clone();
        let task = self.inner.shutdown.spawn(inherit(async move {
            let Inner {
                store, browsers, ..
            } = &*this.inner;
            let changed = store.change_project(&row.id, &change, Utc::now()).await;
            this.access_changed();
            let row = changed?.done()?;
            if row.status == ProjectStatus::Archived {
                browsers.end_of_project(&row.id).await;
            }
            Ok(row)
        }));
        task.await?
    }

    /// Ends the browsers of projects that another process has archived, until shutdown.
    pub async fn end_archived(self) {
        let Inner {
            browsers, shutdown, ..
        } = &*self.inner;
        while shutdown.sleep(ARCHIVE_CHECK_INTERVAL).await {
            for id in browsers.active_projects() {
                match self.check_active(&id).await {
                    Ok(()) => {}
                    Err(ProjectError::Archived | ProjectError::NotFound) => {
                        browsers.end_of_project(&id).await;
                    }
                    Err(error) => tracing::warn!(project = %id, %error, "cannot check project"),
                }
            }
        }
    }

    /// Forgets the projects that are cached, because one may have changed.
    pub fn forget_cached(&self) {
        self.inner.cache.clear();
    }

    /// Forgets the projects that are cached, here and at other processes.
    fn access_changed(&self) {
        self.forget_cached();
        self.inner.store.hint(Hint::Access);
    }

    /// Deletes a project that has no active browsers. Its keys stop working.
    pub async fn delete(
        &self,
        scope: ProjectScope<'_>,
        id_or_name: &str,
    ) -> Result<(), ProjectError> {
        let row = self.get(scope, id_or_name).await?;
        scope.check_all()?;
        let this = self.clone();
        let task = self.inner.shutdown.spawn(inherit(async move {
            let store = &this.inner.store;
            let deleted = store.delete_project(&row.id, Utc::now()).await;
            this.access_changed();
            deleted?.done()
        }));
        task.await?
    }
}

impl<T> ProjectOutcome<T> {
    fn done(self) -> Result<T, ProjectError> {
        match self {
            ProjectOutcome::Done(value) => Ok(value),
            ProjectOutcome::NotFound => Err(ProjectError::NotFound),
            ProjectOutcome::NotEmpty => Err(ProjectError::NotEmpty),
            ProjectOutcome::LastActive => Err(ProjectError::LastActive),
        }
    }
}

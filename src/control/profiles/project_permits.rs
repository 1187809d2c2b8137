//! Permits that are limited in total and for each project, so that no project takes all of them.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;

use crate::api::ids::ProjectId;

/// The permits of one kind of operation.
pub(super) struct ProjectPermits {
    total: usize,
    per_project: usize,
    /// The permits that each project has.
    taken: Mutex<HashMap<ProjectId, usize>>,
}

/// A permit, which dropping it returns.
pub(super) struct ProjectPermit {
    permits: Arc<ProjectPermits>,
    project: ProjectId,
}

impl ProjectPermits {
    pub(super) fn new(total: usize, per_project: usize) -> Arc<Self> {
        Arc::new(ProjectPermits {
            total,
            per_project,
            taken: Mutex::default(),
        })
    }

    /// Takes a permit for a project. `None` if there are none left.
    pub(super) fn try_acquire(self: &Arc<Self>, project: &ProjectId) -> Option<ProjectPermit> {
        let mut taken = self.taken.lock();
        let of_project = taken.get(project).copied().unwrap_or_default();
        if taken.values().sum::<usize>() >= self.total || of_project >= self.per_project {
            return None;
        }
        taken.insert(project.clone(), of_project + 1);
        Some(ProjectPermit {
            permits: self.clone(),
            project: project.clone(),
        })
    }
}

impl Drop for ProjectPermit {
    fn drop(&mut self) {
        let mut taken = self.permits.taken.lock();
        if let Some(count) = taken.get_mut(&self.project) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.project);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_are_limited_in_total_and_for_each_project() {
        let permits = ProjectPermits::new(3, 2);
        let (one, two) = (ProjectId::generate(), ProjectId::generate());
        let first = permits.try_acquire(&one).unwrap();
        let _second = permits.try_acquire(&one).unwrap();
        assert!(permits.try_acquire(&one).is_none());
        let _third = permits.try_acquire(&two).unwrap();
        assert!(permits.try_acquire(&two).is_none());
        drop(first);
        assert!(permits.try_acquire(&two).is_some());
        assert!(permits.try_acquire(&one).is_some());
    }
}

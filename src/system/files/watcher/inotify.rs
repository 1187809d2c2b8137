//! The inotify instance and the directories it watches.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::SyncSender,
    },
};

use notify::{Event, EventKind, INotifyWatcher, RecursiveMode, Watcher as _, event::ModifyKind};

use super::{MAX_NESTED, WatchError};

/// The instance, with the number of watches that use each directory.
#[derive(Debug)]
pub(super) struct Inotify {
    watcher: INotifyWatcher,
    use_counts: HashMap<PathBuf, usize>,
    /// The number of uses of directories that are not the root of their watch.
    nested: usize,
}

impl Inotify {
    /// Starts the instance and its thread. Events go to `events`; `missed` is set when one is
    /// lost.
    pub(super) fn start(
        events: SyncSender<Event>,
        missed: Arc<AtomicBool>,
    ) -> Result<Self, WatchError> {
        let handler = event_handler(events, missed);
        let watcher = INotifyWatcher::new(handler, notify::Config::default())?;
        Ok(Inotify {
            watcher,
            use_counts: HashMap::new(),
            nested: 0,
        })
    }

    pub(super) fn acquire(&mut self, path: &Path, is_root: bool) -> Result<(), WatchError> {
        if !is_root && self.nested >= MAX_NESTED {
            return Err(WatchError::LimitReached);
        }
        self.watcher.watch(path, RecursiveMode::NonRecursive)?;
        *self.use_counts.entry(path.to_owned()).or_default() += 1;
        self.nested += usize::from(!is_root);
        Ok(())
    }

    pub(super) fn release(&mut self, path: &Path, is_root: bool) {
        let Some(count) = self.use_counts.get_mut(path) else {
            return;
        };
        *count -= 1;
        self.nested -= usize::from(!is_root);
        if *count == 0 {
            self.use_counts.remove(path);
            // Fails for a directory that was deleted or moved, which the kernel no longer watches.
            let _ = self.watcher.unwatch(path);
        }
    }
}

/// Returns the callback of the inotify thread. It never waits, or the kernel's queue would
/// overflow.
fn event_handler(
    events: SyncSender<Event>,
    missed: Arc<AtomicBool>,
) -> impl FnMut(notify::Result<Event>) + Send + 'static {
    move |event| {
        let is_queued = match event {
            Ok(event) if is_irrelevant(&event) => true,
            Ok(event) => events.try_send(event).is_ok(),
            Err(_) => false,
        };
        if !is_queued {
            missed.store(true, Ordering::Release);
        }
    }
}

fn is_irrelevant(event: &Event) -> bool {
    matches!(
        event.kind,
        EventKind::Access(_) | EventKind::Modify(ModifyKind::Metadata(_))
    )
}
